"""Preparing the data of a run: learn the vocabularies, encode every record once, write the ids."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from attendo.bundle import write_words
from attendo.config import Recipe
from attendo.data.corpus import (
    Corpus,
    CorpusWriter,
    MemorySide,
    Numbers,
    Ragged,
    StoredSide,
    chunks,
    open_corpus,
    ragged,
    read_texts,
    write_texts,
)
from attendo.data.readers import Record
from attendo.data.texts import Texts
from attendo.errors import AttendoError, BundleError, ConfigError, DataError
from attendo.files import read_json, write_folder, write_json
from attendo.tasks import TASKS, Example, Task, Translation
from attendo.text import WordCounter, iterate_sentences
from attendo.text.dropout import Segmentations, Words, sample_segmentations

DRAWS = 16
"""Segmentations of each word that subword regularisation chooses among."""

HELD_OUT = {"validation": "valid.jsonl", "test": "test.jsonl"}
"""Files of held-out records."""

REPORT = "report.json"
_MOST_REPORT_BYTES = 1 << 20

SENTENCE_SAMPLE = 10_000
"""Training sources whose sentences are counted."""


@dataclass(slots=True)
class PrepareReport:
    """How many training examples were kept, and why records were not."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    unscorable: dict[str, Counter[str]] = field(default_factory=dict)
    """Validation and test records that cannot be scored, by reason."""

    def messages(self) -> Iterator[str]:
        """Say what was left out."""
        for reason, count in self.dropped.items():
            yield f"left out {count:,} records: {reason}"
        for part, dropped in self.unscorable.items():
            for reason, count in dropped.items():
                yield f"left out {count:,} {part} records: {reason}"


@dataclass(frozen=True, slots=True)
class Prepared:
    """All data of a run, ready for training."""

    train: Corpus
    n_train: int
    """Number of training records; a long text is several examples of the corpus."""
    valid: Corpus
    valid_texts: list[Record]
    test_texts: list[Record]


def make_task(recipe: Recipe, texts: Texts, start: Path | None = None) -> Task:
    """Learn or load the vocabularies; load everything from the run of the same task, if given."""
    config, kind = recipe.tokenizer, TASKS[recipe.task]
    # A sample of the whole corpus: its beginning may be of one year or one kind.
    every = math.ceil(texts.n_train / config.sample)
    if start is None:
        task = kind.learn(recipe, lambda: islice(texts.train(), 0, None, every))
    else:
        task = kind.load(start, recipe)
    if config.dropout:  # now, not after the encoding
        if not isinstance(task, Translation):
            raise ConfigError(f"tokenizer.dropout cannot be used for the task {recipe.task!r}")
        task.source.merges(), task.target.merges()
    return task


def set_sentences(recipe: Recipe, count: Callable[[], int]) -> Recipe:
    """Set the number of sentences per segment to that of the data, unless the recipe has one."""
    if "sentences" in recipe.decoding.model_fields_set:
        return recipe
    decoding = recipe.decoding.model_copy(update={"sentences": count()})
    return recipe.model_copy(update={"decoding": decoding})


def sentences_per_source(texts: Texts) -> int:
    """Return how many sentences a training source normally has: a quarter has as many or more."""
    every = math.ceil(texts.n_train / SENTENCE_SAMPLE)
    counts = sorted(
        sum(1 for sentence in iterate_sentences(record[0]) if sentence.text)
        for record in islice(texts.train(), 0, None, every)
    )
    return max(1, counts[len(counts) * 3 // 4])


def prepare(
    texts: Texts,
    task: Task,
    recipe: Recipe,
    folder: Path,
    done: Callable[[int], None] = lambda n: None,
) -> PrepareReport:
    """Encode all records into a folder that `open_prepared` opens."""
    report = PrepareReport()
    words = WordCounter()

    def usable() -> Iterator[list[tuple[Record, Example]]]:
        for chunk in chunks(texts.train()):
            encoded = list(task.encode(chunk, recipe.data, report.dropped))
            kept = {id(record): record for record, _ in encoded}.values()  # parts of one only once
            if not task.reads_files:
                words.add(record[0] for record in kept)
            report.kept += len(kept)
            done(len(chunk))
            yield encoded

    def fill(temporary: Path) -> None:
        for part, records in (("validation", texts.valid), ("test", texts.test)):
            dropped = report.unscorable[part] = Counter()
            write_texts(temporary / HELD_OUT[part], _scorable(task, records, part, dropped))
        if recipe.tokenizer.dropout:
            _write_words(usable(), task, recipe, temporary)
        else:
            writer = CorpusWriter(temporary, task.sizes)
            for encoded in usable():
                writer.add(example for _, example in encoded)
            writer.close()
        write_words(temporary, words.words())
        write_json(temporary / REPORT, {"kept": report.kept, "dropped": report.dropped})
        if not report.kept:
            raise DataError(f"no training record is left: {name_reasons(report.dropped)}")

    write_folder(folder, fill)
    return report


def _scorable(task: Task, records: list[Record], part: str, dropped: Counter[str]) -> list[Record]:
    """Return the held-out records that can be scored; one that cannot must not stop a training."""
    kept = list(task.scorable(records, dropped))
    if records and not kept:
        raise DataError(f"no {part} record is left: {name_reasons(dropped)}")
    return kept


def name_reasons(dropped: Counter[str]) -> str:
    """Return why records were left out, and how many."""
    return ", ".join(f"{count:,} {reason}" for reason, count in dropped.items())


def open_prepared(folder: Path, task: Task, recipe: Recipe) -> Prepared:
    """Open what `prepare` has written."""
    if recipe.tokenizer.dropout:
        columns = {
            name: RegularisedSide(folder, name, tokenizer.size)
            for name, tokenizer in zip(task.columns, task.tokenizers.values(), strict=True)
        }
        train = Corpus(columns, open_corpus(folder, dict.fromkeys(task.sizes)).size)
    else:
        train = open_corpus(folder, task.sizes)
    valid, test = (read_texts(folder / name, task.record_type) for name in HELD_OUT.values())
    return Prepared(train, _count_records(folder), _in_memory(valid, task, recipe), valid, test)


def _count_records(folder: Path) -> int:
    path = folder / REPORT
    try:
        return int(read_json(path, _MOST_REPORT_BYTES)["kept"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: Exception) -> BundleError:
    return BundleError(
        f"the prepared data {path} cannot be read ({error}); "
        "delete its folder to have it made again"
    )


def _write_words(
    usable: Iterator[list[tuple[Record, Example]]], task: Task, recipe: Recipe, folder: Path
) -> None:
    """Store texts as numbers of words, and the possible segmentations of each word."""
    tokenizers = dict(zip(task.columns, task.tokenizers.values(), strict=True))
    words = {name: Words(tokenizer) for name, tokenizer in tokenizers.items()}
    writer = CorpusWriter(folder, dict.fromkeys(task.columns, 2**32 - 1))
    for encoded in filter(None, usable):
        columns = zip(*(record for record, _ in encoded), strict=True)
        numbers = [one.add(list(texts)) for one, texts in zip(words.values(), columns, strict=True)]
        writer.add(zip(*numbers, strict=True))
    writer.close()
    for name, tokenizer in tokenizers.items():
        sampled = sample_segmentations(
            tokenizer, words[name].words, recipe.tokenizer.dropout, DRAWS, recipe.training.seed
        )
        with (folder / f"{name}.segmentations.npz").open("wb") as file:
            sampled.save(file)


class RegularisedSide:
    """A column whose words are segmented anew each time (BPE-dropout)."""

    def __init__(self, folder: Path, name: str, n_ids: int) -> None:
        path = folder / f"{name}.segmentations.npz"
        try:
            with path.open("rb") as file:
                self.segmentations = Segmentations.load(file)
            if len(self.segmentations.ids) and self.segmentations.ids.max() >= n_ids:
                raise ValueError(f"the id {self.segmentations.ids.max()} is not in the vocabulary")
        except (OSError, ValueError, AttendoError) as error:
            raise _unreadable(path, error) from None
        self.words = StoredSide(folder / name, self.segmentations.n_words)

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        """Draw a segmentation for every word of these records."""
        words = self.words.take(numbers, generator)
        ids, lengths = self.segmentations.expand(words.ids, generator)
        ends = np.concatenate(([0], np.cumsum(lengths)))
        return Ragged(ids.astype(np.int64), ends[words.offsets])


def _in_memory(records: list[Record], task: Task, recipe: Recipe) -> Corpus:
    """Encode validation records; what a row cannot hold is left out, as in training."""
    data = recipe.data.model_copy(update={"max_ratio": 0.0})
    dropped: Counter[str] = Counter()
    examples = [example for _, example in task.encode(records, data, dropped)]
    if records and not examples:
        raise DataError(
            f"no validation record can be used: {name_reasons(dropped)}; give others, or more"
        )
    columns = {
        name: MemorySide(ragged([example[place] for example in examples]))
        for place, name in enumerate(task.columns)
    }
    return Corpus(columns, len(examples))
