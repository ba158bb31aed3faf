"""The recipe of a benchmark: settled before there is any data to look at."""

from collections.abc import Mapping
from typing import Any

from attendo.config import Recipe, load_recipe
from attendo.errors import ConfigError, command_line
from attendo.training.kinds import check_kinds


def settled_recipe(name: str, overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe and refuse one that leaves its settings open."""
    recipe = load_recipe(name, overrides)
    if recipe.auto:
        raise ConfigError(
            f"the recipe {name!r} chooses its settings by looking at data, and here is none; "
            f"name another ('{command_line('recipes')}' lists them)"
        )
    check_kinds(recipe)
    return recipe


def settings_of(name: str, recipe: Recipe, **measured: Any) -> dict[str, Any]:
    """Say with what the figures were made."""
    sections = recipe.model_dump(mode="json", include={"model", "training", "decoding"})
    return {
        "recipe": name,
        **measured,
        "vocabulary": recipe.tokenizer.vocabulary,
        "max_length": recipe.data.max_length,
        "layout": recipe.data.layout,
        **sections,
    }
