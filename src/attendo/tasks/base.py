"""The interface of a task, so that training, evaluation and the command line depend on no task.

A task defines which records it reads, learns its vocabulary from them, encodes them as grids,
builds its model, and defines its loss, its metric and how to predict. It is the only place where
text, data, model, loss, metric and decoding meet.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import AnyModelConfig, DataConfig, DecodingConfig, NoiseConfig, Recipe
from attendo.data.batches import Batch, Layout, Shaped
from attendo.data.builtin import Sentence
from attendo.data.corpus import ColumnSize, Ragged
from attendo.data.readers import Record
from attendo.errors import ConfigError
from attendo.losses import Loss, cross_entropy, linear_cross_entropy
from attendo.models import Model
from attendo.nn.numerics import soft_cap
from attendo.tasks.inspection import Inspection
from attendo.text import Tokenizer, load_tokenizer, train_tokenizer

Done = Callable[[int], None]
"""Called now and then with the number of records finished since the last call."""

Records = Callable[[], Iterator[Record]]
"""Starts pair records, as often as it is called."""

Example = tuple[Any, ...]
"""A record as a list of ids, or an array of vectors, for each column of the corpus."""


class Metric(NamedTuple):
    """How the quality of a task is measured."""

    name: str
    """Key of the score card."""
    title: str
    """For people."""
    higher_is_better: bool
    unit: str = ""
    """What follows a value for people."""
    is_loss: bool = False
    """Whether it follows from the loss, as perplexity does."""

    def is_better(self, one: float, other: float) -> bool:
        """Return whether one value is better than another."""
        return one > other if self.higher_is_better else one < other


@runtime_checkable
class Scores(Protocol):
    """The scores of a test set."""

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name; the task's metric is among them."""
        ...


class Task(ABC):
    """One kind of problem, with the vocabulary of one run."""

    name: ClassVar[str]
    """As in recipes."""
    models: ClassVar[str] = "models"
    """What its models are called, for titles."""
    record_type: ClassVar[type[Record]]
    """What files hold; its first column is what examples are held out by."""
    metric: ClassVar[Metric]
    columns: ClassVar[tuple[str, ...]]
    """Names of the columns of the corpus."""
    promise: ClassVar[type[Model]] = Model
    """What the body of its models is: an `Encoder`, a `CausalLM` or a `Seq2Seq`."""
    command: ClassVar[tuple[str, ...]] = ("evaluate", "RUN", "--data", "FILE")
    """The command that uses a trained model, for messages."""
    examples: ClassVar[tuple[str, ...]] = ()
    """Texts to try with a model of the built-in corpus."""
    reads_files: ClassVar[bool] = False
    """Whether the first column of a record names a file, such as an image, and is no text."""
    mask: str = ""
    """How a token that is to be predicted is written in a text; empty without such tokens."""
    tokenizers: Mapping[str, Tokenizer]
    """The tokenizers, by the name of their file in a run folder without its suffix."""

    @classmethod
    @abstractmethod
    def convert(cls, sentence: Sentence) -> Record:
        """Return a record for a sentence of the built-in English-German corpus."""

    # -- vocabulary

    @classmethod
    @abstractmethod
    def learn(cls, recipe: Recipe, records: Records) -> "Task":
        """Learn the vocabulary from a sample of the training records, or load it."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path, recipe: Recipe) -> "Task":
        """Load what `files` describes from a run folder."""

    @abstractmethod
    def files(self) -> dict[str, str]:
        """Return the contents of the files that a run folder needs, by name."""

    def covers(self, records: Iterable[Record]) -> bool:
        """Return whether its models can learn from these records: whether it knows all labels."""
        return True

    def fingerprints(self) -> dict[str, str]:
        """Return a fingerprint of each tokenizer, by file name."""
        return {
            f"{name}.json": tokenizer.fingerprint() for name, tokenizer in self.tokenizers.items()
        }

    # -- data

    @abstractmethod
    def encode(
        self, records: Sequence[Record], data: DataConfig, dropped: Counter[str]
    ) -> Iterator[tuple[Record, Example]]:
        """Encode records as ids; those that cannot be used are counted by reason."""

    def scorable(self, records: Iterable[Record], dropped: Counter[str]) -> Iterator[Record]:
        """Yield the records that `evaluate` takes, by default all; others are counted by reason."""
        yield from records

    @abstractmethod
    def decode(self, example: Example) -> Record:
        """Decode ids to a record."""

    @property
    @abstractmethod
    def sizes(self) -> Mapping[str, ColumnSize]:
        """Return the number of different ids of each column of the corpus, or its vectors."""

    @abstractmethod
    def shape(self, columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
        """Add special tokens, and make inputs and labels of the columns of the corpus.

        Args:
            columns: Some records of the corpus.
            chance: For random choices, which are then repeated exactly when a run is resumed.
        """

    @property
    @abstractmethod
    def pads(self) -> dict[str, int]:
        """Return the padding id of each input."""

    def layout(self, data: DataConfig, batch_tokens: int) -> Layout:
        """Return how batches are laid out."""
        return Layout(data.max_length, batch_tokens, data.layout, self.shape, self.pads)

    def noisy(self, layout: Layout, noise: NoiseConfig) -> Layout:
        """Return the layout of training batches, with noise in some of the records."""
        return layout

    # -- model

    @abstractmethod
    def build(self, config: AnyModelConfig) -> Model:
        """Build the model that a recipe describes, with new parameters."""

    @classmethod
    def outline(cls, config: AnyModelConfig, sizes: Mapping[str, int]) -> Model | None:
        """Build the same for columns of the given `sizes`, before there is a vocabulary.

        For plans; None if a model depends on more than that.
        """
        return None

    @classmethod
    def outline_of(cls, recipe: Recipe, sizes: Mapping[str, int]) -> Model | None:
        """Build the same, where it depends on other sections of a recipe than [model]."""
        return cls.outline(recipe.model, sizes)

    def body(self, model: Any) -> Model:
        """Return what models of other tasks can start from: all but the head, if there is one."""
        body: Model = getattr(model, "body", model)
        return body

    @abstractmethod
    def hidden(self, model: Any, inputs: Mapping[str, Any]) -> Float[Tensor, "R T D"]:
        """Return the hidden states of the labelled positions."""

    def select(
        self, model: Any, hidden: Float[Tensor, "R T D"], labels: Int[Tensor, "R T"]
    ) -> tuple[Float[Tensor, "R P D"], Int[Tensor, "R P"]]:
        """Return what the output layer is given, with labels: all hidden states by default."""
        return hidden, labels

    def loss(
        self,
        model: Any,
        batch: Batch,
        smoothing: float,
        agreement: float = 0.0,
        criterion: Callable[..., Loss] = linear_cross_entropy,
    ) -> Loss:
        """Return the loss of a batch: cross entropy of the labels.

        Args:
            model: The model; in training mode it drops out.
            batch: Inputs and labels.
            smoothing: Share of the probability spread over all classes.
            agreement: If not 0, everything is computed twice, each time with other dropout, and the
                distance of the two predictions is added with this weight (R-Drop).
            criterion: The loss for training, or a compiled version of it.
        """
        n_passes = 2 if agreement else 1
        given = batch.map(lambda tensor: torch.cat([tensor] * n_passes)) if agreement else batch
        hidden, labels = self.select(model, self.hidden(model, given.inputs), given.labels)
        output, cap = model.output, model.logit_cap
        if not torch.is_grad_enabled():
            return _loss_row_by_row(output, hidden, labels, smoothing, cap)
        passes, labels = hidden.unflatten(0, (n_passes, -1)), labels[: len(batch.labels)]
        return criterion(passes, output.weight, labels, smoothing, agreement, output.bias, cap)

    # -- use

    @abstractmethod
    def evaluate(
        self,
        model: Any,
        records: Sequence[Record],
        options: DecodingConfig,
        device: torch.device,
        *,
        done: Done = lambda n: None,
    ) -> Scores:
        """Measure the quality on some records."""

    @classmethod
    @abstractmethod
    def describe(cls, scores: Mapping[str, Any]) -> dict[str, str]:
        """Return the scores of a score card by title, as text for people."""

    @classmethod
    def table(cls, scores: Mapping[str, Any]) -> list[tuple[str, ...]]:
        """Return more scores as the rows of a table, the first with titles; none by default."""
        return []

    def validate(
        self,
        model: Any,
        records: Sequence[Record],
        options: DecodingConfig,
        device: torch.device,
    ) -> float:
        """Return the metric on some records, quickly."""
        return float(self.evaluate(model, records, options, device).to_dict()[self.metric.name])

    def inspect(
        self,
        model: Any,
        text: str,
        options: DecodingConfig,
        device: torch.device,
        *,
        target: str | None = None,
    ) -> Inspection:
        """Run the model on one text and return everything that it computes.

        Args:
            model: The model, in evaluation mode.
            text: What the model reads.
            options: How to search, where the model predicts a text.
            device: Device of the model.
            target: A text to inspect instead of the predicted one, where the model predicts one.
        """
        raise ConfigError(f"runs of the task {self.name!r} cannot be inspected")

    def beginning(self, text: str) -> str:
        """Return the part of a document that is read at once: all of it, if not said otherwise."""
        return text.strip()


def learn_tokenizer(
    recipe: Recipe, texts: Iterator[str], path: str | None, spare: int = 0
) -> Tokenizer:
    """Learn a tokenizer, or load it if the recipe names one; `spare` ids are for later tokens."""
    if path is not None:
        return load_tokenizer(path)
    config = recipe.tokenizer
    return train_tokenizer(config.kind, texts, config.vocabulary - spare, lossless=config.lossless)


def _loss_row_by_row(
    output: nn.Module,
    hidden: Float[Tensor, "R T D"],
    labels: Int[Tensor, "R T"],
    smoothing: float,
    cap: float,
) -> Loss:
    """Return a loss without gradients; all logits at once would not fit into memory."""
    losses = [
        cross_entropy(soft_cap(output(rows), cap), expected, smoothing)
        for rows, expected in zip(hidden.split(32), labels.split(32), strict=True)
    ]
    totals, counts = zip(*losses, strict=True)
    return Loss(torch.stack(totals).sum(), torch.stack(counts).sum())
