"""Classification of images and of recordings: a vector of pixels or samples for each position."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, Recipe
from attendo.data import batches
from attendo.data.corpus import ColumnSize, Ragged, Vectors
from attendo.data.media.items import shown
from attendo.data.packing import pad_grid
from attendo.data.readers import Record
from attendo.errors import DataError
from attendo.models import Encoder, Recording, build_model
from attendo.models.classifier import Classifier
from attendo.nn.embedding import GridEmbedding
from attendo.nn.grid import Grid
from attendo.nn.stack import nothing_recorded
from attendo.runs import read_labels
from attendo.specials import IGNORE
from attendo.tasks.base import Done, Example, Records
from attendo.tasks.classification import Prediction
from attendo.tasks.inspection import (
    LONGEST,
    Inspection,
    Picture,
    TokenizedText,
    check_finite,
    check_length,
    refuse_target,
)
from attendo.tasks.labels import LabelTask, label_first
from attendo.tasks.predicting import encode_rows, finite

CLASS_TOKEN = "[class]"

Content = Shaped[np.ndarray, "_ _"]
"""An image or a recording: positions, and the numbers of each."""


class Shown(NamedTuple):
    """An image or a recording for people."""

    pixels: UInt8[np.ndarray, "..."]
    """The image, or the spectrogram: (H, W) or (H, W, 3)."""
    rows: int
    columns: int
    """Positions from top to bottom, and from left to right."""
    names: list[str]
    """Of the positions."""


class MediaClassification(LabelTask):
    """A file to a label, read off a class token, or off the mean of all positions."""

    reads_files: ClassVar[bool] = True

    def __init__(self, labels: Sequence[str], recipe: Recipe) -> None:
        super().__init__(labels)
        self.recipe = recipe
        self.max_length = recipe.data.max_length
        self.tokenizers = {}
        self.has_class_token = recipe.model.pooling == "first"

    # -- what images and recordings say

    @abstractmethod
    def read(self, reference: str) -> Content:
        """Read a file as a sequence of vectors; a DataError if it cannot be read."""

    @property
    @abstractmethod
    def vectors(self) -> Vectors:
        """Return what `read` returns for each position."""

    @classmethod
    @abstractmethod
    def embedding(cls, recipe: Recipe) -> GridEmbedding:
        """Build what embeds the vectors."""

    @abstractmethod
    def show(self, content: Content) -> Shown:
        """Return a file as it is drawn for inspection."""

    # -- labels and data

    @classmethod
    def learn(cls, recipe: Recipe, records: Records) -> "MediaClassification":
        """Collect the labels."""
        return cls(cls.collect_labels(records), recipe)

    @classmethod
    def load(cls, folder: Path, recipe: Recipe) -> "MediaClassification":
        """Load the labels of a run folder."""
        (labels,) = read_labels(folder, "labels")
        return cls(labels, recipe)

    @classmethod
    def labels_of(cls, record: Record) -> list[str]:
        """Return the only label."""
        return [record.label]

    def encode(
        self, records: Sequence[Record], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Record, Example]]:
        """Read the files of records."""
        known = [record for record in records if record.label in self.numbers]
        if len(known) < len(records):
            dropped["label that no training file has"] += len(records) - len(known)
        for record, content in self._contents(known, data.max_length, dropped):
            yield record, (content, [self.numbers[record.label]], encode_name(record[0]))

    def scorable(self, records: Iterable[Record], dropped: Counter[str]) -> Iterator[Record]:
        """Yield the records whose files can be read."""
        return (record for record, _ in self._contents(records, self.max_length, dropped))

    def _contents(
        self, records: Iterable[Record], max_length: int, dropped: Counter[str]
    ) -> Iterator[tuple[Record, Content]]:
        return read_files(self.read, records, max_length, dropped, int(self.has_class_token))

    def decode(self, example: Example) -> Record:
        """Return the name of the file, and the label."""
        _, label, name = example
        return self.record_type(decode_name(name), self.labels[label[0]])

    @property
    def sizes(self) -> dict[str, ColumnSize]:
        """Return the vectors, the number of labels, and that of the bytes of file names."""
        return {self.columns[0]: self.vectors, "label": len(self.labels), "file": 256}

    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> batches.Shaped:
        """Add a position for the class token, if there is one, and label the first position."""
        name = self.columns[0]
        content = columns[name]
        if self.has_class_token:
            content = content.begun_with(0)
        return batches.Shaped({name: content}, label_first(content, columns["label"]))

    @property
    def pads(self) -> dict[str, int]:
        """Return the value of padding."""
        return {self.columns[0]: 0}

    # -- model

    def build(self, config: AnyModelConfig) -> Classifier:
        """Build an encoder with a linear layer for the labels."""
        recipe = self.recipe.model_copy(update={"model": config})
        return self.outline_of(recipe, {"label": len(self.labels)})

    @classmethod
    def outline_of(cls, recipe: Recipe, sizes: Mapping[str, int]) -> Classifier:
        """Build the same for so many labels."""
        config = recipe.model
        encoder = build_model(config, cls.embedding(recipe), promise=Encoder)
        return Classifier(encoder, config.d_model, sizes["label"], pooling=config.pooling)

    def hidden(self, model: Classifier, inputs: Mapping[str, Grid]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of all positions; only the first has a label."""
        return model.pool(model.encode(inputs[self.columns[0]]))

    # -- use

    @classmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return accuracy and F1 as text, and the number of files."""
        described = super().describe(scores)
        return {f"{cls.inputs[0]}s" if key == "texts" else key: described[key] for key in described}

    def predict(
        self,
        model: Classifier,
        texts: Sequence[str | Sequence[str]],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> list[Prediction]:
        """Return the label of each file, with the probabilities of all."""
        names = [name for given in texts for name in self.parse(given)]
        rows = map(self.row, names)
        found: dict[int, Prediction] = {}
        for numbers, memory in encode_rows(model, rows, 0, options.batch_size, device):
            with torch.inference_mode():
                logits = finite(model.logits(model.pool(memory)[:, 0]))
            answers = map(self._answer, logits.float().softmax(-1).tolist())
            found.update(zip(numbers, answers, strict=True))
            done(len(numbers))
        return [found[number] for number in range(len(names))]

    def row(self, name: str) -> Content:
        """Return what a model reads of a file."""
        content = self.read(name)
        if self.has_class_token:
            content = np.concatenate((np.zeros_like(content[:1]), content))
        if len(content) > self.max_length:
            raise DataError(
                f"{shown(name)} has {len(content):,} positions, and this model reads up to "
                f"{self.max_length:,}: take a part of it"
            )
        return content

    def _answer(self, probabilities: list[float]) -> Prediction:
        best = self.best(probabilities)
        named = dict(zip(self.labels, probabilities, strict=True))
        return Prediction(self.labels[best], probabilities[best], named)

    def predicted(self, answer: Prediction) -> list[str]:
        """Return the only label."""
        return [answer.label]

    def inspect(
        self,
        model: Classifier,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Record a file; its summary has the label and its probability, as in predictions."""
        refuse_target(self.name, target)
        row = self.row(text)
        check_length("file", len(row), LONGEST, "take a part of it")
        grid = pad_grid([row], 0).to(device)
        with torch.inference_mode():
            memory, encoder = model.record(grid)
            logits = model.logits(model.pool(memory)[:, :1])
        drawn = self.show(row[1:] if self.has_class_token else row)
        tokens = [*([CLASS_TOKEN] if self.has_class_token else []), *drawn.names]
        recording = Recording(encoder, nothing_recorded(), logits, source_tokens=tuple(tokens))
        check_finite(recording)
        answer = self._answer(logits[0, 0].float().softmax(-1).tolist())
        labels = torch.full((len(row),), IGNORE, device=device)
        labels[0] = self.numbers[answer.label]
        tokenized = TokenizedText({self.columns[0]: grid}, labels, tokens, [])
        picture = Picture(drawn.pixels, drawn.rows, drawn.columns, int(self.has_class_token))
        return Inspection(
            text, answer.label, tokenized, recording, self.names, answer.to_text(), picture
        )


def read_files(
    read: Callable[[str], Content],
    records: Iterable[Record],
    max_length: int,
    dropped: Counter[str],
    n_added: int = 0,
) -> Iterator[tuple[Record, Content]]:
    """Read the files of records; those that are missing, damaged or too long are counted."""
    for record in records:
        try:
            content = read(record[0])
        except DataError:
            dropped["file that is missing or damaged"] += 1
            continue
        if len(content) + n_added > max_length:
            dropped[too_long(max_length)] += 1
        else:
            yield record, content


def too_long(max_length: int) -> str:
    """Return why a record is left out that does not fit into a row."""
    return f"longer than data.max_length = {max_length} positions"


def encode_name(name: str) -> list[int]:
    """Return a file name as ids: its bytes."""
    return list(name.encode(errors="surrogateescape"))


def decode_name(ids: Sequence[int]) -> str:
    """Return the file name of some ids."""
    return bytes(ids).decode(errors="surrogateescape")
