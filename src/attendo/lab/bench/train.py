"""Training speed: the learner and the batches of a real run, on generated sentences."""

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch

from attendo.bundle import parameters_of
from attendo.config import Recipe, TransformerConfig
from attendo.data.batches import Batch, Position, stream
from attendo.data.prefetch import prefetch, upload
from attendo.lab.bench.results import Report, Row, settings_of, settled_recipe
from attendo.lab.bench.sentences import (
    MEAN_LENGTH,
    Sentences,
    check_mean_length,
    draw_sentences,
    numbered_task,
)
from attendo.lab.clock import (
    Stretch,
    describe,
    forget_peak,
    peak_memory,
    speed,
    split_evenly,
    time_stretch,
    training_flops,
    wait_for,
)
from attendo.nn.fast.graph import Pace
from attendo.reporter import Reporter
from attendo.tasks import Task
from attendo.training.learner import Learner

STRETCHES = 5
"""Measurements, of which the median is reported."""

MOST_PAIRS = 1_000_000
"""Pairs generated at most; a longer benchmark uses them again."""


class Usual(NamedTuple):
    """The defaults for a kind of device."""

    steps: int
    warmup: int
    overrides: dict[str, Any]


GPU = Usual(steps=100, warmup=20, overrides={})
# The batches of most recipes are for GPUs: one of them would take a CPU minutes.
CPU = Usual(steps=10, warmup=2, overrides={"training.batch_tokens": 2048})


class _Seen(NamedTuple):
    """What is kept of a batch, to be evaluated after the measurement."""

    records: tuple[int, ...]
    n_labels: int
    source_places: int
    target_places: int

    @classmethod
    def of(cls, batch: Batch) -> "_Seen":
        source = batch.inputs.get("source")
        places = 0 if source is None else source.ids.numel()
        return cls(batch.records, batch.n_labels, places, batch.labels.numel())


class Training:
    """A learner and its batches as `training/trainer.py` has them; `step` is one update."""

    def __init__(self, recipe: Recipe, sentences: Sentences, device: torch.device) -> None:
        config = recipe.training
        torch.use_deterministic_algorithms(config.deterministic)
        torch.manual_seed(config.seed)
        task: Task = numbered_task(recipe)
        model = task.build(recipe.model).to(device)
        self.recipe = recipe
        self.learner = Learner(model.train(), task.loss, config, recipe.model.d_model)
        self.source_lengths = sentences.source.lengths()
        layout = task.layout(recipe.data, config.batch_tokens)
        planned = stream(sentences.corpus(task.columns), layout, config.seed, Position())
        self.batches = prefetch(upload(planned, device))
        self.pace = Pace(device)
        self.n_parameters = sum(weight.numel() for weight in parameters_of(model).values())
        self.n_steps = 0
        self.seen: list[_Seen] = []
        self.waited = 0.0

    def step(self) -> int:
        """Learn from the next batch; returns its number of target tokens."""
        start = time.perf_counter()
        _, batch = next(self.batches)
        self.waited += time.perf_counter() - start
        self.n_steps += 1
        self.learner.update(batch, self.n_steps)
        self.pace.keep()
        self.seen.append(_Seen.of(batch))
        return batch.n_labels

    def forget(self) -> None:
        """Exclude everything so far from the figures."""
        self.seen, self.waited = [], 0.0

    def figures(self, seconds: float) -> Row:
        """Return statistics of the batches of so many seconds."""
        n_target = sum(seen.n_labels for seen in self.seen)
        n_source, source_places = 0, sum(seen.source_places for seen in self.seen)
        if source_places:
            n_source = sum(self._source_tokens(seen) for seen in self.seen)
        vocabulary, model = self.recipe.tokenizer.vocabulary, self.recipe.model
        flops = None
        if isinstance(model, TransformerConfig):
            flops = training_flops(model, vocabulary, n_source, n_target) / seconds
        return {
            "source_fill": n_source / source_places if source_places else None,
            "target_fill": n_target / sum(seen.target_places for seen in self.seen),
            "waiting_share": self.waited / seconds,
            "model_flops_per_second": flops,
        }

    def close(self) -> None:
        """Stop the thread that builds batches."""
        self.batches.close()

    def _source_tokens(self, seen: _Seen) -> int:
        """Count a batch's source tokens, the end of every sentence included."""
        return int(self.source_lengths[np.array(seen.records)].sum()) + len(seen.records)


def enough_sentences(recipe: Recipe, n_batches: int, mean_length: float) -> Sentences:
    """Draw pairs for so many batches, with some more to fill the last of them."""
    check_mean_length(recipe, mean_length)
    budget = recipe.training.batch_tokens
    n_pairs = int((n_batches + 4) * budget / mean_length) + max(4096, budget // 4)
    return draw_sentences(min(n_pairs, MOST_PAIRS), recipe, mean_length, recipe.training.seed)


def bench_train(
    name: str,
    overrides: Mapping[str, Any],
    device: torch.device,
    *,
    steps: int | None = None,
    warmup: int | None = None,
    mean_length: float = MEAN_LENGTH,
    reporter: Reporter,
) -> Report:
    """Measure training steps of a recipe after a warm-up."""
    usual = GPU if device.type == "cuda" else CPU
    recipe = settled_recipe(name, {**usual.overrides, **overrides})
    steps, warmup = steps or usual.steps, warmup or usual.warmup
    sentences = enough_sentences(recipe, warmup + steps, mean_length)
    forget_peak(device)
    start = time.perf_counter()
    with (
        closing(Training(recipe, sentences, device)) as training,
        reporter.bar("training", warmup + steps) as advance,
    ):
        training.step()
        wait_for(device)
        first = time.perf_counter() - start
        time_stretch(training.step, warmup - 1, device)
        advance(warmup, "")
        training.forget()
        stretches: list[Stretch] = []
        for n_steps in split_evenly(steps, STRETCHES):
            stretches.append(time_stretch(training.step, n_steps, device))
            advance(n_steps, f"{stretches[-1].n_tokens / stretches[-1].seconds:,.0f} tokens/s")
    row = {
        "parameters": training.n_parameters,
        "batch_tokens": recipe.training.batch_tokens,
        "steps": steps,
        **speed(stretches),
        **training.figures(sum(stretch.seconds for stretch in stretches)),
        "peak_memory_bytes": peak_memory(device),
        "seconds_to_first_step": first,
    }
    settings = settings_of(name, recipe, steps=steps, warmup=warmup, mean_length=mean_length)
    note = f"generated sentences of {mean_length:g} tokens on average; padding is not counted"
    return Report("train", describe(device), settings, [row], [note])
