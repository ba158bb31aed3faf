"""The same model as others have it: what ours is measured against."""

from collections.abc import Iterable

from attendo.config import Recipe
from attendo.errors import ConfigError

SAME = {
    "attention": ("dot",),
    "positions": ("sinusoidal",),
    "feed_forward": ("relu", "gelu"),
    "norm": ("layer",),
    "tied": ("all",),
}
"""The model settings with which every peer can be built in the same sizes."""


def check_comparable(recipe: Recipe, keys: Iterable[str] = SAME) -> None:
    """Raise an error if the peers cannot build a model with these settings."""
    if recipe.model.kind != "transformer":
        raise ConfigError(
            f"the peers are Transformers, but the recipe has model.kind = {recipe.model.kind!r}"
        )
    for key in keys:
        known = SAME[key]
        if getattr(recipe.model, key) not in known:
            raise ConfigError(
                f"the peers have no model.{key} = {getattr(recipe.model, key)!r}; "
                f"set it to {' or '.join(known)}"
            )
