"""What the data doctor says: findings, and drafts of them that do not have their examples yet."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

EXAMPLES = 3
"""Lines shown for each finding."""

Severity = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """One thing found, in one sentence, with a few of the lines that show it."""

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
    """Tell how bad it is that something has happened so many times."""
    if not count:
        return "ok"
    return "warning" if count > warn_above * total else "note"


def share(count: int, total: int) -> str:
    """Say a count with its total, and in percent."""
    if not count:
        return f"0 of {total:,}"
    percent = f"{count / total:.1%}" if count >= 0.001 * total else "under 0.1%"
    return f"{count:,} of {total:,} ({percent})"
