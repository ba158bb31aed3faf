"""The training curve as a picture."""

import math
from pathlib import Path
from typing import Any

from attendo.files import replacing
from attendo.training.log import Entry


def draw_curve(entries: list[Entry], path: Path) -> None:
    """Draw training loss, validation loss and validation BLEU against the steps."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    _line(axes, entries, "loss", label="training loss", color="#9db7d5", linewidth=1)
    _line(axes, entries, "valid_loss", label="validation loss", color="#1f4e8c", marker="o")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats a token)")
    axes.grid(alpha=0.25)
    handles = axes.get_lines()
    scores = [entry["valid_bleu"] for entry in entries if "valid_bleu" in entry]
    if scores:
        right = axes.twinx()
        _line(right, entries, "valid_bleu", label="validation BLEU", color="#c2571a", marker="s")
        right.set_ylabel("BLEU")
        right.set_ylim(0, min(100, 10 * math.ceil((max(scores) + 1) / 10)))
        handles = [*handles, *right.get_lines()]
    axes.legend(handles=handles, loc="center right", frameon=False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _line(axes: Any, entries: list[Entry], key: str, **style: Any) -> None:
    points = [(entry["step"], entry[key]) for entry in entries if key in entry]
    if points:
        axes.plot(*zip(*points, strict=True), markersize=4, **style)
