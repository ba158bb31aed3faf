"""Printing scores."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

MOST_ROWS = 20
"""Of a table."""


def print_scores(card: Mapping[str, Any], *, as_json: bool) -> None:
    """Print the scores of a score card, or the whole card as JSON."""
    from attendo.tasks import TASKS

    if as_json:
        print(json.dumps(card, ensure_ascii=False))
        return
    task = TASKS[card.get("task", "translation")]  # older cards do not name it
    described = task.describe(card)
    width = max(9, *map(len, described))
    for name, value in described.items():
        print(f"{name:<{width}} {value}")
    print_table(task.table(card))
    if "distillation" in card:
        print_table(_teacher_and_student(card["distillation"]))
    if "start" in card:
        _print_start(card["start"], card[task.metric.name], task.metric.title)
    if "scratch" in card:
        scratch, title = card["scratch"], task.metric.title
        value, gain = scratch[task.metric.name], scratch["difference"]
        print(f"from scratch {value:.2f}  ({gain:+.2f} {title} with the start)")


def _teacher_and_student(card: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the scores of teacher and student as a table; the first row has the titles."""
    both = card["teacher"], card["student"]
    return [
        ("", "teacher", "student"),
        ("BLEU", *(f"{one['bleu']:.2f}" for one in both)),
        ("chrF", *(f"{one['chrf']:.2f}" for one in both)),
        ("parameters", *(f"{one['parameters']:,}" for one in both)),
        ("precision", *(one["precision"] for one in both)),
        ("sentences/s", *(f"{one['sentences_per_second']:,.1f}" for one in both)),
    ]


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Print a table with aligned columns; numbers are in all but the first."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *values in rows[: 1 + MOST_ROWS]:
        numbers = (f"{value:>{width}}" for value, width in zip(values, widths[1:], strict=True))
        print(f"  {name:<{widths[0]}}  {'  '.join(numbers)}")
    if len(rows) > 1 + MOST_ROWS:
        print(f"  and {len(rows) - 1 - MOST_ROWS:,} more (--json has all)")


def _print_start(start: Mapping[str, Any], value: float, metric: str) -> None:
    """Print the gain of a training that started from another run, and the loss on its pairs."""
    if "before" in start:
        print(f"before    {start['before']:.2f}  ({value - start['before']:+.2f} {metric})")
    if "own_before" in start:
        lost = start["own_after"] - start["own_before"]
        print(
            f"on the test data of {start['run']}: {start['own_after']:.2f}  ({lost:+.2f} {metric})"
        )
