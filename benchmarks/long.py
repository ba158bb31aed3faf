"""Attention for long texts beside full attention: time and memory against the length.

PYTHONPATH=src python3 benchmarks/long.py --help
"""

import gc
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any, NamedTuple

import torch
import typer
from growth import Growth, draw
from script import run
from torch import Tensor
from torch.nn import functional

from attendo.bundle import find_device
from attendo.config import choose
from attendo.errors import TrainingError
from attendo.files import write_text
from attendo.lab.bench.results import WIDTH, Column, Report
from attendo.lab.clock import describe, forget_peak, peak_memory, wait_for
from attendo.nn.attention.favor import favor_attention, orthogonal_features
from attendo.nn.attention.lsh import lsh_attention, make_rotations
from attendo.nn.attention.window import chunk_attention, window_attention
from attendo.reporter import Console

Row = dict[str, Any]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

LENGTHS = {"cuda": [2**n for n in range(10, 17)], "cpu": [2**n for n in range(10, 14)]}
RUNS = {"cuda": 20, "cpu": 3}

COLUMNS = {
    "system": Column("kind"),
    "length": Column("tokens", ","),
    "milliseconds_forward": Column("forward ms", ",.2f"),
    "milliseconds_backward": Column("backward ms", ",.2f"),
    "times_as_fast": Column("full ÷ it", ",.2f"),
    "peak_memory_bytes": Column("peak MiB", ",.0f", unit=2**20),
    "time_exponent": Column("time ~ n^", ".2f"),
    "memory_exponent": Column("memory ~ n^", ".2f"),
    "memory_straightness": Column("memory linear, R²", ".5f"),
}

NOTES = [
    "full: scaled_dot_product_attention without a mask; all get the same tokens, one text a row; "
    "on GPUs compiled, and recorded as a CUDA graph",
    "medians; full ÷ it: forward and backward of full attention divided by those of this kind",
    "peak memory with queries, keys, values and their gradients; fits over all lengths of a kind",
]


class Setting(NamedTuple):
    """The inputs of all kinds, and how far each of them attends."""

    device: torch.device
    rows: int
    n_heads: int
    width: int
    is_causal: bool
    window: int
    n_global: int
    chunk: int
    overlap: int
    reach: int
    n_buckets: int
    n_rounds: int
    n_features: int

    def places(self, length: int) -> tuple[Tensor, Tensor]:
        """Return segments and positions: one text per row."""
        positions = torch.arange(length, device=self.device).expand(self.rows, -1)
        return torch.ones_like(positions), positions

    def heads(self, length: int) -> list[Tensor]:
        """Draw queries, keys and values."""
        dtype = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        shape = self.rows, self.n_heads, length, self.width
        drawn = torch.randn(3, *shape, device=self.device, dtype=dtype)
        return [x.clone().requires_grad_() for x in drawn]


def _full(setting: Setting, length: int) -> Attend:
    return partial(functional.scaled_dot_product_attention, is_causal=setting.is_causal)


def _window(setting: Setting, length: int, n_global: int = 0) -> Attend:
    where, sizes = setting.places(length), (setting.window, n_global)
    return lambda q, k, v: window_attention(q, k, v, *where, *sizes, setting.is_causal)


def _global(setting: Setting, length: int) -> Attend:
    return _window(setting, length, setting.n_global)


def _chunks(setting: Setting, length: int) -> Attend:
    where, sizes = setting.places(length), (setting.chunk, setting.overlap)
    return lambda q, k, v: chunk_attention(q, k, v, *where, *sizes, setting.is_causal)


def _lsh(setting: Setting, length: int) -> Attend:
    segments, _ = setting.places(length)
    sizes = setting.n_heads, setting.n_rounds, setting.width, setting.n_buckets
    rotations = make_rotations(*sizes, torch.Generator(setting.device))
    sight = {"reach": setting.reach, "is_causal": setting.is_causal}
    return lambda q, k, v: lsh_attention(q, v, rotations, segments, **sight)


def _favor(setting: Setting, length: int) -> Attend:
    segments, _ = setting.places(length)
    sizes = setting.n_features, setting.width
    features = orthogonal_features(*sizes, torch.Generator(setting.device))
    return lambda q, k, v: favor_attention(q, k, v, features, segments, setting.is_causal)


KINDS: dict[str, Callable[[Setting, int], Attend]] = {
    "full": _full,
    "window": _window,
    "global": _global,
    "chunks": _chunks,
    "lsh": _lsh,
    "favor": _favor,
}

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(  # noqa: PLR0913 -- options are arguments
    lengths: Annotated[
        list[int] | None,
        typer.Option("--length", min=1, help="Tokens; may be repeated (1k to 64k; CPU: 8k)."),
    ] = None,
    kinds: Annotated[str, typer.Option(help="Kinds, separated by commas.")] = ",".join(KINDS),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    rows: Annotated[int, typer.Option(min=1, help="Sequences per batch.")] = 1,
    heads: Annotated[int, typer.Option(min=1, help="Number of heads.")] = 8,
    width: Annotated[int, typer.Option(min=1, help="Width of a head.")] = 64,
    causal: Annotated[
        bool, typer.Option("--causal/--both-ways", help="Causal mask, or none.")
    ] = False,
    window: Annotated[int, typer.Option(min=1, help="Tokens on either side (window).")] = 256,
    n_global: Annotated[int, typer.Option(min=1, help="Global tokens (kind global).")] = 1,
    chunk: Annotated[int, typer.Option(min=1, help="Tokens of a chunk (chunks).")] = 256,
    overlap: Annotated[int, typer.Option(min=0, help="Overlap in tokens (chunks).")] = 128,
    reach: Annotated[int, typer.Option(min=1, help="Neighbours on either side (lsh).")] = 64,
    buckets: Annotated[int, typer.Option(min=2, help="Buckets (lsh).")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of hashing (lsh).")] = 4,
    features: Annotated[int, typer.Option(min=1, help="Random features (favor).")] = 128,
    runs: Annotated[int | None, typer.Option(min=1, help="Measurements (20; CPU: 3).")] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic/--static", help="One compiled program for all, or each.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Also write JSON to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw a PNG to this file.")] = None,
) -> None:
    """Measure forward and backward passes of attention kinds at several lengths."""
    where = find_device(device)
    names = [name.strip() for name in kinds.split(",") if name.strip()]
    builds = {name: choose(KINDS, name, "--kinds") for name in names}
    sizes = window, n_global, chunk, overlap, reach, buckets, rounds, features
    setting = Setting(where, rows, heads, width, causal, *sizes)
    lengths, runs = lengths or LENGTHS[where.type], runs or RUNS[where.type]

    found: list[Row] = []
    with Console().bar("measuring", len(names) * len(lengths)) as advance:
        for name, build in builds.items():
            for length in lengths:
                _clear(where, forget_programs=not dynamic)
                row = measure(build, setting, length, runs)
                found.append({"system": name, "length": length, **row})
                advance(1, f"{name}, {length} tokens")
    growths = _growths(found)
    rows_of_table = _compared(found, growths)
    asked = setting._asdict() | {"device": str(where), "runs": runs, "dynamic": dynamic}
    report = Report("long", describe(where), asked, rows_of_table, NOTES)
    _print(report)
    if json:
        write_text(json, report.to_json() + "\n")
    if plot:
        draw(growths, plot)


def measure(
    build: Callable[[Setting, int], Attend], setting: Setting, length: int, runs: int
) -> Row:
    """Measure a kind at a length; return nothing if it runs out of memory."""
    device = setting.device
    before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    try:
        heads, attend = setting.heads(length), build(setting, length)
        slope = torch.randn_like(heads[0])
        attend = torch.compile(attend) if device.type == "cuda" else attend
        _time(attend, heads, slope, n_runs=3)  # the first compiles, and memory is found
        _check(attend(*heads).detach())
        forget_peak(device)
        _time(attend, heads, slope, n_runs=1)
        peak = peak_memory(device)
        attend = _recorded(attend, heads) if device.type == "cuda" else attend
        marks = _time(attend, heads, slope, runs)
    except torch.OutOfMemoryError:
        return {}
    return {
        "milliseconds_forward": median(_between(begin, middle) for begin, middle, _ in marks),
        "milliseconds_backward": median(_between(middle, end) for _, middle, end in marks),
        "peak_memory_bytes": None if peak is None else peak - before,
    }


def _check(found: Tensor) -> None:
    """Raise an error if the kind does not compute finite results."""
    if not found.isfinite().all():
        raise TrainingError("attention gave a result that is not finite; this is a bug in attendo")


def _recorded(attend: Attend, heads: list[Tensor]) -> Attend:
    """Record the work as a CUDA graph, as training does, so that the GPU never waits for Python."""
    copies = tuple(x.detach().clone().requires_grad_() for x in heads)
    recorded: Attend = torch.cuda.make_graphed_callables(
        attend, copies, num_warmup_iters=1, allow_unused_input=True
    )
    return recorded


Mark = Any
"""A moment: of a GPU an event, else a number of seconds."""


def _time(
    attend: Attend, heads: list[Tensor], slope: Tensor, n_runs: int
) -> list[tuple[Mark, Mark, Mark]]:
    """Run forward and backward several times; the CPU waits for a GPU at the end only."""
    device, marks = slope.device, []
    for _ in range(n_runs):
        begin = _mark(device)
        found = attend(*heads)
        middle = _mark(device)
        torch.autograd.grad(found, heads, slope, allow_unused=True)  # lsh has no keys
        marks.append((begin, middle, _mark(device)))
    wait_for(device)
    return marks


def _mark(device: torch.device) -> Mark:
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between(earlier: Mark, later: Mark) -> float:
    """Return the milliseconds between two events."""
    if isinstance(earlier, float):
        return 1000 * (later - earlier)
    return float(earlier.elapsed_time(later))


def _clear(device: torch.device, *, forget_programs: bool) -> None:
    """Free the memory of the last kind, and optionally its compiled programs."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        if forget_programs:
            torch.compiler.reset()


TIME, MEMORY = "milliseconds, forward and backward", "peak memory, MiB"


def _growths(rows: list[Row]) -> dict[str, dict[str, Growth]]:
    """Collect lengths, times and memory by kind, without those that were not measured."""
    panels: dict[str, dict[str, Growth]] = {}
    for title, figure_of in ((TIME, _milliseconds), (MEMORY, _mebibytes)):
        for name in dict.fromkeys(row["system"] for row in rows):
            own = [(row["length"], figure_of(row)) for row in rows if row["system"] == name]
            known = [(length, figure) for length, figure in own if figure is not None]
            if known:
                panels.setdefault(title, {})[name] = Growth(*zip(*sorted(known), strict=True))
    return panels


def _milliseconds(row: Row) -> float | None:
    if "milliseconds_forward" not in row:
        return None
    return float(row["milliseconds_forward"] + row["milliseconds_backward"])


def _mebibytes(row: Row) -> float | None:
    peak = row.get("peak_memory_bytes")
    return None if peak is None else peak / 2**20


def _compared(rows: list[Row], growths: dict[str, dict[str, Growth]]) -> list[Row]:
    """Add the speed-up over full attention to every row, and the fits to the last row of a kind."""
    full = {row["length"]: _milliseconds(row) for row in rows if row["system"] == "full"}
    compared = []
    for row, following in zip(rows, [*rows[1:], {}], strict=True):
        own, theirs = _milliseconds(row), full.get(row["length"])
        more = {"times_as_fast": theirs / own} if own and theirs else {}
        if following.get("system") != row["system"]:
            more |= _fits(growths, row["system"])
        compared.append({**row, **more})
    return compared


def _fits(growths: dict[str, dict[str, Growth]], name: str) -> Row:
    """Fit the growth of time and memory of a kind, if two lengths or more were measured."""
    time_, memory = (growths.get(title, {}).get(name) for title in (TIME, MEMORY))
    fits: Row = {}
    if time_ and len(time_.lengths) > 1:
        fits["time_factor"], fits["time_exponent"] = time_.power()
    if memory and len(memory.lengths) > 1:
        fits["memory_factor"], fits["memory_exponent"] = memory.power()
        fits["memory_straightness"] = memory.straightness()
    return fits


def _print(report: Report) -> None:
    from rich.console import Console as Terminal
    from rich.table import Table

    terminal = Terminal(highlight=False)
    if not terminal.is_terminal:
        terminal = Terminal(highlight=False, width=WIDTH)
    table = Table(box=None)
    shown = [key for key in COLUMNS if any(row.get(key) is not None for row in report.rows)]
    for key in shown:
        table.add_column(COLUMNS[key].title, justify="left" if key == "system" else "right")
    for row in report.rows:
        table.add_row(*(_cell(row.get(key), COLUMNS[key]) for key in shown))
    terminal.print(f"{report.machine['hardware']}, torch {report.machine['torch']}")
    terminal.print(table)
    for note in report.notes:
        terminal.print(note, markup=False, soft_wrap=True)


def _cell(value: Any, column: Column) -> str:
    if value is None:
        return "–"
    return format(value / column.unit if column.unit != 1 else value, column.form)


if __name__ == "__main__":
    run(app)
