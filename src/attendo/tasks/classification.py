"""Classification of texts: one label for each text."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, Recipe
from attendo.data.batches import Shaped
from attendo.data.corpus import Ragged
from attendo.data.packing import pad_grid
from attendo.data.readers import Pair
from attendo.errors import BundleError, DataError
from attendo.files import read_json
from attendo.models import Encoder, Recording, build_model
from attendo.models.classifier import Classifier
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.specials import IGNORE
from attendo.tasks.base import (
    Done,
    Example,
    Metric,
    Records,
    Task,
    learn_tokenizer,
    read_tokenizer,
)
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)
from attendo.text import Tokenizer

LABELS = "labels.json"
MOST_LABELS = 10_000
_MOST_LABEL_BYTES = 1 << 24


class Labelled(NamedTuple):
    """A text and its label."""

    text: str
    label: str


class Prediction(NamedTuple):
    """The label of a text."""

    label: str
    probability: float
    probabilities: dict[str, float]
    """Of all labels."""


@dataclass(frozen=True, slots=True)
class ClassificationScores:
    """How often the predicted label is right; higher is better."""

    accuracy: float
    """Share of texts with the right label, in percent."""
    macro_f1: float
    """Mean over labels of the harmonic mean of precision and recall, in percent."""
    f1: dict[str, float]
    """For each label, in percent."""
    confusion: dict[str, dict[str, int]]
    """Number of texts by their label, then by the predicted one."""
    texts: int

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        return asdict(self)


class Classification(Task):
    """A text to a label, read off the hidden state of the first position."""

    name: ClassVar[str] = "classification"
    models: ClassVar[str] = "classifiers"
    record_type: ClassVar[type[Any]] = Labelled
    metric: ClassVar[Metric] = Metric("accuracy", "accuracy", higher_is_better=True, unit=" %")
    columns: ClassVar[tuple[str, ...]] = ("text", "label")
    command: ClassVar[tuple[str, ...]] = ("predict", "RUN", "some text")
    examples: ClassVar[tuple[str, ...]] = (
        "The old dog sleeps in the big house.",
        "Der alte Hund schläft in dem großen Haus.",
    )

    def __init__(self, tokenizer: Tokenizer, labels: Sequence[str], max_length: int) -> None:
        self.tokenizer = tokenizer
        self.tokenizers = {"tokenizer": tokenizer}
        self.labels = tuple(labels)
        self.numbers = {label: number for number, label in enumerate(self.labels)}
        self.max_length = max_length

    @classmethod
    def convert(cls, pair: Pair) -> Labelled:
        """Return one of the sides, with its language as the label."""
        is_english = len(pair.source) % 2 == 0
        return Labelled(pair.source, "English") if is_english else Labelled(pair.target, "German")

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "Classification":
        """Learn the vocabulary from the training texts, or load it; and collect the labels."""
        labels = sorted({record.label for record in records()})
        if not 2 <= len(labels) <= MOST_LABELS:
            raise DataError(
                f"the training data has {len(labels):,} different labels; "
                f"expected 2 to {MOST_LABELS:,}: a line is text TAB label"
            )
        texts = (record.text for record in records())
        tokenizer = learn_tokenizer(recipe, texts, recipe.tokenizer.path)
        return cls(tokenizer, labels, recipe.data.max_length)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "Classification":
        """Load tokenizer and labels of a run folder."""
        path = folder / LABELS
        try:
            labels = read_json(path, _MOST_LABEL_BYTES)["labels"]
            if not (isinstance(labels, list) and all(isinstance(one, str) for one in labels)):
                raise ValueError("expected a list of labels")
        except (OSError, ValueError, KeyError) as error:
            raise BundleError(f"{str(path)!r} cannot be read: {error}") from None
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        return cls(tokenizer, labels, recipe.data.max_length)

    def files(self) -> dict[str, str]:
        """Return tokenizer and labels."""
        labels = json.dumps({"labels": self.labels}, ensure_ascii=False, indent=2) + "\n"
        return {"tokenizer.json": self.tokenizer.to_json(), LABELS: labels}

    def encode(
        self, records: Sequence[Labelled], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Labelled, Example]]:
        """Encode texts as ids; long ones are cut at the end."""
        texts = self._ids([record.text for record in records], data.max_length)
        for record, ids in zip(records, texts, strict=True):
            if record.label not in self.numbers:
                dropped["label that no training text has"] += 1
            else:
                yield record, (ids, [self.numbers[record.label]])

    def _ids(self, texts: list[str], max_length: int) -> list[list[int]]:
        """Encode texts without special tokens; two positions are for them."""
        return [ids[: max_length - 2] for ids in self.tokenizer.encode_batch(texts)]

    def decode(self, example: Example) -> Labelled:
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
        labels = np.full(len(text.ids), IGNORE, dtype=np.int64)
        labels[text.offsets[:-1]] = columns["label"].ids
        return Shaped({"text": text}, Ragged(labels, text.offsets))

    @property
    def pads(self) -> dict[str, int]:
        """Return the id of <pad>."""
        return {"text": self.tokenizer.specials.pad}

    def build(self, config: AnyModelConfig) -> Classifier:
        """Build an encoder with a linear layer for the labels."""
        encoder = build_model(config, self.tokenizer.size, promise=Encoder)
        return Classifier(encoder, config.d_model, len(self.labels))

    def hidden(self, model: Classifier, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions; only the first of each text has a label."""
        return model.encode(inputs["text"]).hidden

    def predict(
        self,
        model: Classifier,
        texts: Sequence[str],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Prediction]:
        """Return the label of each text, with the probabilities of all labels."""
        specials = self.tokenizer.specials
        encoded = self._ids(list(texts), self.max_length)
        order = sorted(range(len(encoded)), key=lambda number: len(encoded[number]))
        found: dict[int, Prediction] = {}
        for start in range(0, len(order), options.batch_size):
            numbers = order[start : start + options.batch_size]
            rows = [[specials.bos, *encoded[number], specials.eos] for number in numbers]
            with torch.inference_mode():
                hidden = model.encode(pad_grid(rows, specials.pad).to(device)).hidden[:, 0]
                rows_of = model.logits(hidden).float().softmax(-1).tolist()
            for number, probabilities in zip(numbers, rows_of, strict=True):
                found[number] = self._prediction(probabilities)
            done(len(numbers))
        return [found[number] for number in range(len(encoded))]

    def _prediction(self, probabilities: list[float]) -> Prediction:
        named = dict(zip(self.labels, probabilities, strict=True))
        best = max(named, key=named.__getitem__)
        return Prediction(best, named[best], named)

    def evaluate(
        self,
        model: Classifier,
        records: Sequence[Labelled],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> ClassificationScores:
        """Measure accuracy, and F1 of each label."""
        if not records:
            raise DataError("no texts to score: give at least one line")
        found = self.predict(model, [record.text for record in records], options, device, done=done)
        pairs = [(record.label, one.label) for record, one in zip(records, found, strict=True)]
        return score_labels(pairs)

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return accuracy and F1 as text."""
        return {
            "accuracy": _percent(scores["accuracy"]),
            "macro F1": _percent(scores["macro_f1"]),
            "texts": f"{scores['texts']:,}",
        }

    def inspect(
        self,
        model: Classifier,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a text; its summary has the label and its probability, as in predictions."""
        refuse_target(self.name, target)
        ids = self.tokenizer.encode(text)
        check_length("text", len(ids), min(LONGEST, self.max_length - 2), "take a part of it")
        row = [self.tokenizer.specials.bos, *ids, self.tokenizer.specials.eos]
        grid = pad_grid([row], self.tokenizer.specials.pad).to(device)
        with torch.inference_mode():
            memory, encoder = model.record(grid)
            logits = model.logits(memory.hidden[:, :1])
        tokens = self.tokenizer.tokens(row)
        recording = Recording(encoder, nothing_recorded(), logits, source_tokens=tuple(tokens))
        check_finite(recording)
        found = self._prediction(logits[0, 0].float().softmax(-1).tolist())
        labels = torch.full((len(row),), IGNORE, device=device)
        labels[0] = self.numbers[found.label]
        tokenized = TokenizedText({"text": grid}, labels, tokens, [])
        summary = f"{found.label}\t{found.probability:.4f}"
        return Inspection(text, found.label, tokenized, recording, self._names, summary)

    def _names(self, numbers: Sequence[int]) -> list[str]:
        return [self.labels[number] for number in numbers]


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def score_labels(pairs: Sequence[tuple[str, str]]) -> ClassificationScores:
    """Compare labels with predicted labels."""
    counts = Counter(pairs)
    labels = sorted({label for pair in pairs for label in pair})
    f1 = {}
    for label in labels:
        hits = counts[label, label]
        total = sum(n for pair, n in counts.items() for one in pair if one == label)
        f1[label] = round(100 * 2 * hits / total, 2)
    right = sum(expected == predicted for expected, predicted in pairs)
    present = {expected for expected, _ in pairs}
    return ClassificationScores(
        accuracy=round(100 * right / len(pairs), 2),
        macro_f1=round(sum(f1[label] for label in present) / len(present), 2),
        f1=f1,
        confusion={
            one: {other: counts[one, other] for other in labels if counts[one, other]}
            for one in sorted(present)
        },
        texts=len(pairs),
    )
