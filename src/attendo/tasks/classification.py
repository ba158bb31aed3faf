"""Classification of texts, and of pairs of texts: one label for each."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attendo.config import AnyModelConfig
from attendo.data.batches import Shaped
from attendo.data.builtin import Sentence
from attendo.data.corpus import Ragged
from attendo.data.readers import Record
from attendo.models import Encoder, build_model
from attendo.models.classifier import Classifier
from attendo.tasks.base import Example
from attendo.tasks.labels import Row, TextLabelTask, Texts, label_first


class Labelled(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class LabelledPair(NamedTuple):
    """Two texts and the label of both together."""

    text: str
    second: str
    label: str


class Prediction(NamedTuple):
    """The label of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of all labels."""

    def to_text(self) -> str:
        """Return the label and its probability."""
        return f"{self.label}\t{self.probability:.4f}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything by name."""
        return self._asdict()


class Classification(TextLabelTask):
    """A text to a label, read off the first position, or off the mean of all."""

    record_type: ClassVar[type[Any]] = Labelled
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "some text")
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog sleeps in the big house.",
        "Der alte Hund schläft in dem großen Haus.",
    )

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return one of the sides, with its language as the label."""
        if len(sentence.source) % 2 == 0:
            return Labelled(sentence.source, "English")
        return Labelled(sentence.target, "German")

    @classmethod
    def labels_of(cls, record: Record) -> list[str]:
        """Return the only label."""
        return [record.label]

    def rows(self, texts: Sequence[Texts], max_length: int) -> list[list[Row]]:
        """Return one row for each text; long ones are cut at the end."""
        encoded = self.tokenizer.encode_batch([text for (text,) in texts])
        return [[self._row(ids[: max_length - 2])] for ids in encoded]

    def _row(self, ids: list[int]) -> Row:
        specials = self.tokenizer.specials
        return Row([specials.bos, *ids, specials.eos], [0])

    def example(self, row: Row, numbers: Sequence[int]) -> Example:
        """Return the ids without the special tokens at the ends, and the label."""
        return row.ids[1:-1], list(numbers)

    def decode(self, example: Example) -> Record:
        """Decode ids to text and label."""
        text, label = example
        return Labelled(self.tokenizer.decode(text), self.labels[label[0]])

    @property
    def sizes(self) -> dict[str, int]:
        """Return the size of the vocabulary, and the number of labels."""
        return {"text": self.tokenizer.size, "label": len(self.labels)}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add <s> before and </s> after a text, and label the first position."""
        specials = self.tokenizer.specials
        text = columns["text"].begun_with(specials.bos).ended_with(specials.eos)
        return Shaped({"text": text}, label_first(text, columns["label"]))

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> Classifier:
        """Build the same for a vocabulary of this size and so many labels."""
        encoder = build_model(config, sizes["text"], promise=Encoder)
        return Classifier(encoder, config.d_model, sizes["label"], pooling=config.pooling)

    def answer(self, texts: Texts, probabilities: list[list[float]]) -> Prediction:
        """Return the most probable label."""
        (found,) = probabilities
        best = self.best(found)
        named = dict(zip(self.labels, found, strict=True))
        return Prediction(self.labels[best], found[best], named)

    def predicted(self, answer: Prediction) -> list[str]:
        """Return the only label."""
        return [answer.label]


class PairClassification(Classification):
    """Two texts to a label: <s> first </s> second </s>."""

    name: ClassVar[str] = "pair-classification"
    models: ClassVar[str] = "classifiers of pairs"
    record_type: ClassVar[type[Any]] = LabelledPair
    inputs: ClassVar[tuple[str, ...]] = ("text", "second")
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "one text", "another text")

    @classmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return both halves of the English side, in their order or not."""
        words = sentence.source.split()
        first, second = (" ".join(half) for half in np.array_split(words, 2))
        if len(sentence.source) % 2 == 0:
            return LabelledPair(first, second, "in order")
        return LabelledPair(second, first, "swapped")

    def beginning(self, text: str) -> str:
        """Return the first line of a document that is not empty: a pair."""
        return next((line.strip() for line in text.splitlines() if line.strip()), "")

    def rows(self, texts: Sequence[Texts], max_length: int) -> list[list[Row]]:
        """Return one row for each pair; of a pair that is too long, the longer text is cut."""
        room, end = max_length - 3, self.tokenizer.specials.eos
        encoded = self.tokenizer.encode_batch([text for pair in texts for text in pair])
        found = []
        for first, second in zip(encoded[::2], encoded[1::2], strict=True):
            n_first = min(len(first), max(room - len(second), (room + 1) // 2))
            found.append([self._row([*first[:n_first], end, *second[: room - n_first]])])
        return found

    def decode(self, example: Example) -> Record:
        """Decode ids to both texts and the label."""
        ids, label = example
        end = ids.index(self.tokenizer.specials.eos)
        first, second = map(self.tokenizer.decode, (ids[:end], ids[end + 1 :]))
        return LabelledPair(first, second, self.labels[label[0]])

    def read(self, text: str, target: str | None) -> Texts:
        """Return both texts: the second is given as target, or after a TAB."""
        return self.parse(text if target is None else (text, target))
