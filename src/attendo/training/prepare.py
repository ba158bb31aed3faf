"""Preparing the data of a run: learn the vocabularies, encode every pair once, write the ids."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from attendo.bundle import write_words
from attendo.config import DataConfig, Recipe, TokenizerConfig
from attendo.data.corpus import (
    Corpus,
    Numbers,
    PairWriter,
    Ragged,
    StoredSide,
    chunks,
    open_corpus,
    ragged,
    read_texts,
    write_texts,
)
from attendo.data.readers import Pair
from attendo.data.texts import Texts
from attendo.errors import AttendoError, BundleError, DataError
from attendo.files import write_folder, write_json
from attendo.tasks import Translation
from attendo.text import (
    Segmentations,
    Tokenizer,
    WordCounter,
    Words,
    iterate_sentences,
    load_tokenizer,
    sample_segmentations,
    train_tokenizer,
)

SIDES = ("source", "target")

DRAWS = 16
"""Segmentations of each word that subword regularisation chooses among."""

SENTENCE_SAMPLE = 10_000
"""Training sources whose sentences are counted."""

Encoded = list[tuple[list[int], list[int]]]


@dataclass(slots=True)
class PrepareReport:
    """How many training pairs were kept, and why others were not."""

    kept: int = 0
    too_long: int = 0
    uneven: int = 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """All data of a run, ready for training."""

    train: Corpus
    valid: Corpus
    valid_texts: list[Pair]
    test_texts: list[Pair]


def make_task(recipe: Recipe, texts: Texts) -> Translation:
    """Learn or load the vocabularies."""
    config = recipe.tokenizer
    if config.shared:
        both = chain.from_iterable(_sample(texts, config))
        source = target = _tokenizer(config, config.path, both)
    else:
        sources = (pair.source for pair in _sample(texts, config))
        source = _tokenizer(config, config.path, sources)
        targets = (pair.target for pair in _sample(texts, config))
        target = _tokenizer(config, config.target_path, targets)
    if config.dropout:  # says now, not after the encoding, that there is nothing to leave out
        source.merges(), target.merges()
    return Translation(source, target, recipe.data.max_length)


def _tokenizer(config: TokenizerConfig, path: str | None, lines: Iterator[str]) -> Tokenizer:
    if path is not None:
        return load_tokenizer(path)
    return train_tokenizer(config.kind, lines, config.vocabulary)


def _sample(texts: Texts, config: TokenizerConfig) -> Iterator[Pair]:
    """Take pairs from the whole corpus: its beginning may be of one year or one kind."""
    every = math.ceil(texts.n_train / config.sample)
    return islice(texts.train(), 0, None, every)


def set_sentences(recipe: Recipe, count: Callable[[], int]) -> Recipe:
    """Translate as many sentences together as are counted, unless the recipe says how many."""
    if "sentences" in recipe.decoding.model_fields_set:
        return recipe
    decoding = recipe.decoding.model_copy(update={"sentences": count()})
    return recipe.model_copy(update={"decoding": decoding})


def sentences_per_source(texts: Texts) -> int:
    """Return how many sentences a training source normally has: a quarter has as many or more."""
    every = math.ceil(texts.n_train / SENTENCE_SAMPLE)
    counts = sorted(
        sum(1 for sentence in iterate_sentences(pair.source) if sentence.text)
        for pair in islice(texts.train(), 0, None, every)
    )
    return max(1, counts[len(counts) * 3 // 4])


def prepare(
    texts: Texts,
    task: Translation,
    recipe: Recipe,
    folder: Path,
    done: Callable[[int], None] = lambda n: None,
) -> PrepareReport:
    """Encode all pairs into a folder that `open_prepared` opens."""
    report = PrepareReport()
    words = WordCounter()

    def usable() -> Iterator[tuple[Encoded, list[Pair]]]:
        for encoded, pairs in _usable(texts, task, recipe.data, report, done):
            words.add(pair.source for pair in pairs)
            yield encoded, pairs

    def fill(temporary: Path) -> None:
        write_texts(temporary / "valid.jsonl", texts.valid)
        write_texts(temporary / "test.jsonl", texts.test)
        if recipe.tokenizer.dropout:
            _write_words(usable(), task, recipe, temporary)
        else:
            writer = PairWriter(temporary, max(task.source.size, task.target.size))
            for encoded, _ in usable():
                writer.add(encoded)
            writer.close()
        write_words(temporary, words.words())
        write_json(temporary / "report.json", asdict(report))
        if not report.kept:
            raise DataError(
                f"no training pair is left: {report.too_long} are longer than data.max_length = "
                f"{recipe.data.max_length} tokens, {report.uneven} differ in length by more than "
                "data.max_ratio"
            )

    write_folder(folder, fill)
    return report


def open_prepared(folder: Path, task: Translation, recipe: Recipe) -> Prepared:
    """Open what `prepare` has written."""
    sizes = (task.source.size, task.target.size)
    if recipe.tokenizer.dropout:
        source, target = (RegularisedSide(folder, *side) for side in zip(SIDES, sizes, strict=True))
        train = Corpus(source, target, open_corpus(folder).size)
    else:
        train = open_corpus(folder, *sizes)
    valid = read_texts(folder / "valid.jsonl")
    return Prepared(train, _in_memory(valid, task), valid, read_texts(folder / "test.jsonl"))


def _usable(
    texts: Texts,
    task: Translation,
    data: DataConfig,
    report: PrepareReport,
    done: Callable[[int], None],
) -> Iterator[tuple[Encoded, list[Pair]]]:
    """Encode chunk by chunk and leave out what a row cannot hold."""
    for chunk in chunks(texts.train()):
        sources = task.source.encode_batch([pair.source for pair in chunk])
        targets = task.target.encode_batch([pair.target for pair in chunk])
        encoded, kept = [], []
        for pair, source, target in zip(chunk, sources, targets, strict=True):
            longer, shorter = sorted((len(source), len(target)), reverse=True)
            if longer >= data.max_length:  # one place is for </s>
                report.too_long += 1
            elif not shorter or (data.max_ratio and longer > data.max_ratio * shorter):
                report.uneven += 1
            else:
                encoded.append((source, target))
                kept.append(pair)
        report.kept += len(kept)
        done(len(chunk))
        yield encoded, kept


def _write_words(
    usable: Iterator[tuple[Encoded, list[Pair]]],
    task: Translation,
    recipe: Recipe,
    folder: Path,
) -> None:
    """Store pairs as numbers of words, and for each word the segmentations to choose among."""
    words = (Words(task.source), Words(task.target))
    writer = PairWriter(folder, 2**32 - 1)
    for _, pairs in usable:
        sources = words[0].add([pair.source for pair in pairs])
        targets = words[1].add([pair.target for pair in pairs])
        writer.add(zip(sources, targets, strict=True))
    writer.close()
    for name, tokenizer, inventory in zip(SIDES, (task.source, task.target), words, strict=True):
        sampled = sample_segmentations(
            tokenizer, inventory.words, recipe.tokenizer.dropout, DRAWS, recipe.training.seed
        )
        with (folder / f"{name}.segmentations.npz").open("wb") as file:
            sampled.save(file)


class RegularisedSide:
    """One language whose words are segmented anew each time (BPE-dropout)."""

    def __init__(self, folder: Path, name: str, n_ids: int) -> None:
        path = folder / f"{name}.segmentations.npz"
        try:
            with path.open("rb") as file:
                self.segmentations = Segmentations.load(file)
            if len(self.segmentations.ids) and self.segmentations.ids.max() >= n_ids:
                raise ValueError(f"the id {self.segmentations.ids.max()} is not in the vocabulary")
        except (OSError, ValueError, AttendoError) as error:
            raise BundleError(
                f"the prepared data {path} cannot be read ({error}); "
                "delete its folder to have it made again"
            ) from None
        self.words = StoredSide(folder / name, self.segmentations.n_words)

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Draw a segmentation for every word of these sentences."""
        words = self.words.take(numbers, generator)
        ids, lengths = self.segmentations.expand(words.ids, generator)
        ends = np.concatenate(([0], np.cumsum(lengths)))
        return Ragged(ids.astype(np.int64), ends[words.offsets])


class MemorySide:
    """One language of a small corpus."""

    def __init__(self, encoded: Ragged) -> None:
        self.encoded = encoded

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Copy the ids of these sentences."""
        return self.encoded.take(numbers)


def _in_memory(pairs: list[Pair], task: Translation) -> Corpus:
    sources = task.source.encode_batch([pair.source for pair in pairs])
    targets = task.target.encode_batch([pair.target for pair in pairs])
    return Corpus(MemorySide(ragged(sources)), MemorySide(ragged(targets)), len(pairs))
