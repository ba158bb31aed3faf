"""Models of which only the shapes are known: nothing is allocated, and nothing is drawn."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


class _Undrawn(TorchFunctionMode):
    """Draws no normal numbers: where there is no memory, torch imports its compiler for them."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


@contextmanager
def shapes_only() -> Iterator[None]:
    """Build all models without memory for their parameters."""
    with torch.device("meta"), _Undrawn():
        yield
