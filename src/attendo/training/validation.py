"""Validation: the quality of a model on pairs that it is not trained on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from attendo import metrics
from attendo.config import DecodingConfig
from attendo.data.batches import Layout, once
from attendo.data.corpus import Corpus
from attendo.data.readers import Pair
from attendo.models import Seq2Seq
from attendo.tasks import Translation


@dataclass(frozen=True, slots=True)
class Validator:
    """Measures loss on all validation pairs and BLEU on the first few."""

    task: Translation
    corpus: Corpus
    layout: Layout
    texts: list[Pair]
    """The pairs that are translated at each validation."""
    device: torch.device
    sentences: int = 1
    """Sentences that are translated together."""

    def loss(self, model: Seq2Seq) -> float:
        """Compute the mean loss per token, without label smoothing."""
        total, count = 0.0, 0
        with evaluating(model):
            for batch in once(self.corpus, self.layout):
                loss = self.task.loss(model, batch.to(self.device), 0.0)
                total, count = total + float(loss.total), count + batch.n_labels
        return total / max(1, count)

    def bleu(self, model: Seq2Seq, pairs: list[Pair] | None = None) -> float:
        """Compute BLEU of greedy translations; of `texts`, or of the given pairs."""
        pairs = self.texts if pairs is None else pairs
        sources = [pair.source for pair in pairs]
        options = DecodingConfig(strategy="greedy", batch_size=256, sentences=self.sentences)
        with evaluating(model):
            found = self.task.translate(model, sources, options, self.device)
        references = [pair.target for pair in pairs]
        return metrics.bleu([best[0].text for best in found], references)


@contextmanager
def evaluating(model: Seq2Seq) -> Iterator[None]:
    """Disable dropout and gradients for a while."""
    model.eval()
    try:
        # Batches of many shapes: compiling for each of them would take longer than it saves.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        model.train()
