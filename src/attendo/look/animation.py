"""A translation token by token as an animated GIF: attention and the candidates of each step."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attendo.errors import ConfigError, DataError
from attendo.files import replacing
from attendo.look.aggregates import mean_of_heads
from attendo.look.heads import NAMES
from attendo.look.record import Candidate, RecordedText, sharpest
from attendo.models.maps import shown_tokens, weight_colours

MILLISECONDS, LAST_MILLISECONDS = 900, 3000
"""How long a frame is shown."""

MOST_TOKENS = 50
"""Of either side: more do not fit beside each other."""

INK, QUIET, CURVE = "#1a2129", "#56606c", "#12507a"
"""As on the page."""

N_BARS = 4


def draw_decoding(recorded: RecordedText, candidates: list[list[Candidate]], path: Path) -> None:
    """Draw the target tokens one by one, as an animated GIF."""
    from PIL import Image

    if not recorded.is_pair:
        raise ConfigError(
            f"{path.name!r}: an animation is of a translation, and this model has only one text; "
            "use .html, .png or .svg"
        )
    n_steps = len(recorded.tokenized.target_tokens)
    if max(n_steps, len(recorded.tokenized.source_tokens)) > MOST_TOKENS:
        raise DataError(
            f"an animation has room for {MOST_TOKENS} tokens: take a shorter text, or write a page"
        )
    weights, caption = _chosen_weights(recorded)
    frames = [
        Image.fromarray(_frame(recorded, weights, caption, candidates[step], step)).quantize(64)
        for step in range(n_steps)
    ]
    durations = [MILLISECONDS] * (n_steps - 1) + [LAST_MILLISECONDS]
    with replacing(path) as temporary:
        frames[0].save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=frames[1:],
            duration=durations,
            loop=0,
            optimize=True,
        )


def _chosen_weights(recorded: RecordedText) -> tuple[Float[Tensor, "T S"] | None, str]:
    """Choose the layer with the lowest entropy; a model without attention has no weights."""
    layers = recorded.weights["cross"]
    if not layers:
        return None, "This model has no attention"
    layer = sharpest(layers)
    n_heads = len(layers[layer])
    of = f", mean of {n_heads} heads" if n_heads > 1 else ""
    name = NAMES["cross"].capitalize()
    return mean_of_heads(layers[layer]), f"{name}, layer {layer + 1}{of}"


def _frame(
    recorded: RecordedText,
    weights: Float[Tensor, "T S"] | None,
    caption: str,
    best: list[Candidate],
    step: int,
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw the step in which one token is chosen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    source = shown_tokens(recorded.tokenized.source_tokens)
    target = shown_tokens(recorded.tokenized.target_tokens)
    places = [_places(tokens) for tokens in (source, target)]
    width = max(places[0][-1], places[1][-1]) + 1.5
    figure = Figure(figsize=(max(6.4, 0.115 * width + 0.9), 4.6), facecolor="white")
    canvas: Any = FigureCanvasAgg(figure)
    figure.text(0.02, 0.945, caption, color=INK, fontsize=11)
    progress = f"step {step + 1} of {len(target)}"
    figure.text(0.98, 0.945, progress, color=QUIET, fontsize=10, ha="right")
    axes = figure.add_axes((0.1, 0.42, 0.89, 0.48))
    axes.set_xlim(-2, width + 1)
    axes.set_ylim(-0.25, 1.25)
    axes.axis("off")
    left = axes.get_yaxis_transform()
    for name, height in (("source", 1.06), ("target", -0.12)):
        axes.text(-0.09, height, name, color=QUIET, style="italic", transform=left)
    now = weights[step].tolist() if weights is not None else [0.0] * len(source)
    for token, place, weight in zip(source, places[0], now, strict=True):
        _source_token(axes, token, place, weight)
    for number in range(step + 1):
        is_new = number == step
        style: Any = {"weight": "bold", "color": CURVE} if is_new else {"color": INK}
        axes.text(places[1][number], -0.12, target[number], ha="center", parse_math=False, **style)
        if weights is not None:
            for there, weight in zip(places[0], weights[number].tolist(), strict=True):
                _ribbon(axes, places[1][number], there, weight, is_new)
    chosen = recorded.tokenized.target_tokens[step]
    _bars(figure.add_axes((0.3, 0.04, 0.4, 0.27)), best[:N_BARS], chosen)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _places(tokens: list[str]) -> list[float]:
    """Return the middles of tokens that lie beside each other, each as wide as it is long."""
    ends = np.cumsum([1.5 * len(token) + 1.4 for token in tokens])
    starts = np.concatenate(([0.0], ends[:-1]))
    return [float(middle) for middle in (starts + ends) / 2]


def _source_token(axes: Any, token: str, place: float, weight: float) -> None:
    """Write a source token, on the colour of its weight."""
    level = min(max(weight, 0.0), 1.0) ** 0.5
    box = {"facecolor": weight_colours()[round(255 * level)], "edgecolor": "none", "pad": 2.5}
    axes.text(
        place,
        1.06,
        token,
        ha="center",
        color="white" if level > 0.55 else INK,
        bbox=box if weight >= 0.002 else None,
        parse_math=False,
    )


def _ribbon(axes: Any, low: float, high: float, weight: float, is_new: bool) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    if weight < 0.03:
        return
    points = [(low, 0.02), (low, 0.5), (high, 0.5), (high, 1.0)]
    curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    opacity = (0.1 + 0.75 * weight**0.5) * (1 if is_new else 0.15)
    width = 0.75 + 6 * weight
    axes.add_patch(PathPatch(curve, fill=False, lw=width, color=CURVE, alpha=opacity))


def _bars(axes: Any, best: list[Candidate], chosen: str) -> None:
    """Draw the best candidates of a step with their probabilities."""
    values = [candidate.probability for candidate in best]
    colours = [CURVE if candidate.token == chosen else "#8b929b" for candidate in best]
    names = [shown_tokens([candidate.token])[0] for candidate in best]
    axes.set_title("next-token candidates", fontsize=9, color=QUIET, loc="left")
    axes.barh(range(len(best)), values, color=colours, height=0.6)
    axes.set_yticks(range(len(best)), names, color=INK, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    for place, value in enumerate(values):
        axes.text(value + 0.02, place, f"{value:.1%}", va="center", fontsize=9, color=INK)
