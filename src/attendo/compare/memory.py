"""How much memory a process has taken at most, and how much it can still have."""

import os
import re
import resource
import sys
from pathlib import Path

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
