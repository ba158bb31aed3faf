"""Attention as a picture: which source tokens each target token took its meaning from."""

import warnings
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from attendo.files import replacing


def draw_heatmap(
    weights: Float[Tensor, "T S"], source: list[str], target: list[str], title: str, path: Path
) -> None:
    """Draw a matrix of attention weights, source tokens across, target tokens down, as PNG."""
    from matplotlib.figure import Figure

    width, height = 2.2 + 0.42 * len(source), 1.8 + 0.34 * len(target)
    figure = Figure(figsize=(max(5.0, width), max(3.0, height)), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(weights.cpu().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.xaxis.tick_top()
    # A token such as "$$" is no formula.
    axes.set_xticks(range(len(source)), source, parse_math=False)
    axes.set_yticks(range(len(target)), target, parse_math=False)
    for label in axes.get_xticklabels():
        label.set(rotation=60, ha="left", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.set_xlabel("source")
    axes.set_ylabel("target")
    axes.set_title(title, fontsize=11, pad=12)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8)
    with replacing(path) as temporary, warnings.catch_warnings():
        # A character that the font lacks is drawn as a box, and that says it all.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(temporary, format="png", dpi=150)
