"""Attention weights as a small picture for notebooks, in the colours of the explorer page."""

from collections.abc import Sequence
from functools import cache
from html import escape

import numpy as np
import numpy.typing as npt
from jaxtyping import Float
from torch import Tensor

Array = npt.NDArray[np.float64]

STOPS = ("#f1f4f4", "#b5dadb", "#5fabbc", "#1f6f98", "#0c2a52")
"""From no weight to the largest, as in web/shared/colours.js."""

WORD_STARTS = ("▁", "Ġ")
SPECIALS = ("<s>", "</s>", "<pad>", "<unk>", "<mask>")

CELL = 18
MOST_TOKENS = 60
"""Of either side; what is beyond is left out of a picture in a notebook."""


def shown_tokens(tokens: Sequence[str]) -> list[str]:
    """Return tokens for display: without word marks, and with a dot before a part of a word."""
    is_marked = any(token.startswith(WORD_STARTS) for token in tokens)
    return [
        f"·{token}" if is_marked and number > 0 and _continues(token) else _unmarked(token)
        for number, token in enumerate(tokens)
    ]


def _continues(token: str) -> bool:
    is_word = any(character.isalnum() for character in token)
    return is_word and not token.startswith(WORD_STARTS) and token not in SPECIALS


def _unmarked(token: str) -> str:
    return token[1:] or "␣" if token.startswith(WORD_STARTS) else token or "␣"


@cache
def weight_colours() -> list[str]:
    """List the 256 colours of the page's scale; a weight has the colour at its square root.

    The stops are mixed in OKLab and placed by lightness, so that equal steps appear equal.
    """
    stops = np.array([_oklab(stop) for stop in STOPS])
    places = (stops[:, 0] - stops[0, 0]) / (stops[-1, 0] - stops[0, 0])
    levels = np.linspace(0, 1, 256)
    mixed = np.stack([np.interp(levels, places, axis) for axis in stops.T], axis=1)
    return [_hex(colour) for colour in mixed]


# Matrices of Björn Ottosson's OKLab, https://bottosson.github.io/posts/oklab/
TO_LMS = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
FROM_LMS = np.array(
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
)


def _oklab(colour: str) -> Array:
    values = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    return np.asarray(FROM_LMS @ np.cbrt(TO_LMS @ linear))


def _hex(oklab: Array) -> str:
    linear = (np.linalg.inv(TO_LMS) @ (np.linalg.inv(FROM_LMS) @ oklab) ** 3).clip(0, 1)
    values = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return "#" + "".join(f"{round(255 * value):02x}" for value in values.tolist())


def map_html(
    weights: Float[Tensor, "T S"], rows: Sequence[str], columns: Sequence[str], caption: str
) -> str:
    """Draw a matrix of weights as HTML with an SVG picture, for notebooks."""
    weights, colours = weights[:MOST_TOKENS, :MOST_TOKENS], weight_colours()
    n_rows, n_columns = weights.shape
    left = 16 + 7 * max(map(len, rows), default=0)
    top = 16 + 6 * max(map(len, columns), default=0)
    width, height = left + CELL * n_columns + top, top + CELL * n_rows + 4
    parts = []
    for row, name in enumerate(rows[:n_rows]):
        x, y = left - 6, top + CELL * row + 13
        parts.append(f'<text x="{x}" y="{y}" text-anchor="end">{escape(name)}</text>')
    for column, name in enumerate(columns[:n_columns]):
        x, y = left + CELL * column + 12, top - 6
        parts.append(f'<text transform="translate({x} {y}) rotate(-50)">{escape(name)}</text>')
    for row, line in enumerate(weights.tolist()):
        for column, weight in enumerate(line):
            colour = colours[round(255 * min(max(weight, 0.0), 1.0) ** 0.5)]
            x, y = left + CELL * column, top + CELL * row
            parts.append(f'<rect x="{x}" y="{y}" width="17" height="17" fill="{colour}"/>')
    return (
        f"<figure><figcaption>{escape(caption)}</figcaption>"
        f'<svg width="{width}" height="{height}" font-family="sans-serif" font-size="12" '
        f'fill="currentColor">{"".join(parts)}</svg></figure>'
    )
