"""How many target tokens a step has."""

from itertools import islice
from pathlib import Path

from attendo.bundle import load_task
from attendo.data.batches import Position, stream
from attendo.training.prepare import open_prepared

SAMPLE = 64
"""Batches from which the mean number of tokens of a step is taken."""


def tokens_per_step(run: Path) -> float:
    """Count the target tokens of a step: the mean of the first ones."""
    recipe, task = load_task(run)
    corpus = open_prepared(run / "state" / "data", task, recipe).train
    layout = task.layout(recipe.data, recipe.training.batch_tokens)
    planned = stream(corpus, layout, recipe.training.seed, Position())
    counts = [batch.n_labels for _, batch in islice(planned, SAMPLE)]
    return sum(counts) / len(counts)
