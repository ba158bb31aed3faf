"""The findings of `attendo check`, and drafts of them whose examples are still row numbers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

EXAMPLES = 3
"""Lines shown for each finding."""

Severity = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One result, in one sentence, with a few example lines."""

    severity: Severity
    sentence: str
    examples: tuple[str, ...] = ()


class Draft(NamedTuple):
    """A finding whose examples are still row numbers."""

    severity: Severity
    sentence: str
    rows: Iterable[int] = ()
    numbers: Mapping[str, int | float] = MappingProxyType({})
    dropped: tuple[str, ...] = ()
    """Examples that never became rows."""


def grade(count: int, total: int, warn_above: float) -> Severity:
    """Return the severity of something that occurs so many times."""
    if not count:
        return "ok"
    return "warning" if count > warn_above * total else "note"


def share(count: int, total: int) -> str:
    """Format a count with its total, and in percent."""
    if not count:
        return f"0 of {total:,}"
    percent = f"{count / total:.1%}" if count >= 0.001 * total else "under 0.1%"
    return f"{count:,} of {total:,} ({percent})"
