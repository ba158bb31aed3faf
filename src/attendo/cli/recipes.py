"""attendo recipes: the recipes that are included, and what can be set in them."""

from typing import Annotated

import typer


def _complete_name(incomplete: str) -> list[str]:
    """Return the names of recipes for the completion of the shell."""
    from attendo.config import presets

    return [name for name in presets() if name.startswith(incomplete)]


def recipes(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Print this recipe as TOML.", autocompletion=_complete_name
        ),
    ] = None,
    settings: Annotated[
        bool, typer.Option("--settings", help="Print every setting: type, default, meaning.")
    ] = False,
) -> None:
    """List the recipes by task, print one, or explain the settings.

    \b
    Examples:
      attendo recipes
      attendo recipes small > my-recipe.toml
      attendo recipes --settings
    """
    from attendo.config import load_recipe, presets_by_task, write_recipe

    if settings:
        from attendo.cli.settings import settings_text

        print(settings_text(), end="")
    elif name is not None:
        print(write_recipe(load_recipe(name)), end="")
    else:
        grouped = presets_by_task()
        width = max(len(preset) for descriptions in grouped.values() for preset in descriptions)
        for task, descriptions in grouped.items():
            print(f"{task}:")
            for preset, description in descriptions.items():
                print(f"  {preset:<{width}}  {description}")
