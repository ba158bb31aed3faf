"""The settings of a benchmark and its results, as a table or one JSON object."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from attendo.config import Recipe, load_recipe
from attendo.errors import ConfigError, command_line
from attendo.training.kinds import check_kinds

Row = dict[str, Any]


def settled_recipe(name: str, overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe and refuse one that leaves its settings open."""
    recipe = load_recipe(name, overrides)
    if recipe.auto:
        raise ConfigError(
            f"the recipe {name!r} chooses its settings from the data, but a benchmark has none; "
            f"give another ('{command_line('recipes')}' lists them)"
        )
    check_kinds(recipe)
    return recipe


def settings_of(name: str, recipe: Recipe, **measured: Any) -> dict[str, Any]:
    """Return the settings that the results depend on."""
    sections = recipe.model_dump(mode="json", include={"model", "training", "decoding"})
    return {
        "recipe": name,
        **measured,
        "vocabulary": recipe.tokenizer.vocabulary,
        "max_length": recipe.data.max_length,
        "layout": recipe.data.layout,
        **sections,
    }


@dataclass(frozen=True, slots=True)
class Report:
    """Results, with all that they depend on."""

    bench: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row]
    notes: Sequence[str] = ()
    """What is needed to interpret the figures."""

    def to_json(self) -> str:
        """Write everything as one JSON object."""
        return json.dumps(asdict(self), ensure_ascii=False)


class Column(NamedTuple):
    """How a figure is shown."""

    title: str
    form: str = ""
    """As `format` takes it."""
    unit: float = 1
    """What the stored number is divided by."""


COLUMNS = {
    "system": Column("system"),
    "stage": Column("stage"),
    "search": Column("search"),
    "batch_size": Column("batch size", ","),
    "batch_tokens": Column("batch tokens", ","),
    "parameters": Column("parameters", ","),
    "pairs": Column("pairs", ","),
    "steps": Column("steps", ","),
    "seconds": Column("seconds", ",.2f"),
    "cpu_seconds": Column("CPU s", ",.2f"),
    "pairs_per_second": Column("pairs/s", ",.0f"),
    "sentences_per_second": Column("sentences/s", ",.2f"),
    "tokens_per_second": Column("target tokens/s", ",.0f"),
    "tokens_per_second_low": Column("lowest", ",.0f"),
    "tokens_per_second_high": Column("highest", ",.0f"),
    "speedup_of_attendo": Column("attendo ×", ".2f"),
    "milliseconds_per_step": Column("ms/step", ",.1f"),
    "milliseconds_per_batch": Column("ms/batch", ",.1f"),
    "source_fill": Column("source fill", ".1%"),
    "target_fill": Column("target fill", ".1%"),
    "waiting_share": Column("waiting for data", ".1%"),
    "peak_memory_bytes": Column("peak GiB", ",.2f", unit=2**30),
    "seconds_to_first_step": Column("first step s", ",.2f"),
    "seconds_of_warm_up": Column("warm-up s", ",.1f"),
    "shapes": Column("shapes", ","),
    "model_flops_per_second": Column("model TFLOP/s", ",.3f", unit=1e12),
}
"""Every figure that any benchmark has, in the order of a table."""

WIDTH = 200
"""Columns of a table that is written to a file, without a terminal that limits its width."""


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the table, followed by the settings."""
    from rich.console import Console

    if as_json:
        print(report.to_json())
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    machine = report.machine
    console.print(f"{machine['hardware']}, torch {machine['torch']}", soft_wrap=True)
    console.print(_one_row(report.rows[0]) if len(report.rows) == 1 else _table(report.rows))
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True)


def _shown(rows: Sequence[Row]) -> list[str]:
    """Return the names of the figures that at least one row has."""
    return [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]


def _cell(row: Row, key: str) -> str:
    value, column = row.get(key), COLUMNS[key]
    if value is None:
        return "–"
    if isinstance(value, int | float) and column.unit != 1:
        value = value / column.unit
    return format(value, column.form)


def _table(rows: Sequence[Row]) -> Any:
    from rich.table import Table

    keys = _shown(rows)
    table = Table(box=None)
    for key in keys:
        is_name = isinstance(rows[0].get(key), str)
        table.add_column(
            COLUMNS[key].title, justify="left" if is_name else "right", no_wrap=is_name
        )
    for row in rows:
        table.add_row(*(_cell(row, key) for key in keys))
    return table


def _one_row(row: Row) -> Any:
    """Format a single row as lines, which fit on any terminal."""
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for key in _shown([row]):
        table.add_row(COLUMNS[key].title, _cell(row, key))
    return table
