"""Kernels that begin while the one before them ends.

On Hopper a kernel may be launched before the one before it has ended. What it does before it waits
for that one, such as reading a weight, then costs no time. Every kernel that is launched like this
must wait before it reads or writes anything that changes.
"""

import torch
import triton
from torch import Tensor
from triton import language as tl

SINCE = (9, 0)
"""The first GPUs that have it."""


def overlaps(tensor: Tensor) -> bool:
    """Return whether kernels on the device of a tensor can begin early."""
    return tensor.is_cuda and torch.cuda.get_device_capability(tensor.device) >= SINCE


def launch(tensor: Tensor) -> dict[str, bool]:
    """Return the arguments of a kernel that begins early where that is possible."""
    return {"EARLY": True, "launch_pdl": True} if overlaps(tensor) else {"EARLY": False}


@triton.jit
def wait(EARLY: tl.constexpr):
    """Let the next kernel begin, and wait for the end of the one before."""
    if EARLY:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()
