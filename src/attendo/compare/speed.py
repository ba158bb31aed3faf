"""How long a step takes: the real model on the real batches, before the training begins."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

import torch

from attendo.bench.machine import Pace
from attendo.bench.timing import time_stretch
from attendo.bundle import load_task
from attendo.data.batches import Position, stream
from attendo.data.prefetch import prefetch
from attendo.data.upload import upload
from attendo.models import build_model
from attendo.training.learner import Learner, without_tiny_numbers
from attendo.training.prepare import open_prepared

WARM_UP = {"cpu": 2, "cuda": 20}
"""Steps that are not counted: the first ones ask for memory, and on a GPU compile."""

STRETCH = {"cpu": 3, "cuda": 10}
"""Steps that are timed as a whole."""

SAMPLE = 64
"""Batches from which the mean number of tokens of a step is taken."""


def seconds_per_step(run: Path, device: torch.device, at_least: float) -> float:
    """Learn for some seconds, forget it, and say how long a step took; the run stays untouched."""
    with without_tiny_numbers(device), _steps(run, device) as step:
        time_stretch(step, WARM_UP[device.type], device)
        n_steps, seconds = 0, 0.0
        while seconds < at_least:
            stretch = time_stretch(step, STRETCH[device.type], device)
            n_steps, seconds = n_steps + stretch.n_steps, seconds + stretch.seconds
    return seconds / n_steps


@contextmanager
def _steps(run: Path, device: torch.device) -> Iterator[Callable[[], int]]:
    """Build learner and batches as a training does; yields one update."""
    recipe, task = load_task(run)
    config = recipe.training
    torch.manual_seed(config.seed)
    model = build_model(recipe.model, task.source.size, task.target.size).to(device).train()
    learner = Learner(model, task, config, recipe.model.d_model)
    corpus = open_prepared(run / "state" / "data", task, recipe).train
    layout = task.layout(recipe.data, config.batch_tokens)
    pace = Pace(device)
    with closing(
        prefetch(upload(stream(corpus, layout, config.seed, Position()), device))
    ) as batches:

        def step() -> int:
            _, batch = next(batches)
            learner.update(batch, 1)
            pace.keep()
            return batch.n_labels

        yield step


def tokens_per_step(run: Path) -> float:
    """Count the target tokens of a step: the mean of the first ones."""
    recipe, task = load_task(run)
    corpus = open_prepared(run / "state" / "data", task, recipe).train
    layout = task.layout(recipe.data, recipe.training.batch_tokens)
    planned = stream(corpus, layout, recipe.training.seed, Position())
    counts = [batch.n_labels for _, batch in islice(planned, SAMPLE)]
    return sum(counts) / len(counts)
