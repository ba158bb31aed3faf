"""Attention as a picture: which tokens each token took its meaning from."""

import warnings
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from attendo.errors import ConfigError
from attendo.files import replacing
from attendo.inspect.aggregates import mean_of_heads
from attendo.inspect.heads import NAMES
from attendo.inspect.looking import Looked, layers_of, sharpest

MOST_PIXELS = 6000
"""Of a picture's sides."""


def draw_look(
    looked: Looked,
    path: Path,
    kind: str = "cross",
    layer: int | None = None,
    head: int | None = None,
) -> None:
    """Draw the weights of a layer, or of one of its heads, counted from 0.

    Without a layer, the one that looks most sharply is drawn; without a head, the mean of all.
    """
    layers = layers_of(looked, kind)
    layer = sharpest(layers) if layer is None else layer
    _check("layer", layer, len(layers))
    weights = layers[layer]
    if head is None:
        of, chosen = f"mean of {len(weights)} heads", mean_of_heads(weights)
    else:
        _check("head", head, len(weights))
        of, chosen = f"head {head + 1}", weights[head]
    reading = looked.reading
    looking = reading.source_tokens if kind == "encoder" else reading.target_tokens
    looked_at = looked.target_inputs if kind == "decoder" else reading.source_tokens
    title = f"{NAMES[kind]}, layer {layer + 1}, {of}"
    draw_heatmap(chosen, looked_at, looking, title, path)


def _check(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ConfigError(f"there is no {what} {number + 1}; the model has {count}")


def draw_heatmap(
    weights: Float[Tensor, "T S"], source: list[str], target: list[str], title: str, path: Path
) -> None:
    """Draw a matrix of weights, looked-at tokens across, looking ones down, as PNG or SVG."""
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
    axes.set_xlabel("looked at")
    axes.set_ylabel("looking")
    axes.set_title(title, fontsize=11, pad=12)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.8)
    with replacing(path) as temporary, warnings.catch_warnings():
        # A character that the font lacks is drawn as a box, and that says it all.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        dpi = min(150.0, MOST_PIXELS / max(figure.get_size_inches()))
        figure.savefig(temporary, format=path.suffix[1:] or "png", dpi=dpi)
