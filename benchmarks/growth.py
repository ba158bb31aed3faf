"""How figures grow with the length of a text, as numbers and as a picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attendo.files import replacing

COLORS = ["#333333", "#1f4e8c", "#4f8fd0", "#c2571a", "#3f7d3a", "#8a4fa3"]

APART = 0.05
"""Least distance between two names, as a share of the height."""


class Growth(NamedTuple):
    """A figure, y, at several lengths, n."""

    lengths: Sequence[int]
    figures: Sequence[float]

    def power(self) -> tuple[float, float]:
        """Fit y = a · n^b on logarithms and return a and b."""
        exponent, logarithm = np.polyfit(np.log(self.lengths), np.log(self.figures), 1)
        return float(np.exp(logarithm)), float(exponent)

    def straightness(self) -> float:
        """Fit a straight line and return R², the share of the variance that it explains."""
        figures = np.asarray(self.figures, dtype=float)
        rest = figures - np.polyval(np.polyfit(self.lengths, figures, 1), self.lengths)
        return float(1 - rest.var() / figures.var())


def draw(panels: dict[str, dict[str, Growth]], path: Path) -> None:
    """Draw panels beside each other, each with a line for each name, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * len(panels), 4.5), layout="constrained")
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    all_axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (title, lines) in zip(all_axes, panels.items(), strict=True):
        _panel(axes, title, lines, colors)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def _panel(axes: Any, title: str, lines: dict[str, Growth], colors: dict[str, str]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for name, growth in lines.items():
        axes.plot(growth.lengths, growth.figures, color=colors[name], marker="o", markersize=3)
    lengths = sorted({length for growth in lines.values() for length in growth.lengths})
    axes.set_xticks(
        lengths, [f"{length // 1024}k" if length >= 1024 else str(length) for length in lengths]
    )
    axes.minorticks_off()
    axes.set_xlabel("tokens")
    axes.set_title(title, fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    _label_ends(axes, lines, colors)


def _label_ends(axes: Any, lines: dict[str, Growth], colors: dict[str, str]) -> None:
    """Write the names at the right, as high as the lines end, but never one over the other."""
    to_share = axes.transData + axes.transAxes.inverted()
    ends = {
        name: to_share.transform((growth.lengths[-1], growth.figures[-1]))
        for name, growth in lines.items()
    }
    height = -1.0
    for name in sorted(ends, key=lambda name: ends[name][1]):
        height = max(height + APART, ends[name][1])
        said = f"{name}  n^{lines[name].power()[1]:.2f}" if len(lines[name].lengths) > 1 else name
        axes.annotate(
            said,
            ends[name],
            xycoords="axes fraction",
            xytext=(1.02, height),
            textcoords="axes fraction",
            color=colors[name],
            fontsize=9,
            va="center",
        )
