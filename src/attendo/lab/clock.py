"""The machine, and what work on it takes: time, memory and energy."""

import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple, TypeVar

import torch

from attendo.config import TransformerConfig
from attendo.training.complete import hardware

T = TypeVar("T")


def describe(device: torch.device) -> dict[str, Any]:
    """Return the hardware and software that a measurement depends on."""
    return {
        "device": device.type,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "python": platform.python_version(),
    }


def wait_for(device: torch.device) -> None:
    """Wait until a GPU has finished all queued work; do nothing for a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget_peak(device: torch.device) -> None:
    """Reset the peak of the memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: torch.device) -> int | None:
    """Return the peak memory of tensors in bytes; None for a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


class Stretch(NamedTuple):
    """Some work that was timed as a whole."""

    n_steps: int
    n_tokens: int
    """Target tokens, without padding."""
    seconds: float


def timed(work: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """Call a function; return its result and the seconds it took."""
    wait_for(device)
    start = time.perf_counter()
    result = work()
    wait_for(device)
    return result, time.perf_counter() - start


def time_stretch(step: Callable[[], int], n_steps: int, device: torch.device) -> Stretch:
    """Measure some steps, each of which returns its number of target tokens.

    A GPU is waited for at both ends and never in between.
    """
    n_tokens, seconds = timed(lambda: sum(step() for _ in range(n_steps)), device)
    return Stretch(n_steps, n_tokens, seconds)


def split_evenly(total: int, n_parts: int) -> list[int]:
    """Split a number of steps into stretches, none of them empty."""
    n_parts = min(total, n_parts)
    return [total // n_parts + (part < total % n_parts) for part in range(n_parts)]


def spread(name: str, values: Sequence[float]) -> dict[str, float]:
    """Return the median of a measure under its name, with the lowest and highest value."""
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
    across = 2 * square if n_source else 0  # queries and output of attention to the source
    on_target = config.decoder_layers * (4 * square + across + feed_forward)
    on_target += config.d_model * vocabulary
    return 6.0 * (on_source * n_source + on_target * n_target)


# Memory and power.

STATUS = Path("/proc/self/status")
OF_MACHINE = Path("/proc/meminfo")


def highest_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: of tensors on a GPU, else of this process."""
    of_gpu = peak_memory(device)
    if of_gpu is not None:
        return of_gpu
    # Where there is no such file, a process also counts what its parent took before it began.
    if STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())):
        return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_memory() -> int:
    """Return the free memory in bytes, or half of all where it is not known."""
    available = r"MemAvailable:\s+(\d+) kB"
    if OF_MACHINE.exists() and (found := re.search(available, OF_MACHINE.read_text())):
        return int(found[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


WATTS_A_CORE = 10.0
"""Assumed power of a busy CPU core, with its share of memory and power supply."""


class Energy(NamedTuple):
    """An estimate, and where it comes from."""

    watt_hours: float | None
    watts: float | None
    how: str


def estimate_energy(
    seconds: float, *, measured: float | None, given: float | None, device: str, n_threads: int
) -> Energy:
    """Multiply seconds by power: as given, as measured on the GPU, or as assumed for a CPU."""
    if given is not None:
        watts, how = given, "the power given with --watts"
    elif measured is not None:
        watts, how = measured, "mean power in training from nvidia-smi, GPU only"
    elif device == "cpu":
        watts = WATTS_A_CORE * n_threads
        how = f"assumed: {WATTS_A_CORE:g} W per CPU core, {n_threads} of them (set it with --watts)"
    else:
        return Energy(None, None, "unknown: there is no nvidia-smi, and --watts was not given")
    return Energy(watts * seconds / 3600, watts, how)


class Power:
    """The mean power in watts, or None where it is not known."""

    watts: float | None = None


@contextmanager
def power_meter(device: torch.device) -> Iterator[Power]:
    """Measure the power of a GPU with nvidia-smi twice a second; nothing for a CPU."""
    power, program = Power(), shutil.which("nvidia-smi")
    if device.type != "cuda" or not program:
        yield power
        return
    identity = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["--query-gpu=power.draw", "--format=csv,noheader,nounits", "-lms", "500"]
    with tempfile.TemporaryFile("w+") as shown:
        asking = subprocess.Popen(
            [program, *query, "-i", identity], stdout=shown, stderr=subprocess.DEVNULL
        )
        try:
            yield power
        finally:
            asking.terminate()
            asking.wait()
            shown.seek(0)
            power.watts = mean_watts(shown.read())


def mean_watts(shown: str) -> float | None:
    """Return the mean of lines of watts; some GPUs report [N/A]."""
    found = []
    for line in shown.splitlines():
        with suppress(ValueError):
            found.append(float(line))
    return mean(found) if found else None
