"""The check finds errors that were added, and reports nothing about clean data."""

import inspect
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from attendo.cli.check import check
from attendo.config import DataConfig
from attendo.data.check import CheckReport, check_corpus
from attendo.data.findings import Scripts
from attendo.data.readers import RecordFiles
from attendo.data.texts import open_texts
from attendo.errors import DataError

Pairs = list[tuple[str, str]]


def corpus(n: int, seed: int = 7) -> Pairs:
    """Make a word-for-word English-Russian cipher with lengths and numbers as in real text."""
    chance = random.Random(seed)
    cipher = str.maketrans("abcdefghijklmnopqrstuvwxyz", "абцдефгхийклмнопярстувшхзж")
    pairs = []
    for _ in range(n):
        words = [
            "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9)))
            for _ in range(min(40, 2 + int(chance.lognormvariate(2, 0.6))))
        ]
        if chance.random() < 0.3:
            words.append(str(chance.randint(10, 9999)))
        kept = [
            word.translate(cipher) for word in words if chance.random() < 0.95 or len(words) < 9
        ]
        pairs.append((" ".join(words), " ".join(reversed(kept))))
    return pairs


def shift(pairs: Pairs, start: int, lag: int) -> Pairs:
    """Move the targets up by `lag` lines from a line on, as after lost lines."""
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    del targets[start : start + lag]
    return list(zip(sources, targets, strict=False))


@pytest.fixture
def save(tmp_path: Path) -> Callable[[str, Pairs], RecordFiles]:
    def write(name: str, pairs: Pairs) -> RecordFiles:
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
        return RecordFiles(files=(str(path),))

    return write


Save = Callable[[str, Pairs], RecordFiles]


def sentences(report: CheckReport, *severities: str) -> str:
    return "\n".join(
        finding.sentence for finding in report.findings if finding.severity in severities
    )


@pytest.mark.parametrize("n", [60, 300, 3000])
def test_clean_data_raises_no_alarm(save: Save, n: int) -> None:
    report = check_corpus(save("a", corpus(n)), save("b", corpus(53, seed=8)))
    assert sentences(report, "warning", "error") == ""
    assert report.is_usable
    assert report.corpora[0].lines == report.corpora[0].pairs == n
    assert report.corpora[0].numbers["length_correlation"] > 0.8


@pytest.mark.parametrize("n", [100, 300, 3000])
@pytest.mark.parametrize("lag", [1, 2])
def test_a_shifted_file_is_flagged_with_its_shift(save: Save, n: int, lag: int) -> None:
    report = check_corpus(save("a", shift(corpus(n), 0, lag)))
    assert "seem shifted, from about pair 1 on" in sentences(report, "warning")
    assert f"target line k-{lag} " in sentences(report, "warning")


@pytest.mark.parametrize("first", [500, 5000])
def test_a_shift_that_begins_in_the_middle_is_located(save: Save, first: int) -> None:
    report = check_corpus(save("a", shift(corpus(8000), first, 1)))
    finding = next(finding for finding in report.findings if "seem shifted" in finding.sentence)
    start = re.search(r"from about pair ([\d,]+) on", finding.sentence)
    assert start is not None
    assert abs(int(start[1].replace(",", "")) - first) < 30
    assert all(int(example.split()[0].rsplit(":")[-1]) > first for example in finding.examples)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("one", "один")], r"too few usable pairs in .*a\.tsv: 1 of at least 10"),
        ([("the same", "то же")] * 400, "too few different sources"),
        ([("the same", "то же")] * 398 + corpus(2), "too few different sources"),
    ],
    ids=["one pair", "one sentence", "three sentences"],
)
def test_what_training_refuses_is_an_error(save: Save, pairs: Pairs, message: str) -> None:
    files = save("a", pairs)
    report = check_corpus(files)
    assert not report.is_usable
    assert re.search(message, sentences(report, "error"))
    with pytest.raises(DataError, match=message):
        open_texts(DataConfig(pairs=files.files))


def test_few_different_sentences_are_enough_with_validation_and_test_pairs(save: Save) -> None:
    pairs = [("the same", "то же")] * 400
    assert check_corpus(save("a", pairs), save("b", corpus(20)), save("c", corpus(21))).is_usable


def test_unrelated_sides_are_flagged(save: Save) -> None:
    pairs = corpus(1000)
    targets = [target for _, target in pairs]
    random.Random(1).shuffle(targets)
    mixed = [(source, target) for (source, _), target in zip(pairs, targets, strict=True)]
    assert "are hardly correlated" in sentences(check_corpus(save("a", mixed)), "warning")


def test_numbers_reveal_unrelated_sides_where_all_lines_are_equally_long(save: Save) -> None:
    pairs = [(f"item {i:04}", f"Ding {5000 + i}") for i in range(100)]
    report = check_corpus(save("a", pairs))
    assert "of the pairs with numbers only 0 of 100" in sentences(report, "warning")


def test_lines_of_one_length_are_no_reason_for_alarm(save: Save) -> None:
    report = check_corpus(save("a", [(f"item {i:04}", f"Ding {i:04}") for i in range(100)]))
    assert sentences(report, "warning", "error") == ""


def test_dropped_lines_are_counted_and_shown(save: Save) -> None:
    report = check_corpus(save("a", [("", "leer"), *corpus(100)]))
    finding = next(finding for finding in report.findings if "usable pairs" in finding.sentence)
    assert finding.severity == "note"
    assert finding.sentence == "training: 100 of 101 lines are usable pairs, 1 × empty source"
    assert finding.examples[0].endswith("a.tsv:1  empty source: ·leer")
    assert report.corpora[0].dropped == {"empty source": 1}


def test_duplicates_copies_and_several_targets_are_counted(save: Save) -> None:
    pairs = corpus(200)
    same = ("the same words", "the same words")
    planted = [*pairs, *pairs[:30], (pairs[0][0], "другой перевод"), same]
    report = check_corpus(save("a", planted))
    numbers = report.corpora[0].numbers
    assert numbers["repeated_pairs"] == 30
    assert numbers["sources_with_several_targets"] == 1
    assert numbers["copies"] == 1
    assert "30 of 232 (12.9%) pairs repeat an earlier one" in sentences(report, "warning")
    copies = next(finding for finding in report.findings if "copies" in finding.sentence)
    assert copies.examples[0].endswith("a.tsv:232  the same words  →  the same words")


def test_lines_in_the_wrong_script_are_found_on_each_side(save: Save) -> None:
    pairs = corpus(200)
    pairs[10] = (pairs[10][0], pairs[10][0])
    pairs[20:25] = [(target, target) for _, target in pairs[20:25]]
    report = check_corpus(save("a", pairs))
    assert report.corpora[0].numbers["source_wrong_script"] == 5
    assert report.corpora[0].numbers["target_wrong_script"] == 1
    assert "target side is in Cyrillic script; 1 of 200" in sentences(report, "note")
    assert "source side is in Latin script; 5 of 200" in sentences(report, "warning")


def test_scripts_are_judged_by_most_letters() -> None:
    scripts = Scripts()
    lines = [
        "Hello 世界 world",
        "これは日本語の文です",
        "你好，世界和平",
        "ＦＵＬＬＷＩＤＴＨ",
        "12 + 30",
        "OK",
        "",
    ]
    names = [scripts.names[number] for number in scripts.dominant(lines)]
    asian = "Chinese or Japanese"
    assert names == ["Latin", asian, asian, "Latin", "none", "none", "none"]
    assert scripts.dominant([]).shape == (0,)


def test_length_ratio_outliers_are_found(save: Save) -> None:
    pairs = corpus(500)
    pairs[100] = (pairs[100][0] * 9, pairs[100][1])
    pairs[200] = (pairs[200][0], pairs[200][1] * 9)
    report = check_corpus(save("a", pairs))
    finding = next(finding for finding in report.findings if "far from that" in finding.sentence)
    assert report.corpora[0].numbers["length_ratio_outliers"] == 2
    assert [example.split()[0].rsplit(":")[-1] for example in finding.examples] == ["101", "201"]


def test_leakage_into_validation_and_test_is_found(save: Save) -> None:
    train, held_out = corpus(500), corpus(97, seed=9)
    leaked = [*held_out, *train[:5], (train[5][0], "другой перевод")]
    report = check_corpus(save("a", train), save("b", held_out), save("c", leaked))
    numbers = {corpus.name: corpus.numbers for corpus in report.corpora}
    assert numbers["validation"]["sources_in_training"] == 0
    assert numbers["test"]["sources_in_training"] == 6
    assert numbers["test"]["pairs_in_training"] == 5
    assert "test: 6 of 103 (5.8%) sources are also in the training data" in sentences(
        report, "warning"
    )


def test_what_training_would_leave_out_is_estimated(save: Save) -> None:
    pairs = [*corpus(200), ("word " * 400, "слово " * 400), ("word " * 20, "да")]
    files = save("a", pairs)
    assert check_corpus(files).corpora[0].numbers["left_out_by_limits"] == 1
    report = check_corpus(files, max_ratio=4.0)
    assert report.corpora[0].numbers["left_out_by_limits"] == 2
    assert "(1 too long, 1 too uneven)" in sentences(report, "note")


def test_the_limits_are_those_of_a_recipe() -> None:
    parameters = inspect.signature(check_corpus).parameters
    for limit in ("max_length", "max_ratio"):
        assert parameters[limit].default == getattr(DataConfig(), limit)


def test_files_of_different_length_are_an_error_with_the_rest_of_the_report(tmp_path: Path) -> None:
    pairs = corpus(300)
    (tmp_path / "a.en").write_text("".join(f"{source}\n" for source, _ in pairs), "utf-8")
    (tmp_path / "a.ru").write_text("".join(f"{target}\n" for _, target in pairs[1:]), "utf-8")
    report = check_corpus(RecordFiles((str(tmp_path / "a.en"),), (str(tmp_path / "a.ru"),)))
    assert not report.is_usable
    assert "has 300 lines and" in sentences(report, "error")
    assert "seem shifted" in sentences(report, "warning")


def test_data_that_cannot_be_read_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        check_corpus(RecordFiles(files=(str(tmp_path / "none.tsv"),)))


def test_progress_ends_at_the_size_of_the_files(save: Save) -> None:
    files = save("a", corpus(3000))
    seen: dict[str, int] = {}
    check_corpus(files, progress=lambda name, bytes_read: seen.update({name: bytes_read}))
    assert seen == {"training": Path(files.files[0]).stat().st_size}


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(check)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout


def test_the_command_prints_tables_and_findings(save: Save) -> None:
    path = save("a", [*corpus(100), ("[bold]odd[/x] markup here", "[red]размётка тут")]).files[0]
    code, output = run("--pairs", path, "--test-pairs", path)
    assert code == 0
    assert "training: 101 pairs" in output
    assert "warning  test: 101 of 101 (100.0%) sources are also in the training data" in output
    assert "\x1b" not in output


def test_the_command_prints_one_json_object(save: Save) -> None:
    code, output = run("--pairs", save("a", corpus(100)).files[0], "--json")
    report = json.loads(output)
    assert code == 0
    assert report["is_usable"] is True
    assert report["corpora"][0]["pairs"] == 100
    assert {finding["severity"] for finding in report["findings"]} <= {"ok", "note"}


def test_the_command_fails_on_errors_after_showing_the_report(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\ntwo\n")
    (tmp_path / "a.de").write_text("eins\n")
    code, output = run("--source", str(tmp_path / "a.en"), "--target", str(tmp_path / "a.de"))
    assert code == 2
    assert "error  training:" in output
    assert "has 2 lines" in output
