"""What the tasks on text alone have in common: records and vocabulary."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attendo.config import DataConfig, Recipe
from attendo.data.builtin import Sentence
from attendo.data.readers import Document
from attendo.runs import read_tokenizer
from attendo.tasks.base import Example, Records, Task, learn_tokenizer
from attendo.tasks.inspection import first_sentences
from attendo.text import Tokenizer

NO_TOKENS = "no tokens"
"""Why a text is left out."""

TOKENS = 4096
"""Positions that are evaluated at a time."""


class DocumentTask(Task):
    """A task on texts without anything else."""

    record_type: ClassVar[type[Any]] = Document
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def __init__(self, tokenizer: Tokenizer, data: DataConfig) -> None:
        self.tokenizer = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.data = data
        self.max_length = data.max_length

    @classmethod
    def convert(cls, sentence: Sentence) -> Document:
        """Return the English side."""
        return Document(sentence.source)

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "DocumentTask":
        """Learn the vocabulary from the training texts, or load it."""
        texts = (record.text for record in records())
        return cls(learn_tokenizer(recipe, texts, recipe.tokenizer.path), recipe.data)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "DocumentTask":
        """Load the tokenizer of a run folder."""
        return cls(read_tokenizer(folder / "tokenizer.json"), recipe.data)

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

    @abstractmethod
    def check_inspectable(self, source: str) -> None:
        """Refuse texts that are too long to be inspected."""

    def beginning(self, text: str) -> str:
        """Return the sentences at the start of a document that can be inspected."""
        return first_sentences(text, self.check_inspectable)

    def encode_texts(self, records: Sequence[Document]) -> list[list[int]]:
        """Encode texts as ids, without special tokens."""
        return self.tokenizer.encode_batch([record.text for record in records])

    def scorable(self, records: Iterable[Document], dropped: Counter[str]) -> Iterator[Document]:
        """Yield the texts with tokens."""
        chosen = list(records)
        for record, ids in zip(chosen, self.encode_texts(chosen), strict=True):
            if ids:
                yield record
            else:
                dropped[NO_TOKENS] += 1


def split(ids: list[int], room: int) -> Iterator[list[int]]:
    """Split the ids of a text into parts that have room in a row."""
    for start in range(0, len(ids), room):
        yield ids[start : start + room]
