"""A confusion matrix as an image: which labels are predicted instead of which."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from attendo.bundle import load_run_recipe
from attendo.config import choose
from attendo.errors import ConfigError
from attendo.look.heatmap import save_figure
from attendo.look.write import PICTURES
from attendo.models.maps import weight_colours
from attendo.tasks import TASKS, LabelTask

MOST_NUMBERS = 20
"""With more labels the cells are too small for numbers."""

MOST_LABELS = 100
"""More could not be read."""


def check_confusion(run: str, path: Path) -> None:
    """Raise an error before the work if there will be nothing to draw, or no format for it."""
    if path.suffix.lower() not in PICTURES:
        raise ConfigError(f"{str(path)!r} has an unknown ending; use {' or '.join(PICTURES)}")
    task = choose(TASKS, load_run_recipe(Path(run)).task, "task")
    if not issubclass(task, LabelTask):
        raise ConfigError(
            f"--confusion is for classifiers, and this run was trained for the task {task.name!r}"
        )


def draw_confusion(confusion: Mapping[str, Mapping[str, int]], path: Path) -> None:
    """Draw a matrix of counts, by label and predicted label, as PNG or SVG.

    A cell is coloured by its share of its row, so that rare labels are seen as well as others.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    labels = sorted({*confusion, *(other for row in confusion.values() for other in row)})
    if len(labels) > MOST_LABELS:
        raise ConfigError(
            f"the matrix of {len(labels)} labels cannot be drawn; expected at most {MOST_LABELS}"
        )
    counts = np.array(
        [[confusion.get(one, {}).get(other, 0) for other in labels] for one in labels]
    )
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    side = 1.8 + 0.5 * len(labels)
    figure = Figure(figsize=(max(4.5, side + 0.9), max(3.4, side)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap=ListedColormap(weight_colours()), vmin=0, vmax=1)
    axes.set_xticks(range(len(labels)), labels, parse_math=False)
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    for label in axes.get_xticklabels():
        label.set(rotation=45, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.set_xlabel("predicted label", style="italic")
    axes.set_ylabel("label", style="italic")
    if len(labels) <= MOST_NUMBERS:
        for (row, column), count in np.ndenumerate(counts):
            colour = "white" if shares[row, column] > 0.4 else "black"
            axes.text(column, row, f"{count:,}", ha="center", va="center", color=colour, size=9)
    figure.colorbar(image, ax=axes, label="share of the label", shrink=0.8)
    save_figure(figure, path)
