"""The data sets of benchmarks/labelled.py, from made-up data: nothing leaks."""

import lzma
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCH))

import labelled  # noqa: E402 -- found only now
from labelled import phrases, read_sst2, read_trec, whole_sentences  # noqa: E402


def write_tsv(path: Path, rows: list[tuple[str, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress("".join("\t".join(row) + "\n" for row in rows).encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    header = ("sentence", "label")
    films = [(f"film {n} has a plot of {n} acts and an end ", str(n % 2)) for n in range(40)]
    parts = [(f"a plot of {n} acts ", str(n % 2)) for n in range(40)] + [("film", "1")]
    write_tsv(tmp_path / "sst2" / "train.tsv.xz", [header, *films[:30], *parts[10:]])
    write_tsv(tmp_path / "sst2" / "dev.tsv.xz", [header, *films[30:], *parts[:10]])
    write_tsv(tmp_path / "sst2" / "test.tsv.xz", [header, films[3], ("another film ", "0")])
    qc = tmp_path / "glue" / "qc"
    qc.mkdir(parents=True)
    questions = [f"NUM:count How many are {n} ?\n" for n in range(30)]
    (qc / "train.txt").write_text("".join(questions) + "HUM:ind Who is Zo\xeb ?\n", "latin-1")
    (qc / "test.txt").write_text(questions[5], "latin-1")
    for part in ("train", "val", "dev"):
        write_tsv(tmp_path / "glue" / f"CoLA.{part}.tsv.xz", [("gj04", "0", "*", "Him go.")])
        rows = [("index", "sentence1", "sentence2", "label"), ("0", "It rains.", "Rain.", "yes")]
        write_tsv(tmp_path / "glue" / f"RTE.{part}.tsv.xz", rows)
    return tmp_path


def test_sentences_that_no_other_contains_are_whole():
    assert whole_sentences({"a b c", "b c", "a c", "a b", "d"}) == {"a b c", "a c", "d"}


def test_phrases_of_held_out_sentences_are_not_trained_on(data, monkeypatch):
    monkeypatch.setattr(labelled, "HELD_OUT_SENTENCES", 8)
    train, valid, test = ([text for text, _ in rows] for rows in read_sst2(data))
    assert len(valid) == 8
    assert all(text.startswith("film ") for text in valid)  # whole sentences
    assert not {phrase for text in valid for phrase in phrases(text)} & {*train}
    assert not {*test} & {*train}
    assert len(train) >= 2 * 30  # the others, and their phrases


def test_questions_are_held_out(data, monkeypatch):
    monkeypatch.setattr(labelled, "HELD_OUT_QUESTIONS", 6)
    train, valid, test = map(list, read_trec(data))
    assert len(valid) == 6
    assert not {*valid} & {*train}
    assert not {*test} & {*train, *valid}
    assert ("Who is Zoë ?", "HUM") in train + valid


def test_all_files_are_written(data, tmp_path):
    call = [sys.executable, BENCH / "labelled.py", data, "--out", tmp_path / "out"]
    answer = subprocess.run(call, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "cola: train 1, valid 1, test 1" in answer.stdout
    assert (tmp_path / "out" / "cola-test.tsv").read_text(encoding="utf-8") == "Him go.\t0\n"
    expected = "It rains.\tRain.\tyes\n"
    assert (tmp_path / "out" / "rte-train.tsv").read_text(encoding="utf-8") == expected
    (data / "sst2" / "dev.tsv.xz").unlink()
    answer = subprocess.run(call, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1
