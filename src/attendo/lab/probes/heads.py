"""One head against several of the same total width: attention to several positions at once."""

from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attendo.config import BlockConfig
from attendo.lab.probes.exercises import Exercise, accuracy, learn, seeded, whole_rows
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.report.document import listed
from attendo.models import Memory, Seq2Seq
from attendo.nn.attention.base import Pattern
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid
from attendo.nn.layers import make_feed_forward, make_residual
from attendo.nn.multihead import MultiHeadAttention
from attendo.reporter import Reporter

LEARNING_RATE = 4e-3
ENOUGH = 0.02
"""The loss at which a task is learned, in nats per answer."""

MOSTLY = 0.95
"""Share of right answers from which on a task counts as learned."""

N_CONTENTS = 2
"""Possible contents of an entry: few, so that there are few answers to several lookups."""

N_POINTS = 50
"""Of a learning curve: each is the mean of a stretch of steps."""


class Size(NamedTuple):
    """The size of a task."""

    n_entries: int
    n_lookups: int
    """Entries that every question names."""


class LookupLayer(nn.Module):
    """Multi-head attention to a memory, then feed-forward, each with its residual connection."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(block, is_cross=True)
        self.around_attention = make_residual(block)
        self.feed_forward = make_feed_forward(block)
        self.around_feed_forward = make_residual(block)

    def forward(
        self, x: Float[Tensor, "R T D"], memory: Float[Tensor, "R S D"]
    ) -> Float[Tensor, "R T D"]:
        """Attend to the memory, then transform each question."""
        x = self.around_attention(x, lambda x: self.attention(x, memory, Pattern(mask=None)))
        output: Tensor = self.around_feed_forward(x, self.feed_forward)
        return output


class Looker(Seq2Seq):
    """Questions attend to entries, which do not attend to each other.

    An entry is the sum of its name and its content, so that a sum over entries does not show which
    content belongs to which name.
    """

    def __init__(self, block: BlockConfig, n_layers: int, size: Size) -> None:
        super().__init__()
        self.size = size
        self.names = Embedding(size.n_entries, block.d_model)
        self.contents = Embedding(N_CONTENTS, block.d_model)
        self.queried = nn.ModuleList(
            Embedding(size.n_entries, block.d_model) for _ in range(size.n_lookups)
        )
        self.layers = nn.ModuleList(LookupLayer(block) for _ in range(n_layers))
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):  # as the Transformer begins
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        self.output = nn.Linear(block.d_model, N_CONTENTS**size.n_lookups, bias=False)

    def encode(self, source: Grid) -> Memory:
        """Encode the entries."""
        name, content = source.ids // N_CONTENTS, source.ids % N_CONTENTS
        return Memory((self.names(name) + self.contents(content)) * 0.5**0.5, source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Decode the questions, each the sum of the names in it."""
        names = _digits(target.ids, self.size.n_entries, self.size.n_lookups)
        read = [embed(names[..., place]) for place, embed in enumerate(self.queried)]
        x: Tensor = torch.stack(read).sum(dim=0) * self.size.n_lookups**-0.5
        for layer in self.layers:
            x = layer(x, memory.hidden)
        return x


def draw_lookups(generator: torch.Generator, n_rows: int, n_questions: int, size: Size) -> Exercise:
    """Draw named entries in any order; a question names several, the answer is all their contents.

    One number stands for the names of a question, another for the contents of an answer.
    """
    names = torch.rand(n_rows, size.n_entries, generator=generator).argsort(dim=-1)
    contents = torch.randint(0, N_CONTENTS, names.shape, generator=generator)
    shape = n_rows, n_questions, size.n_entries
    places = torch.rand(shape, generator=generator).argsort(dim=-1)[..., : size.n_lookups]
    queried, answers = (x[:, None].expand(shape).gather(2, places) for x in (names, contents))
    return Exercise(
        whole_rows(names * N_CONTENTS + contents),
        whole_rows(_number(queried, size.n_entries)),
        _number(answers, N_CONTENTS),
    )


def _number(digits: Tensor, base: int) -> Tensor:
    """Write digits as one number."""
    return (digits * base ** torch.arange(digits.shape[-1])).sum(dim=-1)


def _digits(number: Tensor, base: int, n_digits: int) -> Tensor:
    powers = base ** torch.arange(n_digits, device=number.device)
    return number[..., None] // powers % base


class Learned(NamedTuple):
    """What came of one model."""

    right: float
    losses: list[float]
    n_parameters: int


Key = tuple[int, int, int]
"""Lookups, layers and heads."""

Runs = dict[Key, list[Learned]]
"""One a seed."""


@dataclass(frozen=True)
class Heads(Probe):
    """All numbers of heads learn all numbers of lookups, with as many parameters and steps."""

    name = "heads"
    title = "One head or several"
    claim = (
        "One head averages the values it attends to; several heads of the same total width attend "
        "to several positions at once and keep the results apart"
    )
    method = (
        "A row holds named entries in any order. A query names some of them, and the answer is "
        "correct only if it has all their contents, in the order of the query. Queries attend to "
        "the entries in one or two layers, with 1, 2, 4 ... heads of the same total width: all "
        "models have the same number of parameters and the same training budget."
    )

    d_model: int = 64
    n_heads: tuple[int, ...] = (1, 2, 4, 8)
    n_lookups: tuple[int, ...] = (1, 2, 4)
    n_entries: int = 8
    n_questions: int = 8
    n_rows: int = 16
    n_steps: int = 400
    n_tests: int = 128
    n_seeds: int = 1

    @classmethod
    def thorough(cls) -> "Heads":
        """Query up to eight entries of sixteen, with two seeds."""
        counts = cls(n_lookups=(1, 2, 4, 8), n_entries=16, n_seeds=2)
        return replace(counts, d_model=128, n_rows=32, n_steps=1500, n_tests=512)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Learn every number of lookups in one layer, and the largest in two as well."""
        variants = [(lookups, 1) for lookups in self.n_lookups] + [(self.n_lookups[-1], 2)]
        keys = [(*one, n_heads) for one in variants for n_heads in self.n_heads]
        runs: Runs = {}
        with reporter.bar("heads", len(keys)) as advance:
            for key in keys:
                runs[key] = self._learn(*key, settings)
                advance(1, f"{_heads(key[2])}, {key[0]} per query, {_layers(key[1])}")
        return Outcome(
            checks=tuple(self._checks(runs)),
            panels=tuple(self._panels(runs)),
            tables=(self._table(runs),),
            notes=tuple(self._notes(runs)),
        )

    def _learn(
        self, n_lookups: int, n_layers: int, n_heads: int, settings: Settings
    ) -> list[Learned]:
        size = Size(self.n_entries, n_lookups)
        block = BlockConfig(
            d_model=self.d_model, d_ff=2 * self.d_model, n_heads=n_heads, p_drop=0.0
        )
        learned = []
        for seed in range(settings.seed, settings.seed + self.n_seeds):
            with seeded(seed) as generator:
                model = Looker(block, n_layers, size).to(settings.device)
                draw = partial(draw_lookups, generator, self.n_rows, self.n_questions, size)
                losses = learn(model, draw, self.n_steps, LEARNING_RATE, ENOUGH)
            generator = torch.Generator().manual_seed(seed + 1_000_000)
            test = draw_lookups(generator, self.n_tests, self.n_questions, size)
            n_parameters = sum(parameter.numel() for parameter in model.parameters())
            learned.append(Learned(accuracy(model, test), losses, n_parameters))
        return learned

    def _checks(self, runs: Runs) -> list[Check]:
        few, many = self.n_lookups[0], self.n_lookups[-1]
        one, most = self.n_heads[0], self.n_heads[-1]
        enough = next((n for n in self.n_heads if n >= many), most)
        right = {key: _accuracy(of_seeds) for key, of_seeds in runs.items()}
        counts = {runs[many, 1, n_heads][0].n_parameters for n_heads in self.n_heads}
        return [
            Check(
                claim="Models with different numbers of heads have the same number of parameters",
                measured=listed([f"{n:,}" for n in sorted(counts)]),
                holds=len(counts) == 1,
            ),
            Check(
                claim=f"For {few} entry per query, {_heads(one)} is enough",
                measured=self._accuracies(runs, few),
                holds=right[few, 1, one] >= MOSTLY,
            ),
            Check(
                claim=f"For {many} entries per query, {_heads(one)} is not enough",
                measured=self._accuracies(runs, many),
                holds=right[many, 1, one] < MOSTLY,
            ),
            Check(
                claim=f"For {many} entries, {_heads(most)} of the same total width are enough",
                measured=f"accuracy {right[many, 1, most]:.0%}",
                holds=right[many, 1, most] >= MOSTLY,
            ),
            Check(
                claim=f"For {many} entries, {enough} heads are enough",
                measured=f"accuracy {right[many, 1, enough]:.0%}",
                holds=right[many, 1, enough] >= MOSTLY,
            ),
        ]

    def _accuracies(self, runs: Runs, n_lookups: int) -> str:
        return "accuracy: " + listed(
            [f"{_accuracy(runs[n_lookups, 1, n]):.0%} ({_heads(n)})" for n in self.n_heads]
        )

    def _panels(self, runs: Runs) -> list[Panel]:
        many = self.n_lookups[-1]
        variants = [(lookups, 1) for lookups in self.n_lookups] + [(many, 2)]
        return [
            Panel(
                title="Accuracy after training",
                x_label="heads",
                y_label="accuracy",
                series=tuple(self._by_heads(runs, *one) for one in variants),
                x_scale="log",
                percent=True,
            ),
            *(
                Panel(
                    title=f"{many} entries per query, {_layers(n_layers)}",
                    x_label="steps",
                    y_label="loss, nats per answer",
                    series=tuple(
                        _curve(_heads(n_heads), runs[many, n_layers, n_heads])
                        for n_heads in self.n_heads
                    ),
                )
                for n_layers in (1, 2)
            ),
        ]

    def _by_heads(self, runs: Runs, n_lookups: int, n_layers: int) -> Series:
        of_heads = [[one.right for one in runs[n_lookups, n_layers, n]] for n in self.n_heads]
        label = f"{n_lookups} per query, {_layers(n_layers)}"
        places = [float(n_heads) for n_heads in self.n_heads]
        return Series.of_runs(label, places, list(zip(*of_heads, strict=True)))

    def _table(self, runs: Runs) -> Rows:
        return Rows(
            caption=(
                f"Mean over {self.n_seeds} random seed(s). Training ended when the loss was below "
                f"{ENOUGH}, or after {self.n_steps:,} steps. Loss: mean of the last ten steps."
            ),
            columns=("entries per query", "layers", "heads", "accuracy", "loss", "steps"),
            rows=tuple(
                (
                    *map(str, key),
                    round(_accuracy(of_seeds), 3),
                    round(fmean(fmean(one.losses[-10:]) for one in of_seeds), 3),
                    round(fmean(len(one.losses) for one in of_seeds)),
                )
                for key, of_seeds in runs.items()
            ),
        )

    def _notes(self, runs: Runs) -> list[str]:
        many, one = self.n_lookups[-1], self.n_heads[0]
        alone, twice = (_accuracy(runs[many, n_layers, one]) for n_layers in (1, 2))
        return [
            f"Chance level for {many} entries: {N_CONTENTS**-many:.0%}.",
            f"A second layer attends a second time: with {_heads(one)}, the accuracy is "
            f"{twice:.0%} with two layers and {alone:.0%} with one. Two layers have about twice "
            "the parameters.",
            "One head could solve the task in principle, with different attention weights for its "
            f"positions. Measured is what it learns in {self.n_steps:,} steps of "
            f"{self.n_rows * self.n_questions} queries.",
            f"All models are trained with Adam and a learning rate of {LEARNING_RATE:g}.",
        ]


def _curve(label: str, of_seeds: list[Learned]) -> Series:
    """Draw a learning curve: the mean over seeds, up to where the first of them has ended."""
    n_steps = min(len(one.losses) for one in of_seeds)
    stretch = max(1, n_steps // N_POINTS)
    ends = range(stretch, n_steps + 1, stretch)
    means = [[fmean(one.losses[end - stretch : end]) for end in ends] for one in of_seeds]
    return Series.of_runs(label, [float(end) for end in ends], means)


def _accuracy(of_seeds: list[Learned]) -> float:
    return fmean(one.right for one in of_seeds)


def _heads(n_heads: int) -> str:
    return "one head" if n_heads == 1 else f"{n_heads} heads"


def _layers(n_layers: int) -> str:
    return "one layer" if n_layers == 1 else f"{n_layers} layers"
