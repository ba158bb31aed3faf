"""Reading recipes from presets and files, and writing them."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from attendo.config.model import family_of
from attendo.config.recipe import Recipe, make_recipe
from attendo.errors import ConfigError, did_you_mean

MOST_BYTES = 1 << 20
"""Largest recipe file."""


def load_recipe(
    name: str, overrides: Mapping[str, Any] | None = None, *, allow_like: bool = True
) -> Recipe:
    """Read a recipe.

    Args:
        name: The name of a recipe (`attendo recipes` lists them) or the path of a TOML file.
        overrides: Settings that replace those of the recipe.
        allow_like: Whether the recipe may name another one as `like`. That of a run folder is
            complete and may come from a stranger, so it must not make other files be read.

    Raises:
        ConfigError: There is no such recipe, or one of its settings is wrong.

    >>> attendo.load_recipe("small", {"training.steps": 2000}).training.steps
    2000
    """
    values = _whole_values(name) if allow_like else _read_values(name)
    if "like" in values:
        raise ConfigError(f"recipe {name!r}: the recipe of a run must not be like another one")
    _set_all(values, overrides or {})
    return make_recipe(values, origin=f"recipe {name!r}")


def given_settings(name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tree of settings that the user has given, not a preset."""
    values = _whole_values(name, read=lambda one: _read_values(one) if _is_file_name(one) else {})
    _set_all(values, overrides or {})
    return values


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """Convert `a.b=c` to {"a.b": c}; c is parsed as TOML, or else kept as a string."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting!r}: expected key=value, such as model.d_model=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        except RecursionError:
            raise ConfigError(f"--set {key}: the value is nested too deeply") from None
        overrides[key.strip()] = value
    return overrides


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML; reading it back gives the same recipe.

    What `auto` has yet to choose is left out.
    """
    values = recipe.model_dump(exclude_none=True, exclude_unset=recipe.auto, mode="json")
    return tomli_w.dumps(values)


def presets() -> dict[str, str]:
    """Return the name and description of every preset."""
    folder = resources.files("attendo") / "recipes"
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text(encoding="utf-8")).get(
            "description", ""
        )
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def presets_by_task() -> dict[str, dict[str, str]]:
    """Return the same, grouped by the task that a preset is for."""
    grouped: dict[str, dict[str, str]] = {}
    for name, description in presets().items():
        task = _whole_values(name).get("task", Recipe.model_fields["task"].default)
        grouped.setdefault(task, {})[name] = description
    return dict(sorted(grouped.items(), key=lambda item: -len(item[1])))


def _whole_values(
    name: str, below: tuple[str, ...] = (), read: Callable[[str], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Read a recipe; one that is `like` another lists only where it differs."""
    if name in below:
        raise ConfigError(f"recipes are like each other in a circle: {' -> '.join((*below, name))}")
    values = (read or _read_values)(name)
    other = values.pop("like", None)
    if other is None:
        return values
    if not isinstance(other, str):
        raise ConfigError(f"recipe {name!r}: like = {other!r}: expected the name of a recipe")
    if _is_file_name(other) and Path(other).exists() and not Path(other).is_file():
        raise ConfigError(f"recipe {name!r}: like = {other!r}: expected a preset or a regular file")
    return _changed(_whole_values(other, (*below, name), read), values)


def _changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge section by section; a model of another family inherits nothing from the first."""
    result = {**values, **changes}
    for name, section in changes.items():
        base = values.get(name)
        is_other = name == "model" and _is_other_family(section, base)
        if isinstance(section, dict) and isinstance(base, dict) and not is_other:
            result[name] = _changed(base, section)
    return result


def _is_other_family(section: Any, base: Any) -> bool:
    return isinstance(section, dict) and "kind" in section and family_of(section) != family_of(base)


def _is_file_name(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def _read_values(name: str) -> dict[str, Any]:
    preset = resources.files("attendo") / "recipes" / f"{name}.toml"
    try:
        with (Path(name) if _is_file_name(name) else preset).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(
                f"recipe file {name!r} is larger than {MOST_BYTES:,} bytes: not a recipe"
            )
        return tomllib.loads(content.decode())
    except FileNotFoundError:
        if _is_file_name(name):
            raise ConfigError(f"recipe file {name!r} does not exist") from None
        raise ConfigError(
            f"no recipe is called {name!r}; {did_you_mean(name, presets())} (or give a .toml file)"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe file {name!r} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"recipe file {name!r} is nested too deeply: not a recipe") from None
    except OSError as error:
        raise ConfigError(f"recipe file {name!r} cannot be read: {error.strerror}") from None


def _set_all(values: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Replace settings; as in `_changed`, a model of another family inherits nothing."""
    model = {"kind": overrides["model.kind"]} if "model.kind" in overrides else {}
    if _is_other_family(model, values.get("model")):
        values["model"] = {}
    for key, value in overrides.items():
        _set(values, key, value)


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {section!r} is a value, not a section")
        values = inner
    values[last] = value
