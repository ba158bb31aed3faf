"""Where half precision would not do."""

import torch
from torch import Tensor


def wide(x: Tensor) -> Tensor:
    """Give a tensor in at least fp32: what is summed up or taken away again must not be rounded."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
