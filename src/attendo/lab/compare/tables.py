"""The tables of a report: all numbers, significance, and sequential operations."""

from collections.abc import Callable
from typing import NamedTuple

from attendo.lab.compare.findings import Findings
from attendo.lab.compare.measure import Measured
from attendo.lab.compare.significance import Verdict
from attendo.lab.report.document import Table, counted, points, short_names, sized, spent, timed
from attendo.tasks import TASKS


class Column(NamedTuple):
    """A measure: its title, its value, how it is written, and which value is best, if any."""

    title: str
    value: Callable[[Measured], float | None]
    shown: Callable[[Measured], str]
    best: Callable[..., float] | None = None


def _score(value: float, interval: tuple[float, float] | None) -> str:
    """Write a score with half of its interval."""
    return f"{value:.1f} ± {(interval[1] - interval[0]) / 2:.1f}" if interval else f"{value:.1f}"


def _exact(one: Measured) -> float:
    return one.quality.exact if one.quality else 0.0


TRANSLATION = (
    Column(
        "BLEU",
        lambda one: one.score,
        lambda one: _score(one.score, one.scores.get("bleu_interval")),
        max,
    ),
    Column("chrF", lambda one: one.scores["chrf"], lambda one: f"{one.scores['chrf']:.1f}", max),
    Column("exact", _exact, lambda one: f"{_exact(one):.1%}".replace("%", " %"), max),
)

COSTS = (
    Column("parameters", lambda one: one.n_parameters, lambda one: counted(one.n_parameters)),
    Column("steps", lambda one: one.training.steps, lambda one: f"{one.training.steps:,}"),
    Column(
        "tokens",
        lambda one: one.training.tokens,
        lambda one: counted(one.training.tokens),
    ),
    Column(
        "training time",
        lambda one: one.training.seconds,
        lambda one: timed(one.training.seconds),
        min,
    ),
    Column(
        "training tokens/s",
        lambda one: one.training.tokens_per_second,
        lambda one: counted(one.training.tokens_per_second),
        max,
    ),
    Column(
        "decoding sentences/s",
        lambda one: one.decoding.records_per_second,
        lambda one: counted(one.decoding.records_per_second),
        max,
    ),
    Column(
        "memory",
        lambda one: one.memory.peak_bytes,
        lambda one: sized(one.memory.peak_bytes) if one.memory.peak_bytes else "–",
        min,
    ),
    Column(
        "energy",
        lambda one: one.energy.watt_hours,
        lambda one: spent(one.energy.watt_hours) if one.energy.watt_hours is not None else "–",
        min,
    ),
)


def _of_task(findings: Findings) -> tuple[Column, ...]:
    """Make a column of every score of a task."""
    first, metric = findings.systems[0], findings.metric
    describe = TASKS[first.recipe.task].describe
    return tuple(
        Column(
            title,
            lambda one: one.score,
            lambda one, title=title: describe(one.scores)[title],  # type: ignore[misc]
            (max if metric.higher_is_better else min) if title == metric.title else None,
        )
        for title in describe(first.scores)
    )


def main_table(findings: Findings) -> Table:
    """Put all systems and their most important numbers into one table, the best first."""
    quality = TRANSLATION if findings.is_translation else _of_task(findings)
    columns = (*quality, *COSTS)
    best = frozenset(
        (row, number)
        for number, column in enumerate(columns, start=1)
        for row in _best_rows(findings.systems, column)
    )
    return Table(
        f"All systems, in the order of {findings.metric.title}. Bold: the best of a column.",
        ["system", *(column.title for column in columns)],
        [[one.name, *(column.shown(one) for column in columns)] for one in findings.systems],
        best,
    )


def _best_rows(systems: list[Measured], column: Column) -> list[int]:
    """Return the rows of the best systems; none if all are equal or something is not known."""
    values = [column.value(one) for one in systems]
    known = [value for value in values if value is not None]
    if column.best is None or len(known) < len(values) or len(set(known)) == 1:
        return []
    return [row for row, value in enumerate(values) if value == column.best(known)]


def significance_table(findings: Findings) -> Table:
    """Return a table with the difference in BLEU and its p-value for every two systems."""
    names, short = findings.names, short_names(findings.names)
    rows = []
    for row, name in enumerate(names[:-1]):
        cells = ["" if column <= row else _gap(findings, name, names[column])
                 for column in range(1, len(names))]  # fmt: skip
        rows.append([name, *cells])
    return Table(
        "Difference in BLEU between the system of the row and that of the column. * significant; "
        "in brackets: the p-value, corrected for the number of comparisons (Holm), or – for two "
        "systems that have learned nothing.",
        ["system", *(f"vs. {short[name]}" for name in names[1:])],
        rows,
    )


def _gap(findings: Findings, one: str, other: str) -> str:
    verdict = findings.verdict(one, other)
    star = "*" if verdict.is_significant else ""
    return f"+{points(verdict.difference)}{star} ({_p_value(verdict)})"


def _p_value(verdict: Verdict) -> str:
    if not verdict.is_tested:
        return "–"
    return f"p = {verdict.p_of_all:.3f}" if verdict.p_of_all >= 0.001 else "p < 0.001"


def sequence_table(findings: Findings) -> Table | None:
    """Count the operations that cannot be computed in parallel."""
    known = [system for system in findings.systems if system.sequences]
    if not known:
        return None
    chains = ("encoding", "training", "decoding")
    return Table(
        "Sequential operations: the longest chain of layers or cells, for n source and m target "
        "tokens; in brackets for a sentence of mean length, and for the longest.",
        ["system", "encoding", "training", "decoding"],
        [[system.name, *(_chain(system, name) for name in chains)] for system in known],
    )


def _chain(system: Measured, name: str) -> str:
    chain = system.sequences[name]
    if chain.mean == chain.longest:
        return chain.formula
    return f"{chain.formula} ({chain.mean}, {chain.longest})"
