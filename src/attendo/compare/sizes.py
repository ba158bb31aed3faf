"""Models of one size: the width with which a model has a given number of parameters."""

import math
from bisect import bisect_left
from collections.abc import Callable
from functools import cache

from attendo.config import AnyModelConfig, TransformerConfig
from attendo.errors import ConfigError

MULTIPLES = (8, 2)
"""Of which widths are: of 8, as matrix units are slow with others; of 2 where that is coarse."""

NEAR = 0.03
"""Relative difference from the given number of parameters that is accepted."""

WIDEST = 2**14
"""Width beyond which a number of parameters is taken for a mistake."""

Count = Callable[[AnyModelConfig], int]
"""Returns the number of parameters of a model."""


def resized(name: str, model: AnyModelConfig, n_weights: int, count: Count) -> AnyModelConfig:
    """Make a model wider or narrower until it has so many weights, as nearly as widths allow.

    All widths change alike, the inner ones of feed-forward networks within a half; layers,
    heads and everything else stay as they are.

    Raises:
        ConfigError: Even the narrowest has more, or the widest fewer.
    """

    def miss(found: AnyModelConfig) -> float:
        return abs(count(found) / n_weights - 1)

    for multiple in MULTIPLES:
        around = _around(name, model, n_weights, count, multiple)
        refined = [_refined(one, n_weights, count, multiple) for one in around]
        nearest = min(refined, key=miss)
        if miss(nearest) <= NEAR:
            break
    return nearest


def _around(
    name: str, model: AnyModelConfig, n_weights: int, count: Count, multiple: int
) -> list[AnyModelConfig]:
    """Give the next narrower and the next wider model."""
    # Heads share the width, and rotary positions turn pairs.
    shares = 2 * model.n_heads if isinstance(model, TransformerConfig) else 1
    step = widest = math.lcm(multiple, shares)

    @cache
    def weights(width: int) -> int:
        return count(_with_width(model, width, multiple))

    while weights(widest) < n_weights and widest < WIDEST:
        widest *= 2
    if not weights(step) <= n_weights <= weights(widest):
        what, end = ("little", step) if n_weights < weights(step) else ("much", widest)
        raise ConfigError(
            f"--budget-parameters {n_weights} is too {what} for {name!r}, which has "
            f"{weights(end):,} parameters with model.d_model = {end}"
        )
    # The wider a model, the more weights it has, so that the place is found by halving.
    widths = range(step, widest + 1, step)
    place = bisect_left(widths, n_weights, key=weights)
    return [_with_width(model, w, multiple) for w in widths[max(0, place - 1) : place + 1]]


def _with_width(model: AnyModelConfig, width: int, multiple: int) -> AnyModelConfig:
    """Give a model another width, and the inner one of its layers in proportion."""
    if not isinstance(model, TransformerConfig):
        return _changed(model, d_model=width)
    inner = _rounded(model.d_ff * width / model.d_model, multiple)
    return _changed(model, d_model=width, d_ff=inner)


def _refined(model: AnyModelConfig, n_weights: int, count: Count, multiple: int) -> AnyModelConfig:
    """Come nearer by the inner width alone: the width itself must suit the heads."""
    if not isinstance(model, TransformerConfig):
        return model
    here = count(model)
    slope = count(_changed(model, d_ff=model.d_ff + multiple)) - here
    most = model.d_ff / 2
    more = max(-most, min(most, (n_weights - here) * multiple / slope))
    return _changed(model, d_ff=_rounded(model.d_ff + more, multiple))


def _rounded(width: float, multiple: int) -> int:
    return max(1, round(width / multiple)) * multiple


def _changed(model: AnyModelConfig, **widths: int) -> AnyModelConfig:
    return type(model).model_validate({**model.model_dump(), **widths})
