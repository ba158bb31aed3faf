"""Checking a corpus before training: what is wrong with it, and what training would leave out.

One pass reduces every pair to a row of 28 bytes (hashes, lengths, scripts, flags), so that millions
of pairs fit; the checks are NumPy over those rows. A second pass, ended early, fetches the lines
that are shown as examples.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attendo.config import DataConfig
from attendo.data.findings import (
    EXAMPLES,
    Draft,
    Finding,
    Scripts,
    compare_numbers,
    grade,
    judge_alignment,
    share,
)
from attendo.data.readers import Pair, ReadReport, RecordFiles, read_records, shorten
from attendo.data.texts import hash_source, split_off
from attendo.errors import DataError

_ROW = np.dtype(
    [
        ("pair", "i8"),  # hashes
        ("source", "u8"),
        ("source_characters", "u2"),
        ("target_characters", "u2"),
        ("source_words", "u2"),
        ("target_words", "u2"),
        ("source_script", "u1"),
        ("target_script", "u1"),
        ("numbers", "u1"),  # see `compare_numbers`
        ("copy", "?"),
    ]
)
_BATCH = 1024  # pairs


@dataclass(frozen=True)
class CorpusReport:
    """The sizes, lengths and counts of one corpus."""

    name: str
    lines: int
    pairs: int
    dropped: dict[str, int]
    notes: dict[str, int]
    lengths: dict[str, dict[str, int]]
    """Percentiles 1, 50, 99 and 100 of each side, in words and in characters."""
    numbers: dict[str, int | float]
    """What the findings are based on."""
    unit: str = "pairs"
    """What was read."""


@dataclass(frozen=True)
class CheckReport:
    """The result of a check."""

    corpora: list[CorpusReport]
    findings: list[Finding]

    @property
    def is_usable(self) -> bool:
        """Return whether there are no errors, so that training can start."""
        return all(finding.severity != "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, for JSON."""
        return asdict(self) | {"is_usable": self.is_usable}


class _Scan(NamedTuple):
    """A corpus after the first pass."""

    name: str
    files: RecordFiles
    report: ReadReport
    rows: NDArray[Any]
    script_names: list[str]
    problem: str | None


def check_corpus(
    train: RecordFiles,
    valid: RecordFiles | None = None,
    test: RecordFiles | None = None,
    *,
    max_length: int = 128,
    max_ratio: float = 0.0,
    progress: Callable[[str, int], None] = lambda name, bytes_read: None,
) -> CheckReport:
    """Check training, validation and test data; the limits are those of a recipe's [data].

    `progress` is called now and then with the name of a corpus and the bytes read of it.

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
            drafts += _check_split(scan, has_valid=valid is not None, has_test=test is not None)
        else:
            drafts += _check_leaks(scan, scans[0])
        findings += _with_examples(scan, drafts)
        corpora.append(_describe(scan, drafts))
    return CheckReport(corpora, findings)


def _scan(name: str, files: RecordFiles, progress: Callable[[str, int], None]) -> _Scan:
    report, scripts, problem = ReadReport(), Scripts(), None
    parts: list[NDArray[Any]] = []
    batch: list[Pair] = []
    try:
        for pair in read_records(files, report):
            batch.append(pair)
            if len(batch) == _BATCH:
                parts.append(_measure(batch, scripts))
                batch.clear()
                progress(name, report.bytes_read)
    except DataError as error:
        if not report.kept:
            raise
        problem = str(error)  # what could be read is still checked
    parts.append(_measure(batch, scripts))
    progress(name, report.bytes_read)
    return _Scan(name, files, report, np.concatenate(parts), scripts.names, problem)


def _measure(batch: list[Pair], scripts: Scripts) -> NDArray[Any]:
    rows = np.zeros(len(batch), _ROW)
    rows["pair"] = [hash(pair) for pair in batch]
    rows["source"] = [hash_source(pair.source) for pair in batch]
    rows["numbers"] = [compare_numbers(pair) for pair in batch]
    rows["copy"] = [pair.source == pair.target for pair in batch]
    for index, side in enumerate(Pair._fields):
        texts = [pair[index] for pair in batch]
        rows[f"{side}_characters"] = [len(text) for text in texts]
        rows[f"{side}_words"] = [len(text.split()) for text in texts]
        rows[f"{side}_script"] = scripts.dominant(texts)
    return rows


def _check_reading(scan: _Scan) -> Iterator[Draft]:
    yield from describe_reading(scan.report, scan.problem, "pairs")


def describe_reading(report: ReadReport, problem: str | None, unit: str) -> Iterator[Draft]:
    """Say how many lines were used, why others were not, and what was corrected."""
    if problem:
        yield Draft("error", problem)
    dropped = report.dropped.total()
    reasons = "".join(f", {count:,} × {why}" for why, count in report.dropped.most_common())
    of, what = ("lines", " pairs") if unit == "pairs" else (unit, "")
    yield Draft(
        grade(dropped, report.lines, 0.05),
        f"{report.kept:,} of {report.lines:,} {of} are usable{what}{reasons}",
        dropped=tuple(f"{place}  {reason}: {text}" for reason, place, text in report.examples),
    )
    if report.notes:
        notes = ", ".join(f"{note} ({count:,} ×)" for note, count in report.notes.items())
        yield Draft("note", f"corrected while reading: {notes}")


def _check_repeats(scan: _Scan) -> Iterator[Draft]:
    rows = scan.rows
    unique, first = np.unique(rows["pair"], return_index=True)
    again = np.ones(len(rows), bool)
    again[first] = False
    count = len(rows) - len(unique)
    yield Draft(
        grade(count, len(rows), 0.1),
        f"{share(count, len(rows))} pairs repeat an earlier one",
        np.flatnonzero(again),
        {"repeated_pairs": count},
    )
    sources, variants = np.unique(rows["source"][first], return_counts=True)
    several = sources[variants > 1]
    yield Draft(
        "note" if len(several) else "ok",
        f"{share(len(several), len(sources))} different sources have several different targets",
        np.flatnonzero(np.isin(rows["source"], several[:1])),
        {"sources_with_several_targets": len(several)},
    )


def _check_copies(scan: _Scan) -> Iterator[Draft]:
    copies = np.flatnonzero(scan.rows["copy"])
    yield Draft(
        grade(len(copies), len(scan.rows), 0.01),
        f"{share(len(copies), len(scan.rows))} targets are copies of their source",
        copies,
        {"copies": len(copies)},
    )


def _check_scripts(scan: _Scan) -> Iterator[Draft]:
    for side in Pair._fields:
        scripts = scan.rows[f"{side}_script"]
        counts = np.bincount(scripts, minlength=2)
        counts[0] = 0  # too few letters
        usual = int(counts.argmax())
        if not counts[usual]:
            continue
        strange = np.flatnonzero((scripts != usual) & (scripts != 0))
        yield Draft(
            grade(len(strange), len(scripts), 0.01),
            f"the {side} side is in {scan.script_names[usual]} script; "
            f"{share(len(strange), len(scripts))} lines are in another",
            strange,
            {f"{side}_wrong_script": len(strange)},
        )


def _check_ratios(scan: _Scan) -> Iterator[Draft]:
    source, target = _characters(scan)
    ratios = np.log(target / source)
    middle = np.median(ratios)
    spread = 1.4826 * np.median(np.abs(ratios - middle))  # the standard deviation, if normal
    # A factor of 2 is nothing unusual between short lines, so some characters must be missing too.
    far = np.abs(ratios - middle) > max(math.log(2.5), 5 * spread)
    odd = np.flatnonzero(far & (np.abs(target - source * np.exp(middle)) > 20))
    yield Draft(
        grade(len(odd), len(ratios), 0.02),
        f"the median target has {np.exp(middle):.2f} times the characters of its source; "
        f"{share(len(odd), len(ratios))} pairs are far from that",
        odd,
        {"length_ratio": round(float(np.exp(middle)), 3), "length_ratio_outliers": len(odd)},
    )


def _check_alignment(scan: _Scan) -> Iterator[Draft]:
    yield judge_alignment(*_characters(scan), scan.rows["numbers"])


def _check_limits(scan: _Scan, max_length: int, max_ratio: float) -> Iterator[Draft]:
    """Estimate what training leaves out; exact numbers would need the tokenizer."""
    source, target = (
        np.ceil(characters / _characters_per_token(scan, side))
        for side, characters in zip(Pair._fields, _characters(scan), strict=True)
    )
    long = np.maximum(source, target) > max_length
    uneven = np.maximum(source / target, target / source) > (max_ratio or np.inf)
    out = np.flatnonzero(long | uneven)
    total = len(scan.rows)
    yield Draft(
        "error" if len(out) == total else grade(len(out), total, 0.1),
        f"with data.max_length = {max_length} and data.max_ratio = {max_ratio:g}, training leaves "
        f"out about {share(len(out), total)} pairs "
        f"({int(long.sum()):,} too long, {int(uneven.sum()):,} too uneven)",
        out,
        {"left_out_by_limits": len(out)},
    )


def _check_split(scan: _Scan, *, has_valid: bool, has_test: bool) -> Iterator[Draft]:
    """Report an error where training would refuse the data, with the same words."""
    try:
        hashes, files = scan.rows["source"], ", ".join(scan.files)
        split_off(hashes, DataConfig().hold_out, files, has_valid=has_valid, has_test=has_test)
    except DataError as error:
        yield Draft("error", str(error))


def _check_leaks(scan: _Scan, train: _Scan) -> Iterator[Draft]:
    same_source = np.isin(scan.rows["source"], train.rows["source"])
    same_pair = np.isin(scan.rows["pair"], train.rows["pair"])
    known = int(same_source.sum())
    yield Draft(
        grade(known, len(scan.rows), 0.01),
        f"{share(known, len(scan.rows))} sources are also in the training data, "
        f"{int(same_pair.sum()):,} of them with the same target",
        np.flatnonzero(same_source),
        {"sources_in_training": known, "pairs_in_training": int(same_pair.sum())},
    )


def _characters(scan: _Scan) -> tuple[NDArray[Any], NDArray[Any]]:
    source, target = scan.rows["source_characters"], scan.rows["target_characters"]
    return source.astype(np.float32), target.astype(np.float32)


def _characters_per_token(scan: _Scan, side: str) -> float:
    """Estimate the length of a subword, which is shorter in scripts without spaces."""
    per_word = np.median(scan.rows[f"{side}_characters"] / scan.rows[f"{side}_words"])
    return 4.0 if per_word < 15 else 1.5


def _with_examples(scan: _Scan, drafts: list[Draft]) -> list[Finding]:
    chosen = [tuple(int(row) for row in islice(draft.rows, EXAMPLES)) for draft in drafts]
    lines = _fetch(scan.files, {row for rows in chosen for row in rows})
    findings = []
    for draft, rows in zip(drafts, chosen, strict=True):
        examples = draft.dropped + tuple(lines[row] for row in rows)
        findings.append(Finding(draft.severity, f"{scan.name}: {draft.sentence}", examples))
    return findings


def _fetch(files: RecordFiles, rows: set[int]) -> dict[int, str]:
    lines: dict[int, str] = {}
    report = ReadReport()
    pairs = enumerate(read_records(files, report))
    while len(lines) < len(rows):
        row, pair = next(pairs)
        if row in rows:
            lines[row] = f"{report.place}  {shorten(pair.source)}  →  {shorten(pair.target)}"
    return lines


def _describe(scan: _Scan, drafts: list[Draft]) -> CorpusReport:
    marks = {"1 %": 1, "50 %": 50, "99 %": 99, "longest": 100}
    lengths = {}
    for column in ("source_words", "target_words", "source_characters", "target_characters"):
        values = np.percentile(scan.rows[column], list(marks.values()), method="nearest")
        lengths[column] = dict(zip(marks, values.tolist(), strict=True))
    numbers = {name: value for draft in drafts for name, value in draft.numbers.items()}
    lines, kept = scan.report.lines, scan.report.kept
    dropped, notes = dict(scan.report.dropped), dict(scan.report.notes)
    return CorpusReport(scan.name, lines, kept, dropped, notes, lengths, numbers)


CHECKS: tuple[Callable[[_Scan], Iterator[Draft]], ...] = (
    _check_reading,
    _check_alignment,
    _check_scripts,
    _check_ratios,
    _check_copies,
    _check_repeats,
)
"""The checks of every corpus, in the order of the report."""
