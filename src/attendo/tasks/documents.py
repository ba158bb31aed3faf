"""What the tasks on text alone have in common: records, vocabulary, and batches to evaluate."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from attendo.config import DataConfig, Recipe
from attendo.data.batches import Batch, once
from attendo.data.corpus import Corpus, MemorySide, ragged
from attendo.data.readers import Document, Pair
from attendo.errors import DataError
from attendo.tasks.base import Done, Example, Records, Task, learn_tokenizer, read_tokenizer
from attendo.text import Tokenizer

TOKENS = 4096
"""Positions that are evaluated at a time."""


class DocumentTask(Task):
    """A task on texts without anything else."""

    record_type: ClassVar[type[Any]] = Document
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, tokenizer: Tokenizer, recipe: Recipe) -> None:
        self.tokenizer = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.max_length = recipe.data.max_length

    @classmethod
    def convert(cls, pair: Pair) -> Document:
        """Return the English side."""
        return Document(pair.source)

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "DocumentTask":
        """Learn the vocabulary from the training texts, or load it."""
        texts = (record.text for record in records())
        return cls(learn_tokenizer(recipe, texts, recipe.tokenizer.path), recipe)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "DocumentTask":
        """Load the tokenizer of a run folder."""
        return cls(read_tokenizer(folder / "tokenizer.json"), recipe)

    def files(self) -> dict[str, str]:
        """Return the tokenizer."""
        return {"tokenizer.json": self.tokenizer.to_json()}

    def decode(self, example: Example) -> Document:
        """Decode ids to text."""
        return Document(self.tokenizer.decode(example[0]))

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of the vocabulary."""
        return {"text": self.tokenizer.size}

    @property
    def pads(self) -> dict[str, int]:
        """Return the id of <pad>."""
        return {"text": self.tokenizer.specials.pad}

    def split(
        self, records: Sequence[Document], room: int, dropped: Counter[str]
    ) -> Iterator[tuple[Document, Example]]:
        """Encode texts as ids, in parts of at most `room` tokens."""
        encoded = self.tokenizer.encode_batch([record.text for record in records])
        for record, ids in zip(records, encoded, strict=True):
            if not ids:
                dropped["no tokens"] += 1
            for start in range(0, len(ids), room):
                yield record, (ids[start : start + room],)

    def batches(
        self, records: Sequence[Document], device: torch.device, done: Done
    ) -> Iterator[Batch]:
        """Yield records in batches to evaluate, and report those that are finished."""
        if not records:
            raise DataError("no text to score: give at least one line")
        data = DataConfig(max_length=self.max_length)
        ids = [example[0] for _, example in self.encode(records, data, Counter())]
        corpus = Corpus({"text": MemorySide(ragged(ids))}, len(ids))
        share, finished = len(records) / max(1, len(ids)), 0.0
        for batch in once(corpus, self.layout(data, max(TOKENS, data.max_length))):
            yield batch.to(device)
            before, finished = finished, finished + share * len(batch.records)
            done(round(finished) - round(before))
