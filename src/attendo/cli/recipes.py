"""attendo recipes: what presets there are."""

from typing import Annotated

import typer


def recipes(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Print this preset whole, as TOML.")
    ] = None,
) -> None:
    """List the presets, or print one to start your own from.

    \b
    Examples:
      attendo recipes
      attendo recipes small > my-recipe.toml
    """
    from attendo.config import load_recipe, presets, write_recipe

    if name is not None:
        print(write_recipe(load_recipe(name)), end="")
        return
    descriptions = presets()
    width = max(map(len, descriptions))
    for preset, description in descriptions.items():
        print(f"{preset:<{width}}  {description}")
