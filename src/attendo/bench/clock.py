"""The clock of all benchmarks, and the machine that is measured."""

import platform
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple, TypeVar

import torch

from attendo.config import TransformerConfig
from attendo.training.run import hardware

T = TypeVar("T")


def describe(device: torch.device) -> dict[str, Any]:
    """Say what a figure depends on besides the program."""
    return {
        "device": device.type,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "python": platform.python_version(),
    }


def wait_for(device: torch.device) -> None:
    """Wait until everything that was asked of a GPU is done; a CPU is never behind."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_peak(device: torch.device) -> None:
    """Begin to watch the memory anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int | None:
    """Give the most bytes that tensors took at a time; of a CPU it is not known."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


class Stretch(NamedTuple):
    """Some work that was timed as a whole."""

    n_steps: int
    n_tokens: int
    """Target tokens, without padding."""
    seconds: float


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Do something; returns its result and the seconds it took."""
    wait_for(device)
    start = time.perf_counter()
    result = work()
    wait_for(device)
    return result, time.perf_counter() - start


def time_stretch(step: Callable[[], int], n_steps: int, device: torch.device) -> Stretch:
    """Time some steps, each of which says how many target tokens it had.

    A GPU is waited for at both ends and never in between.
    """
    n_tokens, seconds = timed(lambda: sum(step() for _ in range(n_steps)), device)
    return Stretch(n_steps, n_tokens, seconds)


def split_evenly(total: int, n_parts: int) -> list[int]:
    """Cut a number of steps into stretches, none of them empty."""
    n_parts = min(total, n_parts)
    return [total // n_parts + (part < total % n_parts) for part in range(n_parts)]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Give the median of a measure under its name, and lowest and highest beside it."""
    return {name: median(values), f"{name}_low": min(values), f"{name}_high": max(values)}


def speed(stretches: Sequence[Stretch]) -> dict[str, float]:
    """Sum up stretches of training."""
    return {
        **spread("tokens_per_second", [one.n_tokens / one.seconds for one in stretches]),
        "milliseconds_per_step": median(1000 * one.seconds / one.n_steps for one in stretches),
    }


def training_flops(
    config: TransformerConfig, vocabulary: int, n_source: int, n_target: int
) -> float:
    """Estimate the floating-point operations of learning from so many tokens.

    Every weight of a matrix costs each token that passes it two operations forward and four
    backward. Padding does not count, and neither do the products of queries with keys and of
    weights with values, which for sentences are about a hundredth of the whole.
    """
    square = config.d_model**2
    feed_forward = config.d_model * config.d_ff * (3 if config.feed_forward == "gated" else 2)
    keys_values = 2 * square  # of the source, in every decoder layer
    on_source = config.encoder_layers * (4 * square + feed_forward)
    on_source += config.decoder_layers * keys_values
    on_target = config.decoder_layers * (6 * square + feed_forward)
    on_target += config.d_model * vocabulary
    return 6.0 * (on_source * n_source + on_target * n_target)
