"""Labelled texts of the literature: from data sets as they come to files to train and test with.

PYTHONPATH=src python3 benchmarks/labelled.py --help
"""

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from script import run

from attendo.data.readers import read_lines
from attendo.errors import DataError
from attendo.files import explained, write_text

HELD_OUT_QUESTIONS = 500
"""TREC has no validation part: as many of its training questions as it has test questions."""

HELD_OUT_SENTENCES = 700
"""Whole sentences of SST-2 that are for validation."""

Row = tuple[str, ...]
"""Texts and a label."""


class Parts(NamedTuple):
    """A data set, divided."""

    train: Iterable[Row]
    valid: Iterable[Row]
    test: Iterable[Row]


app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder with the data sets.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the files to.")],
) -> None:
    """Divide TREC, SST-2, RTE and CoLA, and write them as text TAB label.

    DATA holds glue/qc/{train,test}.txt (TREC questions),
    sst2/{train,dev,test}.tsv.xz, glue/{RTE,CoLA}.{train,val,dev}.tsv.xz.
    DIR/NAME-{train,valid,test}.tsv are written for each of the four.

    In TREC and SST-2, texts of the test part are left out of the training
    part. The phrases of SST-2 are parts of its sentences: those of a sentence
    that is held out for validation are left out of the training part, too.

    \b
    Example:
      python3 benchmarks/labelled.py ~/data --out labelled
    """  # noqa: D301 -- a backspace keeps click from rewrapping the example
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    for name, read in DATA_SETS.items():
        parts = read(data)._asdict()
        sizes = {part: write(out / f"{name}-{part}.tsv", rows) for part, rows in parts.items()}
        print(f"{name}: {', '.join(f'{part} {size:,}' for part, size in sizes.items())}")


def read_trec(data: Path) -> Parts:
    """Read questions with the six coarse classes; some are held out, by a hash of the text."""

    def questions(part: str) -> Iterator[Row]:
        path = data / "glue" / "qc" / f"{part}.txt"
        with explained(path):
            lines = path.read_text(encoding="latin-1").splitlines()
        for line in lines:
            label, text = line.split(" ", 1)
            yield text, label.partition(":")[0]

    test = list(questions("test"))
    rows = without(questions("train"), test)
    valid = smallest_hashes({text for text, _ in rows}, HELD_OUT_QUESTIONS)
    return Parts(
        train=[row for row in rows if row[0] not in valid],
        valid=[row for row in rows if row[0] in valid],
        test=test,
    )


def read_sst2(data: Path) -> Parts:
    """Read sentences and phrases; whole sentences are held out, together with their phrases."""
    parts = {part: list(columns(data / "sst2" / f"{part}.tsv.xz", 2)) for part in SST2_PARTS}
    rows = [row for part in ("train", "dev") for row in parts[part]]
    valid = smallest_hashes(whole_sentences({text for text, _ in rows}), HELD_OUT_SENTENCES)
    seen = set(chain.from_iterable(map(phrases, valid)))
    return Parts(
        train=without((row for row in rows if row[0] not in seen), parts["test"]),
        valid=[row for row in rows if row[0] in valid],
        test=parts["test"],
    )


SST2_PARTS = ("train", "dev", "test")


def read_rte(data: Path) -> Parts:
    """Read pairs of texts; the second follows from the first or does not."""
    parts = (columns(data / "glue" / f"RTE.{part}.tsv.xz", 4) for part in GLUE_PARTS)
    return Parts(*([row[1:] for row in rows] for rows in parts))


def read_cola(data: Path) -> Parts:
    """Read sentences; 1 is grammatical."""
    parts = (columns(data / "glue" / f"CoLA.{part}.tsv.xz", 4, header="") for part in GLUE_PARTS)
    return Parts(*([(text, label) for _, label, _, text in rows] for rows in parts))


GLUE_PARTS = ("train", "val", "dev")
"""The labels of the official test parts are not public: `dev` is reported."""

DATA_SETS: dict[str, Callable[[Path], Parts]] = {
    "trec": read_trec,
    "sst2": read_sst2,
    "rte": read_rte,
    "cola": read_cola,
}


def columns(path: Path, number: int, header: str = "label") -> Iterator[Row]:
    """Read lines of so many columns; a header ends with its own name of the label."""
    for line in read_lines(str(path)):
        found = tuple(column.strip() for column in line.split("\t"))
        if len(found) != number:
            raise DataError(f"{path}: {number} columns were expected, not {len(found)}: {line!r}")
        if found[-1] != header:
            yield found


def without(rows: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """Leave out the texts that are in another part."""
    texts = {row[0] for row in others}
    return [row for row in rows if row[0] not in texts]


def smallest_hashes(texts: Iterable[str], number: int) -> set[str]:
    """Choose texts in a way that looks random and is the same everywhere."""
    return set(sorted(texts, key=lambda text: sha256(text.encode()).digest())[:number])


def whole_sentences(texts: Iterable[str]) -> set[str]:
    """Return the texts that are not part of another one."""
    whole: set[str] = set()
    seen: set[str] = set()
    for text in sorted(texts, key=lambda text: -len(text.split())):
        if text not in seen:
            whole.add(text)
            seen.update(phrases(text))
    return whole


def phrases(sentence: str) -> Iterator[str]:
    """Return all sequences of words of a sentence."""
    words = sentence.split()
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield " ".join(words[start:end])


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write the columns of each row; return the number of rows."""
    lines = ["\t".join(row) + "\n" for row in rows]
    write_text(path, "".join(lines))
    return len(lines)


if __name__ == "__main__":
    run(app)
