"""Position-wise feed-forward networks: the same two layers at every place (§3.3)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn import kernels
from attendo.nn.dropout import Dropout
from attendo.nn.unbiased import Unbiased

if kernels.AVAILABLE:
    from attendo.nn.kernels.feedforward import feed_forward, fits


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, eq. 2."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(block.d_model, block.d_ff)
        self.outer = nn.Linear(block.d_ff, block.d_model)
        self.dropout = Dropout(block.p_drop_inner)

    def forward(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
        """Transform each place on its own."""
        return self.unbiased(x).biased()

    def unbiased(self, x: Float[Tensor, "R T D"]) -> Unbiased:
        """Leave the last bias to the residual connection where that is faster."""
        drops = self.training and self.dropout.p > 0
        is_plain = type(self).activate is FeedForward.activate and not drops
        if kernels.AVAILABLE and is_plain and kernels.is_half(x) and fits(x, self.inner):
            return Unbiased(feed_forward(x, self.inner, self.outer), self.outer.bias)
        return Unbiased(self.outer(self.dropout(self.activate(x))))

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Compute the hidden layer."""
        return functional.relu(self.inner(x))


class GeluFeedForward(FeedForward):
    """The same with a smooth step (GELU) instead of the hard one."""

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Compute the hidden layer."""
        return functional.gelu(self.inner(x))


class GatedFeedForward(FeedForward):
    """Shazeer 2020 (SwiGLU): a second projection decides how much of the first passes."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.gate = nn.Linear(block.d_model, block.d_ff)

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Compute the hidden layer."""
        hidden: Tensor = functional.silu(self.gate(x)) * self.inner(x)
        return hidden


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "relu": FeedForward,
    "gelu": GeluFeedForward,
    "gated": GatedFeedForward,
}
