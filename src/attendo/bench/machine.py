"""The machine that is measured: what it is, when it is done, what memory it took."""

import platform
from typing import Any

import torch

from attendo.training.run import hardware


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
