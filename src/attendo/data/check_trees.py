"""Checking treebanks before training: what was cleaned or left out, lengths, labels and leaks."""

from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np

from attendo.config import DataConfig
from attendo.data.check import CheckReport, CorpusReport, describe_reading
from attendo.data.findings import EXAMPLES, Finding, grade, share
from attendo.data.readers import ReadReport, RecordFiles, read_records, shorten
from attendo.data.texts import hash_source, split_off
from attendo.errors import DataError
from attendo.text.trees import parse_tree

RARE = 5
"""A label with fewer constituents can hardly be learned."""


class _Treebank:
    """What one pass over a treebank has found."""

    def __init__(self, name: str, files: RecordFiles) -> None:
        self.name, self.files, self.report = name, files, ReadReport()
        self.problem: str | None = None
        self.lengths: dict[str, list[int]] = {"words": [], "constituents": [], "depth": []}
        self.labels: Counter[str] = Counter()
        self.tags: Counter[str] = Counter()
        self.hashes: list[int] = []
        self.texts: dict[int, str] = {}
        """The beginning of each different sentence."""

    def read(self, progress: Callable[[str, int], None]) -> None:
        try:
            for record in read_records(self.files, self.report):
                self._add(record.text, record.tree)
                progress(self.name, self.report.bytes_read)
        except DataError as error:
            if not self.report.kept:
                raise
            self.problem = str(error)  # what could be read is still checked

    def _add(self, text: str, brackets: str) -> None:
        tree = parse_tree(brackets)
        labels = [node.label for node in tree.nodes()]
        self.labels.update(labels)
        self.tags.update(tree.tags())
        for name, value in (
            ("words", len(tree.words())),
            ("constituents", len(labels)),
            ("depth", tree.depth()),
        ):
            self.lengths[name].append(value)
        self.hashes.append(hash_source(text))
        self.texts.setdefault(self.hashes[-1], shorten(text))


def check_trees(
    train: RecordFiles,
    valid: RecordFiles | None = None,
    test: RecordFiles | None = None,
    *,
    progress: Callable[[str, int], None] = lambda name, bytes_read: None,
) -> CheckReport:
    """Check treebanks for training, validation and test.

    Raises:
        DataError: nothing at all can be read of one of the three.
    """
    named = {"training": train, "validation": valid, "test": test}
    banks = [_Treebank(name, files) for name, files in named.items() if files is not None]
    findings = []
    for bank in banks:
        bank.read(progress)
        found = list(_check_one(bank))
        if bank is banks[0]:
            found += _check_split(bank, has_valid=valid is not None, has_test=test is not None)
        else:
            found += _check_against(bank, banks[0])
        findings += [
            Finding(one.severity, f"{bank.name}: {one.sentence}", one.examples) for one in found
        ]
    return CheckReport([_describe(bank) for bank in banks], findings)


def _check_one(bank: _Treebank) -> Iterator[Finding]:
    for draft in describe_reading(bank.report, bank.problem, "trees"):
        yield Finding(draft.severity, draft.sentence, draft.dropped)
    n_again = len(bank.hashes) - len(bank.texts)
    again = [
        bank.texts[one] for one, count in Counter(bank.hashes).most_common(EXAMPLES) if count > 1
    ]
    yield Finding(
        grade(n_again, len(bank.hashes), 0.1),
        f"{share(n_again, len(bank.hashes))} sentences repeat an earlier one",
        tuple(again),
    )
    common = ", ".join(f"{label} {count:,}" for label, count in bank.labels.most_common(8))
    yield Finding("ok", f"{len(bank.labels)} labels ({common}), {len(bank.tags)} parts of speech")


def _check_split(bank: _Treebank, *, has_valid: bool, has_test: bool) -> Iterator[Finding]:
    rare = [label for label, count in bank.labels.items() if count < RARE]
    if rare:
        names = ", ".join(sorted(rare)[:10])
        yield Finding("note", f"{len(rare)} labels have fewer than {RARE} constituents: {names}")
    try:
        hashes = np.array(bank.hashes, dtype=np.uint64)
        files = ", ".join(bank.files)
        split_off(hashes, DataConfig().hold_out, files, has_valid=has_valid, has_test=has_test)
    except DataError as error:
        yield Finding("error", str(error))


def _check_against(bank: _Treebank, train: _Treebank) -> Iterator[Finding]:
    known = [one for one in bank.hashes if one in train.texts]
    yield Finding(
        grade(len(known), len(bank.hashes), 0.01),
        f"{share(len(known), len(bank.hashes))} sentences are also in the training data",
        tuple(bank.texts[one] for one in known[:EXAMPLES]),
    )
    new = sorted(
        (bank.labels.keys() - train.labels.keys()) | (bank.tags.keys() - train.tags.keys())
    )
    if new:
        names = ", ".join(new[:10])
        yield Finding("warning", f"no training tree has these labels or parts of speech: {names}")


def _describe(bank: _Treebank) -> CorpusReport:
    marks = {"1 %": 1, "50 %": 50, "99 %": 99, "longest": 100}
    lengths = {}
    for name, values in bank.lengths.items():
        found = np.percentile(values, list(marks.values()), method="nearest")
        lengths[name] = dict(zip(marks, found.tolist(), strict=True))
    numbers: dict[str, int | float] = {
        "labels": len(bank.labels),
        "tags": len(bank.tags),
        "words": sum(bank.lengths["words"]),
        "constituents": bank.labels.total(),
        "repeated": len(bank.hashes) - len(bank.texts),
    }
    report = bank.report
    dropped, notes = dict(report.dropped), dict(report.notes)
    return CorpusReport(
        bank.name, report.lines, report.kept, dropped, notes, lengths, numbers, "trees"
    )
