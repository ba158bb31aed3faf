"""Small exercises that need one ability each, small models, and how they are trained.

An exercise is a source, a target and the expected symbols at positions of the target. The symbols
are numbers without meaning, so that nothing but the ability counts.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import (
    AnyModelConfig,
    ConvolutionalConfig,
    RecurrentConfig,
    TrainingConfig,
    TransformerConfig,
)
from attendo.data.batches import Batch
from attendo.losses import Loss, cross_entropy
from attendo.models import Seq2Seq, build_model
from attendo.nn.grid import Grid
from attendo.specials import IGNORE
from attendo.training.learner import Learner

ASK = 0
"""The token that begins a target, after which a single answer is expected."""

N_SYMBOLS = 16
PLAIN = 1
"""The first plain symbol."""

MARKED = PLAIN + N_SYMBOLS
"""The first marked symbol: the same again, with a mark."""

VOCABULARY = MARKED + N_SYMBOLS


class Exercise(NamedTuple):
    """A batch of questions and answers; of all rows the same length."""

    source: Grid
    target: Grid
    answers: Int[Tensor, "R T"]
    """What is expected after each token of the target; IGNORE where nothing is."""

    @property
    def batch(self) -> Batch:
        """Return the exercise as a batch for training."""
        inputs = {"source": self.source, "target": self.target}
        return Batch(inputs, self.answers, int((self.answers != IGNORE).sum()), ())

    def to(self, device: torch.device) -> "Exercise":
        """Move to a device."""
        return Exercise(self.source.to(device), self.target.to(device), self.answers.to(device))


def whole_rows(ids: Int[Tensor, "R W"]) -> Grid:
    """Return a grid with one sentence per row."""
    positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    return Grid(ids, torch.ones_like(ids), positions)


def draw_recall(generator: torch.Generator, n_rows: int, distance: int) -> Exercise:
    """Draw exercises whose answer is the marked symbol, followed by `distance` others."""
    noise = _symbols(generator, n_rows, distance, PLAIN)
    marked = _symbols(generator, n_rows, 1, MARKED)
    return _recall_exercise(torch.cat((marked, noise), dim=1), marked)


def draw_first(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Draw exercises whose answer is the first symbol, which only its position distinguishes."""
    source = _symbols(generator, n_rows, length, PLAIN)
    return _recall_exercise(source, source[:, :1])


def draw_latest(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Draw exercises whose answer, at every position, is the symbol that was marked last."""
    symbols = _symbols(generator, n_rows, length, 0)
    is_marked = torch.rand(n_rows, length, generator=generator) < SHARE_MARKED
    is_marked[:, 0] = True
    places = torch.arange(length).expand_as(symbols)
    latest = torch.where(is_marked, places, -1).cummax(dim=1).values
    stream = symbols + torch.where(is_marked, MARKED, PLAIN)
    return _stream_exercise(stream, symbols.gather(1, latest) + MARKED)


SHARE_MARKED = 0.25
"""Share of the symbols of a sequence that are marked."""


def draw_distant(generator: torch.Generator, n_rows: int, length: int) -> Exercise:
    """Draw exercises whose answer, in the last quarter, is the symbol marked in the first."""
    quarter = length // 4
    stream = _symbols(generator, n_rows, length, PLAIN)
    marked = _symbols(generator, n_rows, 1, MARKED)
    # Never the very first position, which some kinds of attention reach from everywhere.
    place = torch.randint(1, max(2, quarter), (n_rows, 1), generator=generator)
    answers = torch.full_like(stream, IGNORE)
    answers[:, -quarter:] = marked
    return _stream_exercise(stream.scatter(1, place, marked), answers)


def _symbols(
    generator: torch.Generator, n_rows: int, length: int, first: int
) -> Int[Tensor, "R T"]:
    return torch.randint(first, first + N_SYMBOLS, (n_rows, length), generator=generator)


def _recall_exercise(source: Int[Tensor, "R S"], answers: Int[Tensor, "R 1"]) -> Exercise:
    return Exercise(whole_rows(source), whole_rows(torch.full_like(answers, ASK)), answers)


def _stream_exercise(stream: Int[Tensor, "R T"], answers: Int[Tensor, "R T"]) -> Exercise:
    silent = torch.full_like(stream[:, :1], ASK)
    return Exercise(whole_rows(silent), whole_rows(stream), answers)


def transformer(d_model: int, n_layers: int = 2, **changes: Any) -> TransformerConfig:
    """Describe a small Transformer."""
    settings = {"n_heads": 4, "d_ff": 2 * d_model, "p_drop": 0.0, "tied": "none", **changes}
    return TransformerConfig(
        d_model=d_model, encoder_layers=n_layers, decoder_layers=n_layers, **settings
    )


def recurrent(d_model: int, cell: str, attention: str = "none") -> RecurrentConfig:
    """Describe a recurrent network that reads one way, so that distances are what they are."""
    return RecurrentConfig(
        d_model=d_model,
        cell=cell,
        attention=attention,
        bidirectional=False,
        encoder_layers=1,
        decoder_layers=1,
        p_drop=0.0,
        tied="none",
    )


def convolutional(d_model: int, longest: int, n_layers: int = 2) -> ConvolutionalConfig:
    """Describe a convolutional network with a place in its tables for the longest sequence."""
    return ConvolutionalConfig(
        d_model=d_model,
        encoder_layers=n_layers,
        decoder_layers=n_layers,
        p_drop=0.0,
        max_positions=longest,
        tied="none",
    )


def families(d_model: int, longest: int) -> dict[str, AnyModelConfig]:
    """Describe every family."""
    return {
        "rnn": recurrent(d_model, "rnn"),
        "gru": recurrent(d_model, "gru"),
        "lstm": recurrent(d_model, "lstm"),
        "lstm with attention": recurrent(d_model, "lstm", "additive"),
        "convolution": convolutional(d_model, longest),
        "transformer": transformer(d_model),
    }


def build(config: AnyModelConfig, vocabulary: int = VOCABULARY) -> Seq2Seq:
    """Build a model for the exercises."""
    return build_model(config, vocabulary, vocabulary)


LEARNING_RATE = 2e-3

TRAINING = TrainingConfig(
    schedule="constant",
    warmup_steps=20,
    label_smoothing=0.0,
    clip_norm=1.0,  # without it recurrences explode now and then
    precision="fp32",
    compile=False,
)


@contextmanager
def seeded(seed: int) -> Iterator[torch.Generator]:
    """Set the random seed of new parameters; yield the generator to draw exercises from."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def answer(model: Seq2Seq, exercise: Exercise) -> Float[Tensor, "R T V"]:
    """Return the logits of a model after each token of the target."""
    hidden = model.decode(exercise.target, model.encode(exercise.source))
    return model.logits(hidden)


def learn(
    model: Seq2Seq,
    draw: Callable[[], Exercise],
    n_steps: int,
    learning_rate: float = LEARNING_RATE,
    enough: float = 0.0,
) -> list[float]:
    """Learn from fresh exercises, a batch a step; returns the loss of each, in nats an answer.

    Learning ends early when the loss has come below what is enough.
    """
    config = TRAINING.model_copy(update={"steps": n_steps, "learning_rate": learning_rate})
    learner = Learner(model.train(), _loss, config, d_model=1)
    losses: list[float] = []
    with one_thread():
        while len(losses) < n_steps and min(losses, default=torch.inf) >= enough:
            batch = draw().batch
            losses.append(learner.update(batch, len(losses) + 1).item() / batch.n_labels)
    return losses


def _loss(model: Seq2Seq, batch: Batch, smoothing: float, agreement: float) -> Loss:
    hidden = model.decode(batch.inputs["target"], model.encode(batch.inputs["source"]))
    return cross_entropy(model.logits(hidden), batch.labels, smoothing)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one core: with models as small as these a second one costs more than it helps."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@torch.no_grad()
def is_correct(model: Seq2Seq, exercise: Exercise) -> Bool[Tensor, "R T"]:
    """Return which answers of a model are correct."""
    model.eval()
    exercise = exercise.to(next(model.parameters()).device)
    with one_thread():
        predicted = answer(model, exercise).argmax(dim=-1)
    return (predicted == exercise.answers).cpu()


def accuracy(model: Seq2Seq, exercise: Exercise) -> float:
    """Return the share of correct answers of a model."""
    has_answer = exercise.answers != IGNORE
    return is_correct(model, exercise)[has_answer].double().mean().item()
