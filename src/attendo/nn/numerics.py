"""Random numbers and precision: dropout (§5.4), and where half precision would not do."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Dropout(nn.Module):
    """Set a share p of all elements to zero while training, and scale the others by 1 / (1 - p)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements at random."""
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return functional.dropout(x, self.p)
        return x * (_draw_kept(x, self.p).to(x.dtype) / (1 - self.p))


def _draw_kept(x: Tensor, p: float) -> Tensor:
    """Draw which elements are kept.

    A CPU draws one number after the other, which would take a tenth of the training time. One draw
    of 64 random bits is enough for four elements, at a precision of 2⁻¹⁶.
    """
    n = x.numel()
    drawn = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(2**63), None)
    return (drawn.view(torch.int16)[:n] >= round(p * 2**16) - 2**15).view(x.shape)


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """Return cap · tanh(x / cap), which is near x where that is small and never beyond the cap."""
    return cap * (x / cap).tanh() if cap else x


def widen(x: Tensor) -> Tensor:
    """Return a tensor in at least fp32, for sums that must not be rounded to half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
