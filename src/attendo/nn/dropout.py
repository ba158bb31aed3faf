"""Dropout (§5.4), with cheaper random numbers on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Sets a share of all numbers to zero while training, and makes up for it in the others."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop."""
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.p)
        return x * (_is_kept(x, self.p).to(x.dtype) / (1 - self.p))


def _is_kept(x: Tensor, p: float) -> Tensor:
    """Draw which numbers stay.

    A CPU draws one after the other, so that this takes long: a tenth of a training. One draw of 64
    random bits is enough for four numbers, at a precision of 2⁻¹⁶.
    """
    n = x.numel()
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)
    return (drawn.view(torch.int16)[:n] >= round(p * 2**16) - 2**15).view(x.shape)
