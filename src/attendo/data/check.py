"""The data doctor: what is wrong with a corpus, told before any training is paid for.

One pass turns every pair into a row of 28 bytes (hashes, lengths, scripts, flags), so that millions
of pairs fit; the checks are NumPy over those rows. A second pass, ended early, fetches the lines
that are shown as examples.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attendo.data.readers import Pair, PairFiles, ReadReport, read_pairs, shorten
from attendo.data.scripts import Scripts
from attendo.errors import DataError

Severity = Literal["ok", "note", "warning", "error"]

_ROW = np.dtype(
    [
        ("pair", "i8"),  # hashes
        ("source", "i8"),
        ("source_characters", "u2"),
        ("target_characters", "u2"),
        ("source_words", "u2"),
        ("target_words", "u2"),
        ("source_script", "u1"),
        ("target_script", "u1"),
        ("numbers", "u1"),  # see _compare_numbers
        ("copy", "?"),
    ]
)
_BATCH = 1024  # pairs
_EXAMPLES = 3  # for each finding
_NUMBER = re.compile(r"\d{2,18}")  # single digits meet by chance, and are often written as words
_LAGS = range(-3, 4)  # lines
_HERE = _LAGS.index(0)
_WINDOW = 1000  # pairs over which alignment is judged
_MIN_WINDOW = 50


@dataclass(frozen=True)
class Finding:
    """One thing found, in one sentence, with a few of the lines that show it."""

    severity: Severity
    sentence: str
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class CorpusReport:
    """What one corpus is made of."""

    name: str
    lines: int
    pairs: int
    dropped: dict[str, int]
    notes: dict[str, int]
    lengths: dict[str, dict[str, int]]
    """Percentiles 1, 50, 99 and 100 of each side, in words and in characters."""
    numbers: dict[str, int | float]
    """What the findings are based on."""


@dataclass(frozen=True)
class CheckReport:
    """Everything the doctor has to say."""

    corpora: list[CorpusReport]
    findings: list[Finding]

    @property
    def is_usable(self) -> bool:
        """Tell whether nothing is worse than a warning."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Make the report fit for JSON."""
        return asdict(self) | {"is_usable": self.is_usable}


class _Scan(NamedTuple):
    """A corpus after the first pass."""

    name: str
    files: PairFiles
    report: ReadReport
    rows: NDArray[Any]
    script_names: list[str]
    problem: str | None


class _Draft(NamedTuple):
    """A finding whose examples are still row numbers."""

    severity: Severity
    sentence: str
    rows: Iterable[int] = ()
    numbers: Mapping[str, int | float] = MappingProxyType({})
    dropped: tuple[str, ...] = ()
    """Examples that never became rows."""


def check_corpus(
    train: PairFiles,
    valid: PairFiles | None = None,
    test: PairFiles | None = None,
    *,
    max_length: int = 128,
    max_ratio: float = 0.0,
    progress: Callable[[str, int], None] = lambda name, bytes_read: None,
) -> CheckReport:
    """Examine training, validation and test data; the limits are those of a recipe's [data].

    `progress` is told now and then how many bytes of which corpus have been read.

    Raises:
        DataError: nothing at all can be read of one of the three.
    """
    named = {"training": train, "validation": valid, "test": test}
    scans = [_scan(name, files, progress) for name, files in named.items() if files is not None]
    corpora, findings = [], []
    for scan in scans:
        drafts = [draft for check in CHECKS for draft in check(scan)]
        if scan is scans[0]:
            drafts += _check_limits(scan, max_length, max_ratio)
        else:
            drafts += _check_leaks(scan, scans[0])
        findings += _with_examples(scan, drafts)
        corpora.append(_describe(scan, drafts))
    return CheckReport(corpora, findings)


def _scan(name: str, files: PairFiles, progress: Callable[[str, int], None]) -> _Scan:
    report, scripts, problem = ReadReport(), Scripts(), None
    parts: list[NDArray[Any]] = []
    batch: list[Pair] = []
    try:
        for pair in read_pairs(files, report):
            batch.append(pair)
            if len(batch) == _BATCH:
                parts.append(_measure(batch, scripts))
                batch.clear()
                progress(name, report.bytes_read)
    except DataError as error:
        if not report.kept:
            raise
        problem = str(error)  # what could be read is still worth looking at
    parts.append(_measure(batch, scripts))
    progress(name, report.bytes_read)
    return _Scan(name, files, report, np.concatenate(parts), scripts.names, problem)


def _measure(batch: list[Pair], scripts: Scripts) -> NDArray[Any]:
    rows = np.zeros(len(batch), _ROW)
    rows["pair"] = [hash(pair) for pair in batch]
    rows["source"] = [hash(pair.source) for pair in batch]
    rows["numbers"] = [_compare_numbers(pair) for pair in batch]
    rows["copy"] = [pair.source == pair.target for pair in batch]
    for index, side in enumerate(Pair._fields):
        texts = [pair[index] for pair in batch]
        rows[f"{side}_characters"] = [len(text) for text in texts]
        rows[f"{side}_words"] = [len(text.split()) for text in texts]
        rows[f"{side}_script"] = scripts.dominant(texts)
    return rows


def _compare_numbers(pair: Pair) -> int:
    """Give 0 without numbers, 1 where the sides have one in common, 2 where they have none."""
    source, target = _NUMBER.findall(pair.source), _NUMBER.findall(pair.target)
    if not source and not target:
        return 0
    return 2 if {int(number) for number in source}.isdisjoint(map(int, target)) else 1


def _check_reading(scan: _Scan) -> Iterator[_Draft]:
    report = scan.report
    if scan.problem:
        yield _Draft("error", scan.problem)
    dropped = report.dropped.total()
    reasons = "".join(f", {count:,} × {why}" for why, count in report.dropped.most_common())
    yield _Draft(
        _grade(dropped, report.lines, 0.05),
        f"{report.kept:,} of {report.lines:,} lines give a pair{reasons}",
        dropped=tuple(f"{place}  {reason}: {text}" for reason, place, text in report.examples),
    )
    if report.notes:
        notes = ", ".join(f"{note} ({count:,} ×)" for note, count in report.notes.items())
        yield _Draft("note", f"put right while reading: {notes}")


def _check_repeats(scan: _Scan) -> Iterator[_Draft]:
    rows = scan.rows
    unique, first = np.unique(rows["pair"], return_index=True)
    again = np.ones(len(rows), bool)
    again[first] = False
    count = len(rows) - len(unique)
    yield _Draft(
        _grade(count, len(rows), 0.1),
        f"{_share(count, len(rows))} pairs repeat an earlier one",
        np.flatnonzero(again),
        {"repeated_pairs": count},
    )
    sources, variants = np.unique(rows["source"][first], return_counts=True)
    several = sources[variants > 1]
    yield _Draft(
        "note" if len(several) else "ok",
        f"{_share(len(several), len(sources))} different sources have several different targets",
        np.flatnonzero(np.isin(rows["source"], several[:1])),
        {"sources_with_several_targets": len(several)},
    )


def _check_copies(scan: _Scan) -> Iterator[_Draft]:
    copies = np.flatnonzero(scan.rows["copy"])
    yield _Draft(
        _grade(len(copies), len(scan.rows), 0.01),
        f"{_share(len(copies), len(scan.rows))} targets are copies of their source",
        copies,
        {"copies": len(copies)},
    )


def _check_scripts(scan: _Scan) -> Iterator[_Draft]:
    for side in Pair._fields:
        scripts = scan.rows[f"{side}_script"]
        counts = np.bincount(scripts, minlength=2)
        counts[0] = 0  # too few letters to tell
        usual = int(counts.argmax())
        if not counts[usual]:
            continue
        strange = np.flatnonzero((scripts != usual) & (scripts != 0))
        yield _Draft(
            _grade(len(strange), len(scripts), 0.01),
            f"the {side} side is in {scan.script_names[usual]} script; "
            f"{_share(len(strange), len(scripts))} lines are in another",
            strange,
            {f"{side}_wrong_script": len(strange)},
        )


def _check_ratios(scan: _Scan) -> Iterator[_Draft]:
    source, target = _characters(scan)
    ratios = np.log(target / source)
    middle = np.median(ratios)
    spread = 1.4826 * np.median(np.abs(ratios - middle))  # the standard deviation, if normal
    # A factor of 2 is nothing unusual between short lines, so some characters must be missing too.
    far = np.abs(ratios - middle) > max(math.log(2.5), 5 * spread)
    odd = np.flatnonzero(far & (np.abs(target - source * np.exp(middle)) > 20))
    yield _Draft(
        _grade(len(odd), len(ratios), 0.02),
        f"the median target has {np.exp(middle):.2f} times the characters of its source; "
        f"{_share(len(odd), len(ratios))} pairs are far from that",
        odd,
        {"length_ratio": round(float(np.exp(middle)), 3), "length_ratio_outliers": len(odd)},
    )


def _check_alignment(scan: _Scan) -> Iterator[_Draft]:
    """Judge by lengths and numbers whether line k belongs to line k, or to a neighbour."""
    windows = max(1, len(scan.rows) // _WINDOW)
    size = len(scan.rows) // windows
    if size < _MIN_WINDOW:
        yield _Draft("note", f"{len(scan.rows)} pairs are too few to judge the alignment")
        return
    source, target = (
        np.log(side[: windows * size]).reshape(windows, size) for side in _characters(scan)
    )
    # Lines of the same length everywhere tell nothing.
    varied = np.minimum(source.std(axis=1), target.std(axis=1)) > 0.1
    correlations = _correlations(source[varied], target[varied])
    starts = np.flatnonzero(varied) * size
    counts = np.bincount(scan.rows["numbers"], minlength=3)
    draft = (
        _shifted(correlations, starts, size)
        or _unrelated_lengths(correlations, starts, size)
        or _unrelated_numbers(scan.rows["numbers"], counts)
        or _Draft("ok", "nothing speaks for shifted or wrong lines")
    )
    numbers: dict[str, int | float] = {
        "pairs_with_a_common_number": int(counts[1]),
        "pairs_with_no_common_number": int(counts[2]),
    }
    if len(starts):
        numbers["length_correlation"] = round(float(correlations[_HERE].mean()), 3)
    yield draft._replace(numbers=numbers)


def _correlations(source: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Correlate source line k with target line k + lag, for each lag and window."""
    source, target = (
        (lengths - lengths.mean(axis=1, keepdims=True))
        / (lengths.std(axis=1, keepdims=True) * math.sqrt(lengths.shape[1]))
        for lengths in (source, target)
    )
    end = source.shape[1]
    sums = [
        np.einsum(
            "ij,ij->i",
            source[:, max(-lag, 0) : end - max(lag, 0)],
            target[:, max(lag, 0) : end - max(-lag, 0)],
        )
        for lag in _LAGS
    ]
    return np.stack(sums)


def _shifted(correlations: NDArray[Any], starts: NDArray[Any], size: int) -> _Draft | None:
    here = correlations[_HERE]
    # Five standard errors of a correlation: windows that are shifted, not unlucky.
    found = np.flatnonzero(correlations.max(axis=0) - here > max(0.2, 5 / math.sqrt(size)))
    if not len(found):
        return None
    best = int(correlations[:, found].mean(axis=1).argmax())
    return _Draft(
        "warning",
        f"the sides seem shifted, from about pair {starts[found[0]] + 1:,} on: by their lengths, "
        f"source line k goes with target line k{_LAGS[best]:+d} "
        f"(correlation {correlations[best, found].mean():.2f} instead of {here[found].mean():.2f})",
        # The shift may begin anywhere in the first window.
        range(starts[found[0]] + size - _EXAMPLES, starts[found[0]] + size),
    )


def _unrelated_lengths(
    correlations: NDArray[Any], starts: NDArray[Any], size: int
) -> _Draft | None:
    here = correlations[_HERE]
    found = np.flatnonzero(here < 0.25)
    if len(found) <= 0.1 * len(here):
        return None
    return _Draft(
        "warning",
        f"from about pair {starts[found[0]] + 1:,} on, the lengths of the two sides have little to "
        f"do with each other (correlation {here[found].mean():.2f}): are these translations?",
        range(starts[found[0]] + size - _EXAMPLES, starts[found[0]] + size),
    )


def _unrelated_numbers(flags: NDArray[Any], counts: NDArray[Any]) -> _Draft | None:
    total = int(counts[1] + counts[2])
    if total < 30 or counts[1] >= 0.4 * total:
        return None
    return _Draft(
        "warning",
        f"of the pairs with numbers only {_share(int(counts[1]), total)} have one in common: "
        "are these translations?",
        np.flatnonzero(flags == 2),
    )


def _check_limits(scan: _Scan, max_length: int, max_ratio: float) -> Iterator[_Draft]:
    """Estimate what training leaves out; exact numbers would need the tokenizer."""
    source, target = (
        np.ceil(characters / _characters_per_token(scan, side))
        for side, characters in zip(Pair._fields, _characters(scan), strict=True)
    )
    long = np.maximum(source, target) > max_length
    uneven = np.maximum(source / target, target / source) > (max_ratio or np.inf)
    out = np.flatnonzero(long | uneven)
    total = len(scan.rows)
    yield _Draft(
        "error" if len(out) == total else _grade(len(out), total, 0.1),
        f"with data.max_length = {max_length} and data.max_ratio = {max_ratio:g} a training would "
        f"leave out about {_share(len(out), total)} pairs "
        f"({int(long.sum()):,} too long, {int(uneven.sum()):,} too uneven)",
        out,
        {"left_out_by_limits": len(out)},
    )


def _check_leaks(scan: _Scan, train: _Scan) -> Iterator[_Draft]:
    same_source = np.isin(scan.rows["source"], train.rows["source"])
    same_pair = np.isin(scan.rows["pair"], train.rows["pair"])
    known = int(same_source.sum())
    yield _Draft(
        _grade(known, len(scan.rows), 0.01),
        f"{_share(known, len(scan.rows))} sources are in the training data too, "
        f"{int(same_pair.sum()):,} of them with the same target",
        np.flatnonzero(same_source),
        {"sources_in_training": known, "pairs_in_training": int(same_pair.sum())},
    )


def _characters(scan: _Scan) -> tuple[NDArray[Any], NDArray[Any]]:
    source, target = scan.rows["source_characters"], scan.rows["target_characters"]
    return source.astype(np.float32), target.astype(np.float32)


def _characters_per_token(scan: _Scan, side: str) -> float:
    """Guess how long a subword is: about a syllable or two, and shorter in unspaced scripts."""
    per_word = np.median(scan.rows[f"{side}_characters"] / scan.rows[f"{side}_words"])
    return 4.0 if per_word < 15 else 1.5


def _grade(count: int, total: int, warn_above: float) -> Severity:
    if not count:
        return "ok"
    return "warning" if count > warn_above * total else "note"


def _share(count: int, total: int) -> str:
    if not count:
        return f"0 of {total:,}"
    percent = f"{count / total:.1%}" if count >= 0.001 * total else "under 0.1%"
    return f"{count:,} of {total:,} ({percent})"


def _with_examples(scan: _Scan, drafts: list[_Draft]) -> list[Finding]:
    chosen = [tuple(int(row) for row in islice(draft.rows, _EXAMPLES)) for draft in drafts]
    lines = _fetch(scan.files, {row for rows in chosen for row in rows})
    findings = []
    for draft, rows in zip(drafts, chosen, strict=True):
        examples = draft.dropped + tuple(lines[row] for row in rows)
        findings.append(Finding(draft.severity, f"{scan.name}: {draft.sentence}", examples))
    return findings


def _fetch(files: PairFiles, rows: set[int]) -> dict[int, str]:
    lines: dict[int, str] = {}
    report = ReadReport()
    pairs = enumerate(read_pairs(files, report))
    while len(lines) < len(rows):
        row, pair = next(pairs)
        if row in rows:
            lines[row] = f"{report.place}  {shorten(pair.source)}  →  {shorten(pair.target)}"
    return lines


def _describe(scan: _Scan, drafts: list[_Draft]) -> CorpusReport:
    marks = {"1 %": 1, "50 %": 50, "99 %": 99, "longest": 100}
    lengths = {}
    for column in ("source_words", "target_words", "source_characters", "target_characters"):
        values = np.percentile(scan.rows[column], list(marks.values()), method="nearest")
        lengths[column] = dict(zip(marks, values.tolist(), strict=True))
    numbers = {name: value for draft in drafts for name, value in draft.numbers.items()}
    lines, kept = scan.report.lines, scan.report.kept
    dropped, notes = dict(scan.report.dropped), dict(scan.report.notes)
    return CorpusReport(scan.name, lines, kept, dropped, notes, lengths, numbers)


CHECKS: tuple[Callable[[_Scan], Iterator[_Draft]], ...] = (
    _check_reading,
    _check_alignment,
    _check_scripts,
    _check_ratios,
    _check_copies,
    _check_repeats,
)
"""What every corpus is asked, in the order of the report."""
