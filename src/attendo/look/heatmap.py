"""Attention as an image: one layer or head, in the colours of the explorer page."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from attendo.files import replacing
from attendo.models.maps import shown_tokens, weight_colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_PIXELS = 6000
"""Of a side of an image."""

TICKS = (0, 0.05, 0.25, 0.5, 1)


def draw_heatmap(
    weights: Float[Tensor, "T S"],
    columns: list[str],
    rows: list[str],
    title: str,
    path: Path,
    row_label: str = "target",
    column_label: str = "source",
) -> None:
    """Draw a matrix of attention weights with its tokens as PNG or SVG."""
    from matplotlib.colors import ListedColormap, PowerNorm
    from matplotlib.figure import Figure

    width, height = 2.2 + 0.42 * len(columns), 1.8 + 0.34 * len(rows)
    figure = Figure(figsize=(max(5.0, width), max(3.0, height)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        weights.cpu().numpy(),
        cmap=ListedColormap(weight_colours()),
        norm=PowerNorm(0.5, vmin=0, vmax=1),  # square root, as on the page
        aspect="auto",
    )
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    # A token such as "$$" is no formula.
    axes.set_xticks(range(len(columns)), shown_tokens(columns), parse_math=False)
    axes.set_yticks(range(len(rows)), shown_tokens(rows), parse_math=False)
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.set_xlabel(column_label, labelpad=8, style="italic")
    axes.set_ylabel(row_label, labelpad=8, style="italic")
    axes.set_title(title, fontsize=11, pad=12)
    bar = figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8, ticks=TICKS)
    bar.ax.set_yticklabels([str(tick) for tick in TICKS])
    save_figure(figure, path)


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG or SVG."""
    with replacing(path) as temporary, warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        dpi = min(150.0, MOST_PIXELS / max(figure.get_size_inches()))
        figure.savefig(temporary, format=path.suffix[1:] or "png", dpi=dpi)
