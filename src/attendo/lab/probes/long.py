"""Attention for long texts: from which length on each kind is faster, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attendo.config import BlockConfig
from attendo.lab.clock import free_memory
from attendo.lab.probes.exercises import (
    Exercise,
    accuracy,
    build,
    draw_distant,
    draw_latest,
    learn,
    seeded,
    transformer,
    whole_rows,
)
from attendo.lab.probes.layers import Work, bytes_of, crossing, growth, seconds_of
from attendo.lab.probes.probe import (
    Advance,
    Check,
    Outcome,
    Panel,
    Probe,
    Rows,
    Series,
    Settings,
)
from attendo.lab.report.document import listed, sized
from attendo.nn.attention import ATTENTIONS
from attendo.nn.stack import Stack
from attendo.reporter import Reporter

FULL = "dot"
LONG = tuple(name for name, kind in ATTENTIONS.items() if not kind.uses_mask)
KINDS = (FULL, *LONG)
TAIL = 3
"""Lengths, the longest ones, from which the growth is taken."""

AT_A_TIME = 3
"""At most, on a CPU, so many times what is kept for the way back is needed at a time."""

N_ROUNDS = 2
"""Of hashing, in learning."""

DRAWS: dict[str, Callable[[torch.Generator, int, int], Exercise]] = {
    "near": draw_latest,
    "far": draw_distant,
}
"""What is learned: from what stood a little before, and from what stood long before."""

Rights = dict[str, dict[str, float]]
"""Share of right answers by kind and exercise."""


class Cost(NamedTuple):
    """What a kind takes at every length; lists end where it does not fit into memory."""

    seconds: list[float]
    n_bytes: list[int]


@dataclass(frozen=True)
class Long(Probe):
    """One attention of every kind at growing lengths, and small models that learn with it."""

    name = "long"
    title = "Attention for long texts"
    claim = (
        "On long texts, windows, chunks, hashing and random features need less time and memory "
        "than full attention, at some cost in quality"
    )
    method = (
        "Time and memory of one self-attention with projections and masks, forward and backward, "
        "for one sequence, with the default sizes of a recipe. Then decoders of two layers are "
        "trained to predict the symbol that was marked last (near) or long before (far)."
    )

    d_model: int = 128
    n_heads: int = 2
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    n_times: int = 2
    learned_length: int = 48
    learned_window: int = 8
    n_rows: int = 8
    n_tests: int = 128
    n_steps: int = 150

    @classmethod
    def thorough(cls) -> "Long":
        """Measure up to 65,536 tokens, and train on longer sequences for more steps."""
        lengths = tuple(4**power for power in range(4, 9))
        learned = {"learned_length": 512, "learned_window": 32, "n_rows": 32, "n_steps": 600}
        return cls(d_model=512, n_heads=8, lengths=lengths, n_times=10, n_tests=256, **learned)

    def explore(self, settings: Settings, reporter: Reporter) -> Outcome:
        """Measure costs, then quality."""
        costs: dict[str, Cost] = {}
        right: Rights = {}
        with reporter.bar("long", len(KINDS) * (len(self.lengths) + len(DRAWS))) as advance:
            for kind in KINDS:
                costs[kind] = self._cost(kind, settings, advance)
            for kind in KINDS:
                right[kind] = {}
                for exercise in DRAWS:
                    right[kind][exercise] = self._quality(kind, exercise, settings)
                    advance(1, f"{kind}, {exercise}")
        return Outcome(
            checks=(self._grows(costs), *self._pays(costs), *_keeps(right)),
            panels=(*self._lines(costs, settings), *_bars(right)),
            tables=(self._table(costs, right),),
            notes=tuple(self._notes(costs)),
        )

    def _cost(self, kind: str, settings: Settings, advance: Advance) -> Cost:
        cost, device = Cost([], []), settings.device
        for length in self.lengths:
            advance(1, f"{kind}, {length:,} tokens")
            if device.type == "cpu" and self._needed(kind, length, cost) > free_memory():
                break  # where a GPU refuses, a CPU's machine would break down
            try:
                work = self._work(kind, length, settings)
                cost.seconds.append(seconds_of(work, device, self.n_times))
                cost.n_bytes.append(bytes_of(work, device))
            except torch.OutOfMemoryError:
                break
        return Cost(cost.seconds[: len(cost.n_bytes)], cost.n_bytes)

    def _needed(self, kind: str, length: int, cost: Cost) -> float:
        """Predict the memory of a length from that of the one before; of the first, nothing."""
        if not cost.n_bytes:
            return 0.0
        growth = length / self.lengths[len(cost.n_bytes) - 1]
        return AT_A_TIME * cost.n_bytes[-1] * growth ** (2 if kind == FULL else 1)

    def _work(self, kind: str, length: int, settings: Settings) -> Work:
        """Build an attention, and return a function that applies it to a row of random vectors."""
        device = settings.device
        with seeded(settings.seed):
            block = BlockConfig(d_model=self.d_model, n_heads=self.n_heads, attention=kind)
            stack = Stack(block, 1).to(device)
            x = torch.randn(1, length, self.d_model).to(device).requires_grad_()
        grid = whole_rows(torch.zeros(1, length, dtype=torch.long, device=device))
        attention = stack.typed_layers()[0].self_attention

        def work() -> Tensor:
            # As in training: on a GPU in half precision, for which some kinds have a kernel.
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                output: Tensor = attention(x, x, stack.pattern(grid))
                return output

        return work

    def _quality(self, kind: str, exercise: str, settings: Settings) -> float:
        window = self.learned_window
        sizes: dict[str, Any] = {
            "window": {"reach": window},
            "chunks": {"size": window, "overlap": window // 2},
            "lsh": {"reach": window, "n_buckets": 4, "n_rounds": N_ROUNDS},
            "favor": {"n_features": 64},
        }
        with seeded(settings.seed) as generator:
            config = transformer(64, n_heads=2, attention=kind, positions="rotary", **sizes)
            model = build(config).to(settings.device)
            draw = partial(DRAWS[exercise], generator)
            learn(model, lambda: draw(self.n_rows, self.learned_length), self.n_steps)
            return accuracy(model, draw(self.n_tests, self.learned_length))

    def _grows(self, costs: dict[str, Cost]) -> Check:
        slopes = {
            kind: growth(self.lengths[: len(one.seconds)][-TAIL:], one.seconds[-TAIL:]).slope
            for kind, one in costs.items()
        }
        texts = [f"^{slope:.2f} ({kind})" for kind, slope in slopes.items()]
        return Check(
            claim="The time of full attention grows with the square of the length, the others less",
            measured=f"time grows as length{listed(texts)}",
            holds=slopes[FULL] > 1.5 and all(slopes[kind] < 1.4 for kind in LONG),
        )

    def _pays(self, costs: dict[str, Cost]) -> list[Check]:
        checks = []
        for kind in LONG:
            full, one = costs[FULL], costs[kind]
            last = self._last(costs, kind)
            faster, smaller = self._pays_from(costs, kind)
            checks.append(
                Check(
                    claim=f"On long texts {kind} needs less time and memory",
                    measured=f"less time {faster}, less memory {smaller}; at "
                    f"{self.lengths[last]:,} tokens "
                    f"{one.seconds[last] / full.seconds[last]:.2g} times the time and "
                    f"{one.n_bytes[last] / full.n_bytes[last]:.2g} times the memory",
                    holds=None not in self._crossings(costs, kind),
                )
            )
        return checks

    def _crossings(self, costs: dict[str, Cost], kind: str) -> list[float | None]:
        """Find from which length on a kind takes less time and less memory than full attention."""
        (seconds, n_bytes), (full_seconds, full_bytes) = costs[kind], costs[FULL]
        end = self._last(costs, kind) + 1
        pairs = (seconds, full_seconds), (n_bytes, full_bytes)
        return [crossing(self.lengths[:end], one[:end], full[:end]) for one, full in pairs]

    def _last(self, costs: dict[str, Cost], kind: str) -> int:
        """Find the greatest length that both could do."""
        return min(len(costs[FULL].seconds), len(costs[kind].seconds)) - 1

    def _pays_from(self, costs: dict[str, Cost], kind: str) -> list[str]:
        """Return the same as text."""
        first, last = self.lengths[0], self.lengths[self._last(costs, kind)]
        return [
            f"not up to {last:,}"
            if length is None
            else (f"from {length:,.0f}" if length > first else f"from {first:,} or less")
            for length in self._crossings(costs, kind)
        ]

    def _lines(self, costs: dict[str, Cost], settings: Settings) -> list[Panel]:
        is_gpu = settings.device.type == "cuda"
        memory = "Peak memory" if is_gpu else "Memory stored for the backward pass"
        values: dict[tuple[str, str], Callable[[Cost], list[float]]] = {
            ("Time", "milliseconds"): lambda cost: [1000 * one for one in cost.seconds],
            (memory, "MiB"): lambda cost: [one / 2**20 for one in cost.n_bytes],
        }
        return [
            Panel(
                title=title,
                x_label="tokens",
                y_label=unit,
                series=tuple(self._series(kind, value(cost)) for kind, cost in costs.items()),
                x_scale="log",
                y_scale="log",
            )
            for (title, unit), value in values.items()
        ]

    def _series(self, kind: str, values: list[float]) -> Series:
        missing = (None,) * (len(self.lengths) - len(values))
        return Series(label=kind, x=self.lengths, y=(*values, *missing))

    def _table(self, costs: dict[str, Cost], right: Rights) -> Rows:
        last = min(len(cost.seconds) for cost in costs.values()) - 1
        longest = f"{self.lengths[last]:,}"
        return Rows(
            caption="Length from which on a kind needs less time and memory than full attention; "
            f"time and memory at {longest} tokens; accuracy after training (near, far).",
            columns=("kind", "less time", "less memory", f"ms at {longest}", "memory", *DRAWS),
            rows=tuple(
                (
                    kind,
                    *(("–", "–") if kind == FULL else self._pays_from(costs, kind)),
                    f"{1000 * cost.seconds[last]:,.1f}",
                    sized(cost.n_bytes[last]),
                    *(f"{share:.0%}" for share in right[kind].values()),
                )
                for kind, cost in costs.items()
            ),
        )  # fmt: skip

    def _notes(self, costs: dict[str, Cost]) -> list[str]:
        window, quarter = self.learned_window, self.learned_length // 4
        notes = [
            f"Training: sequences of {self.learned_length} symbols, windows of {window} to the "
            f"left, chunks of {window} with an overlap of {window // 2}, hashing with {window} "
            f"neighbours in each of {N_ROUNDS} rounds, 64 random features, {self.n_steps} steps. "
            f"Far: {2 * quarter + 1} to {self.learned_length - 2} positions back.",
        ]
        ended = {kind: len(cost.seconds) for kind, cost in costs.items()}
        texts = [
            f"{kind} from {self.lengths[n]:,} tokens on"
            for kind, n in ended.items()
            if n < len(self.lengths)
        ]
        return (
            [*notes, f"Not measured, since memory was too small: {listed(texts)}."]
            if texts
            else notes
        )


def _keeps(right: Rights) -> list[Check]:
    claims = {
        "near": ("For near dependencies no kind is worse than full attention", LONG),
        "far": ("For far dependencies random features are as good as full attention", ("favor",)),
    }
    return [
        Check(
            claim=claim,
            measured="accuracy: "
            + listed([f"{right[kind][exercise]:.0%} ({kind})" for kind in KINDS]),
            holds=all(right[kind][exercise] > right[FULL][exercise] - 0.05 for kind in kinds),
        )
        for exercise, (claim, kinds) in claims.items()
    ]


def _bars(right: Rights) -> list[Panel]:
    return [
        Panel(
            title=f"Accuracy, {exercise} dependency",
            x_label="",
            y_label="accuracy",
            series=(
                Series(
                    label=exercise,
                    x=tuple(range(len(KINDS))),
                    y=tuple(right[kind][exercise] for kind in KINDS),
                ),
            ),
            names=KINDS,
            percent=True,
        )
        for exercise in DRAWS
    ]
