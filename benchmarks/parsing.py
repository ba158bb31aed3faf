"""Parsers on treebanks: folds by file, or training and test files; bracketing F1 with intervals.

PYTHONPATH=src python3 benchmarks/parsing.py folds treebank.zip parsing-spans --out folds
PYTHONPATH=src python3 benchmarks/parsing.py split gum parsing-spans --from minilm --out gum

Each fold, and each split, is a run of its own and takes minutes on a GPU. What is finished is not
done again, and what was stopped is continued: give the same command until the table has all rows.
"""

import json
import lzma
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from script import run

from attendo.bundle import PARAMETERS, RECIPE, find_device, load_bundle
from attendo.config import parse_overrides
from attendo.data.readers import ReadReport, RecordFiles, read_records
from attendo.data.treebanks import ParsedSentence
from attendo.errors import DataError
from attendo.files import write_text
from attendo.reporter import Console
from attendo.tasks.tree_scores import score_trees
from attendo.text.trees import Tree, parse_tree
from attendo.training.run import train_run

PARTS = ("train", "dev", "test", "gentle")
"""Files of a treebank with its own split, PART.ptb.tsv.xz; the last two are tested on."""

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Source = Annotated[Path, typer.Argument(help="The treebank: a folder or a zip file.")]
RecipeName = Annotated[str, typer.Argument(help="parsing, parsing-spans or parsing-lstm.")]
Out = Annotated[Path, typer.Option(help="Folder for data, runs and predicted trees.")]
Start = Annotated[str | None, typer.Option("--from", help="A trained encoder to start from.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
]


@app.command()
def folds(
    source: Source,
    recipe: RecipeName,
    out: Out,
    n: Annotated[int, typer.Option(min=2, help="Number of folds.")] = 10,
    fold: Annotated[list[int] | None, typer.Option(help="Only these folds, from 0.")] = None,
    start: Start = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Test on every n-th file and train on the others, n times; each sentence is tested once."""
    files = list(_treebank_files(source))
    if len(files) < n:
        raise DataError(f"{source} has {len(files)} .mrg files; expected at least {n}")
    for number in range(n) if fold is None else fold:
        folder = out / f"{recipe}-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        _join(folder / "train.mrg", [text for at, text in enumerate(files) if at % n != number])
        _join(folder / "test.mrg", files[number::n])
        data = {
            "data.files": str(folder / "train.mrg"),
            "data.test_files": str(folder / "test.mrg"),
        }
        _train(recipe, data, folder / "run", start, device, settings)
        _parse(folder / "run", folder / "test.mrg", device)
    done = [path for number in range(n) if (path := out / f"{recipe}-{number}" / "run").exists()]
    tested = [(run_folder, run_folder.parent / "test.mrg") for run_folder in done]
    _report(f"{recipe}, {len(done)} of {n} folds", tested, out / f"{recipe}.json")


@app.command()
def split(
    source: Source,
    recipe: RecipeName,
    out: Out,
    start: Start = None,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train on train, choose the checkpoint on dev, and test on test and gentle."""
    out.mkdir(parents=True, exist_ok=True)
    paths = {part: out / f"{part}.tsv" for part in PARTS}
    for part, path in paths.items():
        with lzma.open(source / f"{part}.ptb.tsv.xz", "rt", encoding="utf-8") as file:
            write_text(path, file.read())
    files = {"files": "train", "valid_files": "dev", "test_files": "test"}
    data = {f"data.{key}": str(paths[part]) for key, part in files.items()}
    name = f"{recipe}-{Path(start).name}" if start else recipe
    folder = out / name
    _train(recipe, data, folder, start, device, settings)
    for part in PARTS[2:]:
        _parse(folder, paths[part], device)
        _report(f"{name}, {part}", [(folder, paths[part])], out / f"{name}-{part}.json")


def _treebank_files(source: Path) -> Iterator[str]:
    """Yield the contents of the .mrg files, in order."""
    if source.is_dir():
        yield from (path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.mrg")))
        return
    with zipfile.ZipFile(source) as archive:
        for name in sorted(archive.namelist()):
            if re.search(r"\.mrg$", name):
                yield archive.read(name).decode()


def _join(path: Path, texts: list[str]) -> None:
    write_text(path, "\n".join(texts))


def _train(
    recipe: str,
    data: dict[str, Any],
    folder: Path,
    start: str | None,
    device: str,
    settings: list[str] | None,
) -> None:
    """Train a run, continue it, or leave it as it is if it is finished."""
    if (folder / PARAMETERS).exists():
        return
    is_begun = (folder / RECIPE).exists() and (folder / "state" / "data").exists()
    begin = data | ({"start": start} if start else {}) | parse_overrides(settings or [])
    where = find_device(device)
    train_run(recipe, {} if is_begun else begin, folder, where, resume=is_begun, reporter=Console())


def _parse(folder: Path, trees: Path, device: str) -> None:
    """Write the trees that a run predicts for the sentences of a file, one a line."""
    path = folder / f"predicted-{trees.stem}.mrg"
    if path.exists():
        return
    bundle = load_bundle(folder, find_device(device))
    where: torch.device = next(bundle.model.parameters()).device
    sentences = [tree.words() for tree in _trees(trees)]
    decoding = bundle.recipe.decoding
    with Console().bar("parsing", len(sentences)) as advance:
        found = bundle.task.parse_words(
            bundle.model, sentences, decoding, where, done=lambda n: advance(n, "")
        )
    write_text(path, "".join(f"{one.to_text()}\n" for one in found))


def _trees(path: Path) -> list[Tree]:
    files = RecordFiles(files=(str(path),), record=ParsedSentence)
    return [parse_tree(record.tree) for record in read_records(files, ReadReport())]


def _report(title: str, tested: list[tuple[Path, Path]], path: Path) -> None:
    """Score all predicted trees together, print the scores and write them."""
    expected, predicted = [], []
    for folder, trees in tested:
        lines = (folder / f"predicted-{trees.stem}.mrg").read_text(encoding="utf-8").splitlines()
        expected += _trees(trees)
        predicted += [parse_tree(line) for line in lines]
    scores = score_trees(expected, predicted).to_dict()
    write_text(path, json.dumps({"title": title, **scores}, indent=2) + "\n")
    low, high = scores["f1_interval"]
    print(
        f"{title}: F1 {scores['f1']:.2f} ({low:.2f} to {high:.2f}), exact {scores['exact']:.2f} %, "
        f"well-formed {scores['well_formed']:.2f} %, {scores['sentences']:,} sentences"
    )


if __name__ == "__main__":
    run(app)
