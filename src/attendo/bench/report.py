"""What a benchmark found, as one table or one JSON object."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Report:
    """Figures, with all that they depend on."""

    bench: str
    machine: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row]
    notes: Sequence[str] = ()
    """What a reader must know in order not to misread the figures."""

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
    "weights": Column("weights", ","),
    "pairs": Column("pairs", ","),
    "steps": Column("steps", ","),
    "seconds": Column("seconds", ",.2f"),
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
"""Columns of a table that goes to a file, where there is no terminal whose width would count."""


def print_report(report: Report, *, as_json: bool) -> None:
    """Print the table, and under it what must be known to read it."""
    from rich.console import Console

    if as_json:
        print(report.to_json())
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    machine = report.machine
    console.print(f"{machine['hardware']}, torch {machine['torch']}", soft_wrap=True)
    console.print(_standing(report.rows[0]) if len(report.rows) == 1 else _lying(report.rows))
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True)


def _shown(rows: Sequence[Row]) -> list[str]:
    """Name the figures that at least one row has."""
    return [key for key in COLUMNS if any(row.get(key) is not None for row in rows)]


def _cell(row: Row, key: str) -> str:
    value, column = row.get(key), COLUMNS[key]
    if value is None:
        return "–"
    if isinstance(value, int | float) and column.unit != 1:
        value = value / column.unit
    return format(value, column.form)


def _lying(rows: Sequence[Row]) -> Any:
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


def _standing(row: Row) -> Any:
    """Show a single row as lines, which fit on any terminal."""
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for key in _shown([row]):
        table.add_row(COLUMNS[key].title, _cell(row, key))
    return table
