"""Validation: the quality of a model on records that it is not trained on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

from attendo.config import DecodingConfig
from attendo.data.batches import Layout, once
from attendo.data.corpus import Corpus
from attendo.data.readers import Record
from attendo.tasks import Task


@dataclass(frozen=True, slots=True)
class Validator:
    """Measures loss on all validation records and the metric on the first few."""

    task: Task
    corpus: Corpus
    layout: Layout
    texts: list[Record]
    """The records whose metric is measured at each validation."""
    device: torch.device
    options: DecodingConfig

    def loss(self, model: nn.Module) -> float:
        """Return the mean loss per label, without label smoothing."""
        total, count = 0.0, 0
        with evaluating(model):
            for batch in once(self.corpus, self.layout):
                loss = self.task.loss(model, batch.to(self.device), 0.0)
                total, count = total + float(loss.total), count + batch.n_labels
        return total / max(1, count)

    def score(self, model: nn.Module, records: list[Record] | None = None) -> float:
        """Return the metric of the task, of `texts` or of the given records."""
        chosen = self.texts if records is None else records
        with evaluating(model):
            return self.task.validate(model, chosen, self.options, self.device)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Disable dropout and gradients inside the context."""
    model.eval()
    try:
        # Batches of many shapes: compiling for each of them would take longer than it saves.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        model.train()
