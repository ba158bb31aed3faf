"""Memory and power in training, and the energy that follows from it."""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import torch

from attendo.bench.clock import peak_memory

STATUS = Path("/proc/self/status")
OF_MACHINE = Path("/proc/meminfo")


def highest_memory(device: torch.device) -> int:
    """Give the most bytes so far: of a GPU what tensors took, else of this whole process."""
    of_gpu = peak_memory(device)
    if of_gpu is not None:
        return of_gpu
    # Where there is no such file, a process also counts what its parent took before it began.
    if STATUS.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text())):
        return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def free_memory() -> int:
    """Give the bytes that a CPU's machine has left, or where it does not say, half of all."""
    available = r"MemAvailable:\s+(\d+) kB"
    if OF_MACHINE.exists() and (found := re.search(available, OF_MACHINE.read_text())):
        return int(found[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


WATTS_A_CORE = 10.0
"""What is assumed of a busy CPU core, with its share of memory and power supply."""


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
    """What was drawn while somebody looked: watts on the mean, or None where nothing is known."""

    watts: float | None = None


@contextmanager
def power_meter(device: torch.device) -> Iterator[Power]:
    """Ask nvidia-smi twice a second what a GPU draws; of a CPU nothing is asked."""
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
    """Take the mean of lines of watts; some GPUs say [N/A]."""
    found = []
    for line in shown.splitlines():
        with suppress(ValueError):
            found.append(float(line))
    return mean(found) if found else None
