"""Faster ways to compute what `nn` defines, tested equal to it.

Nothing here has parameters or settings of its own: `stacks.accelerate` takes the plain modules and
runs them by fused kernels, or with less memory, where that applies. The kernels need a GPU that
they are made for, and Triton, which comes with PyTorch for GPUs.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

AVAILABLE = find_spec("triton") is not None


def is_half(x: Tensor) -> bool:
    """Return whether a product with this would be in half precision, on a GPU."""
    is_autocast = x.is_cuda and torch.is_autocast_enabled("cuda")
    return is_autocast or (x.is_cuda and x.dtype in (torch.bfloat16, torch.float16))
