"""GPU kernels for the places where a training step spends its time on moving numbers.

Each does what a few lines of PyTorch elsewhere say, and the tests hold it to them, gradients
included. They are used where there are a GPU and Triton, which comes with PyTorch for GPUs, and
never needed.
"""

from importlib.util import find_spec

AVAILABLE = find_spec("triton") is not None
