"""attendo check: a report on the data before any training."""

from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import (
    Files,
    Pairs,
    Source,
    Target,
    TestPairs,
    TestSource,
    TestTarget,
    TestTrees,
    Trees,
    ValidPairs,
    ValidSource,
    ValidTarget,
    ValidTrees,
)

if TYPE_CHECKING:
    from rich.console import Console

    from attendo.data.check import CheckReport, CorpusReport
    from attendo.data.readers import RecordFiles

MARKS = ("1 %", "50 %", "99 %", "longest")
"""Percentiles of lengths."""

_STYLES = {"ok": "green", "note": "cyan", "warning": "yellow", "error": "bold red"}


def check(
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    test_source: TestSource = None,
    test_target: TestTarget = None,
    test_pairs: TestPairs = None,
    trees: Trees = None,
    valid_trees: ValidTrees = None,
    test_trees: TestTrees = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Report on the data before any training.

    Finds missing or misaligned lines, duplicates, copies, wrong scripts,
    unusual lengths, and test sentences that are in the training data. Of
    treebanks (--trees) it reports what is cleaned: traces, function tags,
    empty nodes. Files may be compressed (.gz, .xz, .zst); an option that
    names a file may be given several times. The exit code is 2 if there are
    errors: data that 'attendo train' would refuse.

    \b
    Examples:
      attendo check --source train.de --target train.en
      attendo check --pairs train.tsv.gz --test-pairs test.tsv
      attendo check --pairs train.jsonl --json > report.json
      attendo check --trees train.mrg --test-trees test.mrg
    """
    from attendo.data.readers import RecordFiles
    from attendo.data.treebanks import ParsedSentence
    from attendo.errors import ConfigError

    def corpus(source: Files, target: Files, pairs: Files) -> RecordFiles:
        return RecordFiles(tuple(source or ()), tuple(target or ()), tuple(pairs or ()))

    def treebank(trees: Files) -> RecordFiles:
        return RecordFiles(files=tuple(trees or ()), record=ParsedSentence)

    corpora = {
        "training": corpus(source, target, pairs),
        "validation": corpus(valid_source, valid_target, valid_pairs),
        "test": corpus(test_source, test_target, test_pairs),
    }
    treebanks = {
        "training": treebank(trees),
        "validation": treebank(valid_trees),
        "test": treebank(test_trees),
    }
    if any(corpora.values()) and any(treebanks.values()):
        raise ConfigError("both sentence pairs and trees were given; check one of them at a time")
    report = _check(treebanks if any(treebanks.values()) else corpora)
    if json:
        from json import dumps

        print(dumps(report.to_dict(), ensure_ascii=False))
    else:
        _show(report)
    if not report.is_usable:
        raise typer.Exit(2)


def _check(corpora: dict[str, "RecordFiles"]) -> "CheckReport":
    """Check with a progress bar for each corpus, on a terminal only."""
    from pathlib import Path

    from rich.console import Console
    from rich.progress import Progress

    from attendo.data.check import check_corpus
    from attendo.data.check_trees import check_trees
    from attendo.data.treebanks import ParsedSentence

    is_treebank = corpora["training"].record is ParsedSentence
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks = {
            name: bars.add_task(name, total=sum(Path(p).stat().st_size for p in files))
            for name, files in corpora.items()
            if files and all(Path(path).is_file() for path in files)
        }

        def progress(name: str, bytes_read: int) -> None:
            if name in tasks:
                bars.update(tasks[name], completed=bytes_read)

        return (check_trees if is_treebank else check_corpus)(
            corpora["training"],
            corpora["validation"] or None,
            corpora["test"] or None,
            progress=progress,
        )


def _show(report: "CheckReport") -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for corpus in report.corpora:
        _show_lengths(console, corpus)
    for finding in report.findings:
        label = Text(f"{finding.severity:>7}  ", style=_STYLES[finding.severity])
        console.print(label.append(finding.sentence, style="default"), soft_wrap=True)
        for example in finding.examples:
            console.print(Text(f"           {example}", style="dim"), soft_wrap=True)


def _show_lengths(console: "Console", corpus: "CorpusReport") -> None:
    from rich.table import Table

    unit = corpus.unit.removesuffix("s") if corpus.pairs == 1 else corpus.unit
    title = f"{corpus.name}: {corpus.pairs:,} {unit}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column()
    is_pairs = corpus.unit == "pairs"
    units = {"words": "words", "characters": "characters"} if is_pairs else {"": "in a sentence"}
    sides = ("source", "target") if is_pairs else tuple(corpus.lengths)
    for unit in units.values():
        for mark in MARKS:
            table.add_column(f"{unit}\n{mark}" if mark == "1 %" else f"\n{mark}", justify="right")
    for side in sides:
        keys = [f"{side}_{unit}" if unit else side for unit in units]
        values = [f"{value:,}" for key in keys for value in corpus.lengths[key].values()]
        table.add_row(side, *values)
    console.print(table)
    console.print()
