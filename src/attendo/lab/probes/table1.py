"""Table 1 of the paper: complexity, sequential operations and path length, counted and measured."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from attendo.config import BlockConfig, ConvolutionalConfig, WindowConfig
from attendo.lab.probes.exercises import seeded, whole_rows
from attendo.lab.probes.layers import (
    Layer,
    longest_chain,
    path_lengths,
    reach_of,
    reach_of_cell,
    seconds_of,
)
from attendo.lab.probes.probe import Check, Outcome, Panel, Probe, Rows, Series, Settings
from attendo.lab.report.document import Number, counted
from attendo.models.convolutional import EncoderWindow
from attendo.nn.attention import ATTENTIONS, ScaledDotProduct
from attendo.nn.attention.base import Pattern
from attendo.nn.recurrence import CELLS
from attendo.reporter import Reporter

KERNEL, RADIUS = 3, 8
"""k of the convolution, and the reach of restricted attention to either side."""


class Kind(NamedTuple):
    """A line of the paper's table."""

    complexity: str
    powers: tuple[int, int]
    """Of n and d in it."""
    sequential: str
    grows: bool
    """Whether the sequential operations grow with n."""
    path: str
    longest_path: Callable[[int], int]
    """The formula with its constants."""


TABLE = {
    "self-attention": Kind("n² · d", (2, 1), "1", False, "1", lambda n: 1),
    "recurrent": Kind("n · d²", (1, 2), "n", True, "n", lambda n: n),
    "convolutional": Kind(
        "k · n · d²", (1, 2), "1", False, "n / k", lambda n: math.ceil((n - 1) / (KERNEL // 2))
    ),
    "self-attention (restricted)": Kind(
        "r · n · d", (1, 1), "1", False, "n / r", lambda n: math.ceil((n - 1) / RADIUS)
    ),
}


class Counted(NamedTuple):
    """What was found of a kind at two lengths n, and for the operations at two widths."""

    operations: tuple[int, int, int]
    """At (n, d), (2n, d) and (n, 2d): multiplications and additions."""
    chains: tuple[int, int]
    """At n and 2n: operations that wait for one another."""
    paths: tuple[int, int]
    """At n and 2n: the longest of the shortest ways between two places."""
    seconds: tuple[float, float]
    """At n and 2n, forwards and backwards."""

    @property
    def powers(self) -> tuple[float, float]:
        """Return the exponents of n and d in the number of operations."""
        base, longer, wider = self.operations
        return math.log2(longer / base), math.log2(wider / base)


@dataclass(frozen=True)
class Table1(Probe):
    """The four layers of the paper's table, each alone."""

    name = "table1"
    title = "The paper's Table 1"
    claim = (
        "A self-attention layer takes n²·d operations, one of them sequential, with paths of "
        "length 1; a recurrent layer n·d², n sequential, with paths of length n; a convolutional "
        "layer k·n·d², one sequential, with paths of length n/k"
    )
    method = (
        "Operations: counted by PyTorch in the forward pass of one layer, without projections, as "
        "in the paper. Sequential operations: the longest chain in autograd's graph. Path length: "
        "gradients show which position depends on which; the longest of all shortest paths between "
        "two positions is taken."
    )

    length: int = 64
    d_model: int = 32
    timed_length: int = 512
    timed_width: int = 128
    n_times: int = 5

    @classmethod
    def thorough(cls) -> "Table1":
        """Count in larger layers, and time longer sequences."""
        return cls(length=128, d_model=64, timed_length=2048, timed_width=512, n_times=15)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Count and time all four."""
        found: dict[str, Counted] = {}
        with reporter.bar("table1", len(TABLE)) as advance, seeded(settings.seed):
            for name in TABLE:
                found[name] = self._count(name, settings)
                advance(1, name)
        return Outcome(
            checks=tuple(self._checks(found)),
            panels=tuple(self._panels(found)),
            tables=(self._symbols(), self._counts(found)),
            notes=(self._projections(found),),
        )

    def _count(self, name: str, settings: Settings) -> Counted:
        n, d = self.length, self.d_model
        timed, device = self.timed_length, settings.device
        return Counted(
            operations=(
                operations(name, n, d),
                operations(name, 2 * n, d),
                operations(name, n, 2 * d),
            ),
            chains=(chain(name, n, d), chain(name, 2 * n, d)),
            paths=(longest_path(name, n, d), longest_path(name, 2 * n, d)),
            seconds=(self._seconds(name, timed, device), self._seconds(name, 2 * timed, device)),
        )

    def _seconds(self, name: str, n: int, device: torch.device) -> float:
        layer = build_layer(name, self.timed_width, device)
        x = torch.randn(1, n, self.timed_width, device=device, requires_grad=True)
        return seconds_of(lambda: layer(x), device, self.n_times)

    def _checks(self, found: dict[str, Counted]) -> list[Check]:
        checks = []
        for name, kind in TABLE.items():
            counts = found[name]
            of_n, of_d = counts.powers
            # The paper keeps the highest power only; what else there is moves the exponents a bit.
            right = all(
                abs(got - wanted) < 0.1
                for got, wanted in zip(counts.powers, kind.powers, strict=True)
            )
            grown = counts.chains[1] / counts.chains[0]
            wanted = kind.longest_path(self.length), kind.longest_path(2 * self.length)
            checks.append(
                Check(
                    claim=(
                        f"{name.capitalize()}: {kind.complexity} operations, {kind.sequential} "
                        f"sequential, paths of length {kind.path}"
                    ),
                    measured=(
                        f"operations grow as n^{of_n:.2f} · d^{of_d:.2f}; from n to 2n the chain "
                        f"grows from {counts.chains[0]:,} to {counts.chains[1]:,} and the longest "
                        f"path from {counts.paths[0]} to {counts.paths[1]}"
                    ),
                    holds=right
                    and (grown > 1.8 if kind.grows else grown < 1.1)
                    and counts.paths == wanted,
                )
            )
        return [*checks, self._cheaper()]

    def _cheaper(self) -> Check:
        d = self.d_model
        fewer, more = (
            operations("self-attention", n, d) / operations("recurrent", n, d)
            for n in (d // 2, 2 * d)
        )
        return Check(
            claim="Self-attention takes fewer operations than a recurrent layer where n < d",
            measured=f"{fewer:.2g} times as many at n = d/2, {more:.2g} times as many at n = 2d",
            holds=fewer < 1 < more,
        )

    def _panels(self, found: dict[str, Counted]) -> list[Panel]:
        names = tuple(found)
        lengths = f"{self.timed_length:,} and {2 * self.timed_length:,} tokens"
        return [
            _bars(
                f"Longest path, {2 * self.length} positions", "steps", names,
                [found[name].paths[1] for name in names],
            ),
            _bars(
                f"Longest chain of operations, {2 * self.length} positions", "operations", names,
                [found[name].chains[1] for name in names],
            ),
            _bars(
                f"Time ratio of {lengths}", "times", names,
                [found[name].seconds[1] / found[name].seconds[0] for name in names],
            ),
        ]  # fmt: skip

    def _symbols(self) -> Rows:
        return Rows(
            caption=(
                "As in the paper: n positions, width d, kernel k, neighbourhoods of r. With "
                "dilation a convolution has paths of length log_k(n)."
            ),
            columns=("layer", "complexity", "sequential operations", "longest path"),
            rows=tuple(
                (name, kind.complexity, kind.sequential, kind.path) for name, kind in TABLE.items()
            ),
        )

    def _counts(self, found: dict[str, Counted]) -> Rows:
        n, d = self.length, self.d_model
        return Rows(
            caption=(
                f"Counted at n = {n} and {2 * n}, d = {d} and {2 * d}, k = {KERNEL}, "
                f"r = {RADIUS} to either side; time of forward and backward pass at n = "
                f"{self.timed_length:,} and {2 * self.timed_length:,}, d = {self.timed_width}."
            ),
            columns=(
                "layer", "operations", "at 2n", "at 2d", "chain", "at 2n", "path", "at 2n",
                "ms", "at 2n",
            ),
            rows=tuple(
                (
                    name,
                    *map(counted, one.operations),
                    *one.chains,
                    *one.paths,
                    *(round(1000 * seconds, 2) for seconds in one.seconds),
                )
                for name, one in found.items()
            ),
        )  # fmt: skip

    def _projections(self, found: dict[str, Counted]) -> str:
        n, d = self.length, self.d_model
        projections = 4 * 2 * n * d * d
        share = projections / (projections + found["self-attention"].operations[0])
        return (
            "The table leaves out the four projections of attention (queries, keys, values, "
            f"output), 4 · n · d² products: at n = {n} and d = {d} they are {share:.0%} of all "
            "operations."
        )


def build_layer(name: str, d_model: int, device: torch.device | None = None) -> Layer:
    """Build a layer of the table: the package's own parts, without projections."""
    block = BlockConfig(d_model=d_model, n_heads=1, window=WindowConfig(reach=RADIUS, n_global=0))
    if name == "self-attention":
        dot = ScaledDotProduct(block)
        return lambda x: (dot.weights(x[:, None], x[:, None], Pattern(None)) @ x[:, None])[:, 0]
    if name == "self-attention (restricted)":
        window = ATTENTIONS["window"](block)
        return lambda x: window(x[:, None], x[:, None], x[:, None], _pattern(x))[:, 0]
    if name == "recurrent":
        cell = _cell(d_model).to(device)
        return lambda x: cell(x)[0]
    windows = EncoderWindow(ConvolutionalConfig(d_model=d_model, kernel=KERNEL)).to(device).eval()
    return lambda x: windows(x, x.new_ones(*x.shape[:2], KERNEL, dtype=torch.bool))


def operations(name: str, n: int, d_model: int) -> int:
    """Count the multiplications and additions of a layer's products, forwards."""
    layer, x = build_layer(name, d_model), torch.randn(1, n, d_model)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(x)
    return int(counter.get_total_flops())


def chain(name: str, n: int, d_model: int) -> int:
    """Count the operations of a layer that wait for one another."""
    return longest_chain(build_layer(name, d_model)(torch.randn(1, n, d_model, requires_grad=True)))


def longest_path(name: str, n: int, d_model: int) -> int:
    """Find the longest of the shortest paths between two positions of stacked layers."""
    x = torch.randn(1, n, d_model)
    if name == "recurrent":
        first, then = reach_of_cell(_cell(d_model), x)
    else:
        first = then = reach_of(build_layer(name, d_model), x)
    return max(map(max, path_lengths(first, then)))


def _cell(d_model: int) -> torch.nn.RNNBase:
    return CELLS["rnn"](input_size=d_model, hidden_size=d_model, batch_first=True)


def _pattern(x: Tensor) -> Pattern:
    return Pattern(
        None, grid=whole_rows(torch.zeros(x.shape[:2], dtype=torch.long, device=x.device))
    )


def _bars(title: str, unit: str, names: tuple[str, ...], values: Sequence[Number]) -> Panel:
    series = Series(label=unit, x=tuple(range(len(names))), y=tuple(values))
    return Panel(title=title, x_label="", y_label=unit, series=(series,), names=names)
