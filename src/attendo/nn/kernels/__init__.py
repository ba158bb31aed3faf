"""GPU kernels for the places where a training step spends its time on moving numbers.

Each does what a few lines of PyTorch elsewhere say, and the tests hold it to them, gradients
included. They are used where there are a GPU for which they are made and Triton, which comes with
PyTorch for GPUs, and never needed.
"""

from importlib.util import find_spec

import torch
from torch import Tensor

AVAILABLE = find_spec("triton") is not None


def is_half(x: Tensor) -> bool:
    """Tell whether a product with this would be in half precision, on a GPU."""
    is_autocast = x.is_cuda and torch.is_autocast_enabled("cuda")
    return is_autocast or (x.is_cuda and x.dtype in (torch.bfloat16, torch.float16))
