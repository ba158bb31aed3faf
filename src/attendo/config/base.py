"""What all sections of a recipe share: their limits, their rules, the choice from a table."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, model_validator

from attendo.errors import ConfigError, did_you_mean

T = TypeVar("T")

# Far beyond any model that can be trained, so that a wrong digit fails here and not much later.
MOST_TOKENS = 1_000_000
MOST_WIDTH = 65_536
MOST_LAYERS = 1000
MOST_POSITIONS = 1_000_000
MOST_SEED = 2**63 - 1  # the largest integer of TOML

Paths = tuple[str, ...]
"""One or more files that are read one after the other."""


class Section(BaseModel):
    """A part of a recipe: typed, frozen, and closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _one_file_is_a_list_of_one(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        return {
            key: (value,)
            if isinstance(value, str) and key in fields and fields[key].annotation == Paths
            else value
            for key, value in values.items()
        }


def choose(table: Mapping[str, T], kind: str, key: str) -> T:
    """Return the entry of a table with this name."""
    if kind not in table:
        raise ConfigError(f"{key} = {kind!r} is not known; {did_you_mean(kind, table)}")
    return table[kind]
