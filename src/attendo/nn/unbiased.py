"""What a sub-layer makes, with a bias that may still have to be added.

The residual connection comes next. On a GPU its kernel passes over the result anyway, and adds the
bias and sums its gradient on the way, which would take passes of their own.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Unbiased(NamedTuple):
    """A sub-layer's last product and its bias."""

    product: Float[Tensor, "R T D"]
    bias: Float[Tensor, " D"] | None = None
    """None if it has been added."""

    def biased(self) -> Float[Tensor, "R T D"]:
        """Add the bias."""
        if self.bias is None:
            return self.product
        return self.product + self.bias.to(self.product.dtype)
