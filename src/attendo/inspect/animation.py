"""A translation being made: each word, what it looks at, and what else it might have been."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attendo.errors import DataError
from attendo.files import replacing
from attendo.inspect.aggregates import mean_of_heads
from attendo.inspect.looking import Candidate, Looked, layers_of, sharpest

MILLISECONDS = 900
"""That each word is shown."""

LAST_MILLISECONDS = 3000

MOST_TOKENS = 50
"""Of either side: more would not fit beside each other."""

INK, FAINT, ACCENT = "#1c2733", "#9aa7b2", "#14527d"
N_BARS = 4


def draw_decoding(looked: Looked, candidates: list[list[Candidate]], path: Path) -> None:
    """Draw the words one by one, as an animated GIF."""
    from PIL import Image

    layers = layers_of(looked, "cross")
    weights = mean_of_heads(layers[sharpest(layers)])
    n_steps = len(looked.reading.target_tokens)
    if max(n_steps, len(looked.reading.source_tokens)) > MOST_TOKENS:
        raise DataError(f"a moving picture has room for {MOST_TOKENS} tokens: take a shorter text")
    frames = [
        Image.fromarray(_frame(looked, weights, candidates[step], step)).quantize(64)
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


def _frame(
    looked: Looked, weights: Float[Tensor, "T S"], best: list[Candidate], step: int
) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Draw the moment in which one token is chosen."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    source, target = looked.reading.source_tokens, looked.reading.target_tokens
    places = [_places(tokens) for tokens in (source, target)]
    width = max(places[0][-1], places[1][-1]) + 1.5
    figure = Figure(figsize=(max(6.0, 0.115 * width), 4.0), facecolor="white")
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.01, 0.36, 0.98, 0.62))
    axes.set_xlim(-2, width + 1)
    axes.set_ylim(-0.25, 1.25)
    axes.axis("off")
    for token, place in zip(source, places[0], strict=True):
        axes.text(place, 1.06, _plain(token), ha="center", color=INK, parse_math=False)
    for number in range(step + 1):
        is_new = number == step
        style: Any = {"weight": "bold", "color": ACCENT} if is_new else {"color": INK}
        text = _plain(target[number])
        axes.text(places[1][number], -0.12, text, ha="center", parse_math=False, **style)
        for there, weight in zip(places[0], weights[number].tolist(), strict=True):
            _ribbon(axes, places[1][number], there, weight, ACCENT if is_new else FAINT)
    _bars(figure.add_axes((0.3, 0.05, 0.4, 0.27)), best[:N_BARS], target[step])
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _places(tokens: list[str]) -> list[float]:
    """Lay tokens out beside each other, each as wide as it is long; gives their middles."""
    ends = np.cumsum([1.5 * len(_plain(token)) + 1.4 for token in tokens])
    starts = np.concatenate(([0.0], ends[:-1]))
    return [float(middle) for middle in (starts + ends) / 2]


def _ribbon(axes: Any, low: float, high: float, weight: float, colour: str) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Curve

    if weight < 0.03:
        return
    points = [(low, 0.02), (low, 0.5), (high, 0.5), (high, 1.0)]
    curve = Curve(points, [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4])
    strength = weight if colour == ACCENT else 0.35 * weight
    axes.add_patch(
        PathPatch(curve, fill=False, lw=6 * weight**0.7, color=colour, alpha=min(1.0, strength))
    )


def _bars(axes: Any, best: list[Candidate], chosen: str) -> None:
    """Show what else might have come, and how likely it was."""
    names = [_plain(candidate.token) for candidate in best]
    values = [candidate.probability for candidate in best]
    colours = [ACCENT if candidate.token == chosen else FAINT for candidate in best]
    axes.barh(range(len(best)), values, color=colours, height=0.6)
    axes.set_yticks(range(len(best)), names, color=INK, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xticks([])
    axes.tick_params(length=0)
    for side in ("top", "right", "bottom", "left"):
        axes.spines[side].set_visible(False)
    for place, value in enumerate(values):
        axes.text(value + 0.02, place, f"{value:.0%}", va="center", fontsize=9, color=INK)


def _plain(token: str) -> str:
    """Take off the mark that says that a word begins here."""
    return token.removeprefix("▁").removeprefix("Ġ") or "␣"
