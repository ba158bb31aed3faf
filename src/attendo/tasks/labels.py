"""What tasks that predict labels have in common, whatever the labels belong to.

A task of this kind says which rows of ids its texts become, and at which places of a row a label is
predicted. Vocabulary and labels, training examples, predictions, scores and inspection follow.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, Recipe
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Record
from attendo.errors import DataError
from attendo.models import Encoder, Memory, Recording, build_model
from attendo.models.classifier import Classifier
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.runs import LABELS, read_labels, read_tokenizer, write_labels
from attendo.specials import IGNORE
from attendo.tasks.base import Done, Example, Metric, Records, learn_tokenizer
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    first_sentences,
    refuse_target,
)
from attendo.tasks.label_scores import LabelScores, score_labels
from attendo.tasks.predicting import Answer, PredictingTask, encode_rows, finite
from attendo.text import Tokenizer

MOST_LABELS = 10_000

NOT_ONE_EACH = "not one label for each word"
"""Why a record cannot be used."""

Texts = tuple[str, ...]
"""The texts of a record without its label."""


class Row(NamedTuple):
    """Ids that a model reads, with special tokens."""

    ids: list[int]
    places: list[int]
    """Where a label is predicted."""


class LabelTask(PredictingTask):
    """Something to labels; the last column of a record has its label, or its labels."""

    name: ClassVar[str] = "classification"
    models: ClassVar[str] = "classifiers"
    metric: ClassVar[Metric] = Metric("accuracy", "accuracy", higher_is_better=True, unit=" %")
    labels_words: ClassVar[bool] = False
    """Whether the labels belong to words, not to whole texts."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = tuple(labels)
        self.numbers = {label: number for number, label in enumerate(self.labels)}

    # -- what a task of this kind says

    @classmethod
    @abstractmethod
    def labels_of(cls, record: Record) -> list[str]:
        """Return the labels of a record, one for each place."""

    @abstractmethod
    def predicted(self, answer: Any) -> list[str]:
        """Return the labels of a prediction."""

    # -- labels

    @classmethod
    def collect_labels(cls, records: Records) -> list[str]:
        """Return all labels of the training records, in order."""
        labels = sorted({label for record in records() for label in cls.labels_of(record)})
        if not 2 <= len(labels) <= MOST_LABELS:
            raise DataError(
                f"the training data has {len(labels):,} different labels; expected 2 to "
                f"{MOST_LABELS:,}: a line is {' TAB '.join(cls.record_type._fields)}"
            )
        return labels

    def files(self) -> dict[str, str]:
        """Return the labels."""
        return {LABELS: write_labels(labels=self.labels)}

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether all labels are known."""
        return all(label in self.numbers for one in records for label in self.labels_of(one))

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return the labels of these numbers."""
        return [self.labels[number] for number in numbers]

    def best(self, probabilities: list[float]) -> int:
        """Return the number of the most probable label."""
        return max(range(len(self.labels)), key=probabilities.__getitem__)

    def evaluate(
        self,
        model: Classifier,
        records: Sequence[Record],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> LabelScores:
        """Measure accuracy, and F1 of each label."""
        if not records:
            raise DataError("no texts to score: give at least one line")
        given = [record[:-1] for record in records]
        answers = self.predict(model, given, options, device, done=done)
        texts = []
        for record, answer in zip(records, answers, strict=True):
            expected, predicted = self.labels_of(record), self.predicted(answer)
            if len(expected) != len(predicted):
                raise DataError(
                    f"{record[0]!r:.60} has {len(predicted)} words and {len(expected)} labels; "
                    "give one label for each word"
                )
            texts.append(list(zip(expected, predicted, strict=True)))
        return score_labels(texts, self.labels, of_words=self.labels_words)

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return accuracy and F1 as text."""
        described = {
            "accuracy": _percent(scores["accuracy"]),
            "macro F1": _percent(scores["macro_f1"]),
        }
        if "entity_f1" in scores:
            described["entity F1"] = _percent(scores["entity_f1"])
        if "matthews" in scores:
            described["Matthews"] = f"{scores['matthews']:.4f}"
        counted = {name: f"{scores[name]:,}" for name in ("words", "texts") if name in scores}
        return described | counted

    @classmethod
    def table(cls, scores: Mapping[str, Any]) -> list[tuple[str, ...]]:
        """Return F1 of each label, how often it occurs and how often it is predicted."""
        confusion = scores["confusion"]
        rows: list[tuple[str, ...]] = [("label", "F1", "occurs", "predicted")]
        for label, f1 in scores["f1"].items():
            occurs = sum(confusion.get(label, {}).values())
            predicted = sum(row.get(label, 0) for row in confusion.values())
            rows.append((label, _percent(f1), f"{occurs:,}", f"{predicted:,}"))
        return rows


class TextLabelTask(LabelTask):
    """Texts to labels."""

    def __init__(self, tokenizer: Tokenizer, labels: Sequence[str], max_length: int) -> None:
        super().__init__(labels)
        self.tokenizer = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.max_length = max_length

    # -- what a task of this kind says

    @abstractmethod
    def rows(self, texts: Sequence[Texts], max_length: int) -> list[list[Row]]:
        """Return the rows of ids that each of some texts becomes."""

    @abstractmethod
    def example(self, row: Row, numbers: Sequence[int]) -> Example:
        """Return a row, with the numbers of its labels, as columns of the corpus."""

    @abstractmethod
    def answer(self, texts: Texts, probabilities: list[list[float]]) -> Answer:
        """Return a prediction, given the probabilities of all labels at each place."""

    # -- vocabulary

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "TextLabelTask":
        """Learn the vocabulary from the training texts, or load it; and collect the labels."""
        labels = cls.collect_labels(records)
        texts = (text for record in records() for text in record[:-1])
        tokenizer = learn_tokenizer(recipe, texts, recipe.tokenizer.path)
        return cls(tokenizer, labels, recipe.data.max_length)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "TextLabelTask":
        """Load tokenizer and labels of a run folder."""
        (labels,) = read_labels(folder, "labels")
        return cls(read_tokenizer(folder / "tokenizer.json"), labels, recipe.data.max_length)

    def files(self) -> dict[str, str]:
        """Return tokenizer and labels."""
        return {"tokenizer.json": self.tokenizer.to_json(), **super().files()}

    # -- data

    def encode(
        self, records: Sequence[Record], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Record, Example]]:
        """Encode texts as ids."""
        rows_of = self.rows([tuple(record[:-1]) for record in records], data.max_length)
        for record, rows in zip(records, rows_of, strict=True):
            labels = self.labels_of(record)
            if not all(label in self.numbers for label in labels):
                dropped["label that no training text has"] += 1
            elif len(labels) != sum(len(row.places) for row in rows):
                dropped[NOT_ONE_EACH] += 1
            else:
                numbers = iter([self.numbers[label] for label in labels])
                for row in rows:
                    yield record, self.example(row, [next(numbers) for _ in row.places])

    @property
    def pads(self) -> dict[str, int]:
        """Return the id of <pad>."""
        return {"text": self.tokenizer.specials.pad}

    # -- model

    def build(self, config: AnyModelConfig) -> Classifier:
        """Build an encoder with a linear layer for the labels."""
        sizes = {"text": self.tokenizer.size, "label": len(self.labels)}
        return self.outline(config, sizes)

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> Classifier:
        """Build the same for a vocabulary of this size and so many labels."""
        encoder = build_model(config, sizes["text"], promise=Encoder)
        return Classifier(encoder, config.d_model, sizes["label"])

    def hidden(self, model: Classifier, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions; only some of them have a label."""
        return model.pool(model.encode(inputs["text"]))

    # -- use

    def predict(
        self,
        model: Classifier,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Any]:
        """Return the labels of each text, with their probabilities."""
        given = [self.parse(text) for text in texts]
        rows_of = self.rows(given, self.max_length)
        rows = [row for some in rows_of for row in some]
        owners = [number for number, some in enumerate(rows_of) for _ in some]
        waiting = Counter(owners)
        done(len(given) - len(waiting))
        found: dict[int, list[list[float]]] = {}
        pad = self.tokenizer.specials.pad
        ids = [row.ids for row in rows]
        for numbers, memory in encode_rows(model, ids, pad, options.batch_size, device):
            chosen = [rows[number] for number in numbers]
            found.update(zip(numbers, _probabilities(model, memory, chosen), strict=True))
            waiting.subtract(owners[number] for number in numbers)
            done(sum(not waiting[owner] for owner in {owners[number] for number in numbers}))
        results = iter([found[number] for number in range(len(rows))])
        return [
            self.answer(text, [place for _ in some for place in next(results)])
            for text, some in zip(given, rows_of, strict=True)
        ]

    def inspect(
        self,
        model: Classifier,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a text; its summary has the labels and their probabilities, as in predictions."""
        given = self.read(text, target)
        row = self._only_row(given)
        grid = pad_grid([row.ids], self.tokenizer.specials.pad).to(device)
        with torch.inference_mode():
            memory, encoder = model.record(grid)
            logits = model.logits(model.pool(memory)[:, row.places])
        tokens = self.tokenizer.tokens(row.ids)
        recording = Recording(encoder, nothing_recorded(), logits, source_tokens=tuple(tokens))
        check_finite(recording)
        answer = self.answer(given, logits[0].float().softmax(-1).tolist())
        predicted = self.predicted(answer)
        labels = torch.full((len(row.ids),), IGNORE, device=device)
        labels[row.places] = torch.tensor([self.numbers[one] for one in predicted], device=device)
        tokenized = TokenizedText({"text": grid}, labels, tokens, [])
        shown, summary = " ".join(given), answer.to_text()
        return Inspection(shown, " ".join(predicted), tokenized, recording, self.names, summary)

    def read(self, text: str, target: str | None) -> Texts:
        """Return what is to be inspected."""
        refuse_target(self.name, target)
        return self.parse(text)

    def check_inspectable(self, source: str) -> None:
        """Refuse texts that are too long to be inspected."""
        self._only_row(self.parse(source))

    def beginning(self, text: str) -> str:
        """Return the sentences at the start of a document that can be inspected."""
        return first_sentences(text, self.check_inspectable)

    def _only_row(self, given: Texts) -> Row:
        """Return the row of a text that is to be inspected; it must not be split or cut."""
        most_tokens = 4 * sum(map(len, given))  # a token for each byte
        row = self.rows([given], most_tokens + 3)[0][0]
        check_length(
            "text", len(row.ids) - 2, min(LONGEST, self.max_length - 2), "take a part of it"
        )
        return row


def label_first(positions: Ragged, numbers: Ragged) -> Ragged:
    """Return labels for positions: that of its record at the first position of each sequence."""
    labels = np.full(len(positions.ids), IGNORE, dtype=np.int64)
    labels[positions.offsets[:-1]] = numbers.ids
    return Ragged(labels, positions.offsets)


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _probabilities(
    model: Classifier, memory: Memory, rows: Sequence[Row]
) -> list[list[list[float]]]:
    """Return the probabilities of all labels at the places of each row."""
    numbers = [number for number, row in enumerate(rows) for _ in row.places]
    places = [place for row in rows for place in row.places]
    with torch.inference_mode():
        logits = finite(model.logits(model.pool(memory)[numbers, places]))
    found = iter(logits.float().softmax(-1).tolist())
    return [[next(found) for _ in row.places] for row in rows]
