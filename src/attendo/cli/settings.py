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
                for option, inner in _sections_of(config).items():
                    sections[f"[model.{option}]"] = _settings_of(inner)
        elif section := _section(field):
            sections[f"[{name}]"] = _settings_of(section)
        else:
            sections["Top level"].append(_setting(name, field))
    return sections


def _settings_of(section: type[BaseModel]) -> list[Setting]:
    fields = section.model_fields.items()
    return [_setting(name, field) for name, field in fields if not _section(field)]


def _sections_of(section: type[BaseModel]) -> dict[str, type[BaseModel]]:
    fields = section.model_fields.items()
    return {name: inner for name, field in fields if (inner := _section(field))}


def _section(field: FieldInfo) -> type[BaseModel] | None:
    """Return the section that a key stands for, if it is not a setting."""
    kind = field.annotation
    return kind if inspect.isclass(kind) and issubclass(kind, BaseModel) else None


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
    if get_origin(field.annotation) is tuple:
        return "list"
    if get_origin(field.annotation) is Literal:
        return " or ".join(map(json.dumps, get_args(field.annotation)))
    if field.annotation is str and field.default:
        return "kind"
    names: dict[Any, str] = {int: "integer", float: "number", bool: "true or false"}
    return names.get(field.annotation, "text")


def _limit(limit: Any) -> Iterator[str]:
    for name, sign in (
        ("ge", "≥"),
        ("gt", ">"),
        ("le", "≤"),
        ("lt", "<"),
        ("multiple_of", "multiple of"),
    ):
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
