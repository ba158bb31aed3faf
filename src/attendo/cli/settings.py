"""Every setting of a recipe, with its type, limits, default and meaning, from `attendo.config`."""

import inspect
import json
import textwrap
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from attendo.config import FAMILIES, Paths, Recipe

WIDTH = 80
"""Columns of the text for a terminal."""


class Setting(NamedTuple):
    """One key of a recipe."""

    name: str
    type: str
    default: str
    meaning: str


def find_settings() -> dict[str, list[Setting]]:
    """Return the settings of every section of a recipe, by the title of the section."""
    like = "A recipe, by name or file, whose settings hold where this one has none."
    sections = {"Top level": [Setting("like", "text", "none", like)]}
    for name, field in Recipe.model_fields.items():
        if name == "model":
            for family, config in FAMILIES.items():
                sections[f'[model], kind = "{family}"'] = _settings_of(config)
        elif inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
            sections[f"[{name}]"] = _settings_of(field.annotation)
        else:
            sections["Top level"].append(_setting(name, field))
    return sections


def _settings_of(section: type[BaseModel]) -> list[Setting]:
    return [_setting(name, field) for name, field in section.model_fields.items()]


def _setting(name: str, field: FieldInfo) -> Setting:
    default = field.default
    limits = [text for limit in field.metadata for text in _limit(limit)]
    return Setting(
        name,
        ", ".join([_type(field), *limits]),
        "none" if default in (None, ()) else json.dumps(default, ensure_ascii=False),
        field.description or "",
    )


def _type(field: FieldInfo) -> str:
    if field.annotation == Paths:
        return "file or list of files"
    if get_origin(field.annotation) is Literal:
        return " or ".join(map(json.dumps, get_args(field.annotation)))
    if field.annotation is str and field.default:
        return "kind"
    names: dict[Any, str] = {int: "integer", float: "number", bool: "true or false"}
    return names.get(field.annotation, "text")


def _limit(limit: Any) -> Iterator[str]:
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        if (bound := getattr(limit, name, None)) is not None:
            yield f"{sign} {bound}"


def settings_text() -> str:
    """Return the reference of the settings for a terminal."""
    lines = []
    for title, settings in find_settings().items():
        lines.append(title)
        for one in settings:
            lines.append(f"  {one.name} ({one.type}; default: {one.default})")
            lines += textwrap.wrap(
                one.meaning, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
        lines.append("")
    return "\n".join(lines)
