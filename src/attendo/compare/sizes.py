"""Models of one size: how wide a recipe's must be to have so many weights."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

from attendo.config import AnyModelConfig, TransformerConfig
from attendo.errors import ConfigError

MULTIPLE = 8
"""What widths are multiples of: matrix units are slow with others, which would be unfair."""

WIDEST = 2**14
"""Of a model; a wider one is a slip of the pen."""


def resized(
    name: str, model: AnyModelConfig, n_weights: int, count: Callable[[AnyModelConfig], int]
) -> AnyModelConfig:
    """Make a model wider or narrower until it has so many weights, as nearly as widths allow.

    All widths change alike, the inner ones of feed-forward networks within a quarter; layers,
    heads and everything else stay as they are.

    Raises:
        ConfigError: Even the narrowest has more, or the widest fewer.
    """
    # Heads share the width, and rotary positions turn pairs.
    shares = 2 * model.n_heads if isinstance(model, TransformerConfig) else 1
    step = widest = math.lcm(MULTIPLE, shares)

    @cache
    def weights(width: int) -> int:
        return count(_with_width(model, width))

    while weights(widest) < n_weights and widest < WIDEST:
        widest *= 2
    if not weights(step) <= n_weights <= weights(widest):
        what, end = ("little", step) if n_weights < weights(step) else ("much", widest)
        raise ConfigError(
            f"--budget-weights {n_weights} is too {what} for {name!r}, which has "
            f"{weights(end):,} with model.d_model = {end}"
        )
    # The wider a model, the more weights it has, so that the place is found by halving.
    widths = range(step, widest + 1, step)
    place = bisect_left(widths, n_weights, key=weights)
    nearest = min(widths[max(0, place - 1) : place + 1], key=lambda w: abs(weights(w) - n_weights))
    return _refined(_with_width(model, nearest), n_weights, count)


def _with_width(model: AnyModelConfig, width: int) -> AnyModelConfig:
    """Give a model another width, and the inner one of its layers in proportion."""
    if not isinstance(model, TransformerConfig):
        return _changed(model, d_model=width)
    return _changed(model, d_model=width, d_ff=_rounded(model.d_ff * width / model.d_model))


def _refined(
    model: AnyModelConfig, n_weights: int, count: Callable[[AnyModelConfig], int]
) -> AnyModelConfig:
    """Come nearer by the inner width alone: the width itself must suit the heads."""
    if not isinstance(model, TransformerConfig):
        return model
    here = count(model)
    slope = count(_changed(model, d_ff=model.d_ff + MULTIPLE)) - here
    most = model.d_ff / 4
    more = max(-most, min(most, (n_weights - here) * MULTIPLE / slope))
    return _changed(model, d_ff=_rounded(model.d_ff + more))


def _rounded(width: float) -> int:
    return max(1, round(width / MULTIPLE)) * MULTIPLE


def _changed(model: AnyModelConfig, **widths: int) -> AnyModelConfig:
    return type(model).model_validate({**model.model_dump(), **widths})
