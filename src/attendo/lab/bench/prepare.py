"""The speed of data preparation, stage by stage."""

import math
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

import torch

from attendo.config import DataConfig, Recipe
from attendo.data.batches import Layout, Position, stream
from attendo.data.builtin import sentences
from attendo.data.check import check_corpus
from attendo.data.corpus import Corpus
from attendo.data.readers import RecordFiles
from attendo.data.texts import open_texts
from attendo.lab.bench.results import Report, Row, settings_of, settled_recipe
from attendo.lab.clock import describe, timed
from attendo.reporter import Reporter
from attendo.training.prepare import make_task, open_prepared, prepare

CPU = torch.device("cpu")

BUILTIN_PAIRS = 20_000
"""Pairs of the built-in corpus that are used where no files are given."""

STAGES = ("read", "check", "vocabulary", "encode", "batches")


def bench_prepare(name: str, overrides: Mapping[str, Any], reporter: Reporter) -> Report:
    """Measure every stage between files and batches; nothing is left behind."""
    if any(key in overrides for key in ("data.source", "data.target", "data.pairs")):
        overrides = {"data.builtin": 0, **overrides}  # files that are given come before it
    recipe = settled_recipe(name, overrides)
    data, notes = recipe.data, []
    files = [*data.source, *data.target, *data.pairs]
    with (
        tempfile.TemporaryDirectory(prefix="attendo-bench-") as temporary,
        reporter.bar("preparing", len(STAGES)) as advance,
    ):
        folder = Path(temporary)
        if not files:
            written = _built_in(data, folder / "pairs.tsv")
            recipe = recipe.model_copy(update={"data": written})
            notes = [f"{BUILTIN_PAIRS:,} pairs of the built-in corpus, written to a file"]
        rows = []
        for row in _stages(recipe, folder / "prepared"):
            rows.append(row)
            advance(1, row["stage"])
    settings = settings_of(name, recipe, files=files)
    return Report("prepare", describe(CPU), settings, rows, notes)


def _built_in(data: DataConfig, path: Path) -> DataConfig:
    """Write pairs of the built-in corpus to files, which are then read as any others."""
    with path.open("w", encoding="utf-8") as file:
        for sentence in islice(sentences(seed=0), BUILTIN_PAIRS):
            file.write(f"{sentence.source}\t{sentence.target}\n")
    return data.model_copy(update={"builtin": 0, "pairs": (str(path),)})


def _stages(recipe: Recipe, folder: Path) -> Iterator[Row]:
    data = recipe.data
    texts, seconds = timed(lambda: open_texts(data), CPU)
    yield _row("read", texts.n_train + len(texts.valid) + len(texts.test), seconds)

    files = RecordFiles(data.source, data.target, data.pairs)
    report, seconds = timed(lambda: check_corpus(files), CPU)
    yield _row("check", report.corpora[0].pairs, seconds)

    task, seconds = timed(lambda: make_task(recipe, texts), CPU)
    every = math.ceil(texts.n_train / recipe.tokenizer.sample)
    yield _row("vocabulary", math.ceil(texts.n_train / every), seconds)

    _, seconds = timed(lambda: prepare(texts, task, recipe, folder), CPU)
    yield _row("encode", texts.n_train, seconds)

    corpus = open_prepared(folder, task, recipe).train
    layout = task.layout(data, recipe.training.batch_tokens)
    filled, seconds = timed(lambda: _epoch(corpus, layout, recipe.training.seed), CPU)
    yield {**_row("batches", corpus.size, seconds), **filled}


def _row(stage: str, pairs: int, seconds: float) -> Row:
    return {"stage": stage, "pairs": pairs, "seconds": seconds, "pairs_per_second": pairs / seconds}


def _epoch(corpus: Corpus, layout: Layout, seed: int) -> dict[str, float]:
    """Build all batches of one epoch, in this thread; return how full they are."""
    in_epoch = takewhile(lambda item: not item[0].epoch, stream(corpus, layout, seed, Position()))
    tokens, places = [0, 0], [0, 0]
    for _, batch in in_epoch:
        for side, grid in enumerate(batch.inputs.values()):
            tokens[side] += int((grid.segments > 0).sum())
            places[side] += grid.ids.numel()
    return {"source_fill": tokens[0] / places[0], "target_fill": tokens[1] / places[1]}
