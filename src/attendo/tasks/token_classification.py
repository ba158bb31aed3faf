"""Classification of words: a label for each, such as parts of speech or names of entities."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attendo.data.batches import Shaped
from attendo.data.builtin import Sentence
from attendo.data.corpus import Ragged
from attendo.data.readers import Record
from attendo.specials import IGNORE
from attendo.tasks.base import Example
from attendo.tasks.inspection import first_sentence
from attendo.tasks.labels import NOT_ONE_EACH, Row, TextLabelTask, Texts


class LabelledWords(NamedTuple):
    """Words and their labels, both separated by spaces."""

    text: str
    labels: str


class TaggedText(NamedTuple):
    """The labels of the words of a text."""

    words: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: tuple[float, ...]
    """Of these labels."""

    def to_text(self) -> str:
        """Return a line with word and label for each word, and an empty line."""
        lines = zip(self.words, self.labels, strict=True)
        return "".join(f"{word}\t{label}\n" for word, label in lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return self._asdict()


class TokenClassification(TextLabelTask):
    """Each word to a label, read off its first token."""

    name: ClassVar[str] = "token-classification"
    models: ClassVar[str] = "classifiers of words"
    labels_words: ClassVar[bool] = True
    record_type: ClassVar[type[Any]] = LabelledWords
    columns: ClassVar[tuple[str, ...]] = ("text", "labels")
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "some words")

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return the German side in lower case, labelled with the case of its words."""
        words = sentence.target.split()
        labels = ("upper" if word[0].isupper() else "lower" for word in words)
        return LabelledWords(" ".join(words).lower(), " ".join(labels))

    @classmethod
    def labels_of(cls, record: Record) -> list[str]:
        """Return the label of each word."""
        labels: list[str] = record.labels.split()
        return labels

    def beginning(self, text: str) -> str:
        """Return the first sentence of a document."""
        return first_sentence(text)

    def rows(self, texts: Sequence[Texts], max_length: int) -> list[list[Row]]:
        """Split texts between words into rows; only very long words are cut."""
        words = [text.split() for (text,) in texts]
        spaced = [f" {word}" if at else word for some in words for at, word in enumerate(some)]
        encoded = iter(self.tokenizer.encode_batch(spaced))
        return [list(self._rows([next(encoded) for _ in some], max_length - 2)) for some in words]

    def _rows(self, words: list[list[int]], room: int) -> Iterator[Row]:
        """Fill rows with words, one after the other."""
        specials = self.tokenizer.specials
        ids: list[int] = []
        places: list[int] = []
        for word in words:
            # Of a word without tokens, such as a control character, something has to be labelled.
            tokens = word[:room] or [specials.eos]
            if len(ids) + len(tokens) > room:
                yield Row([specials.bos, *ids, specials.eos], places)
                ids, places = [], []
            places.append(1 + len(ids))
            ids += tokens
        if ids:
            yield Row([specials.bos, *ids, specials.eos], places)

    def scorable(
        self, records: Iterable[LabelledWords], dropped: Counter[str]
    ) -> Iterator[LabelledWords]:
        """Yield the records with one label for each word."""
        for record in records:
            if len(record.text.split()) == len(self.labels_of(record)):
                yield record
            else:
                dropped[NOT_ONE_EACH] += 1

    def example(self, row: Row, numbers: Sequence[int]) -> Example:
        """Return the ids, and for each the number of its label, from 1; 0 if it has none."""
        labels = [0] * len(row.ids)
        for place, number in zip(row.places, numbers, strict=True):
            labels[place] = 1 + number
        return row.ids[1:-1], labels[1:-1]

    def decode(self, example: Example) -> Record:
        """Decode ids to words and labels."""
        ids, labels = example
        starts = [place for place, label in enumerate(labels) if label]
        words = (
            self.tokenizer.decode(ids[start:end]) for start, end in pairwise([*starts, len(ids)])
        )
        return LabelledWords(
            " ".join(words), " ".join(self.labels[label - 1] for label in labels if label)
        )

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of the vocabulary, and the number of labels with none."""
        return {"text": self.tokenizer.size, "labels": 1 + len(self.labels)}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add <s> before and </s> after a text; neither has a label."""
        specials, (ids, offsets) = self.tokenizer.specials, columns["labels"]
        labels = Ragged(np.where(ids, ids - 1, IGNORE), offsets)
        return Shaped(
            {"text": columns["text"].begun_with(specials.bos).ended_with(specials.eos)},
            labels.begun_with(IGNORE).ended_with(IGNORE),
        )

    def answer(self, texts: Texts, probabilities: list[list[float]]) -> TaggedText:
        """Return the most probable label of each word."""
        numbers = [self.best(found) for found in probabilities]
        return TaggedText(
            words=tuple(texts[0].split()),
            labels=tuple(self.labels[number] for number in numbers),
            probabilities=tuple(
                found[number] for found, number in zip(probabilities, numbers, strict=True)
            ),
        )

    def predicted(self, answer: TaggedText) -> list[str]:
        """Return the label of each word."""
        return list(answer.labels)
