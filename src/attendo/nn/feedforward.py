"""Position-wise feed-forward networks: the same two layers at every position (§3.3)."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig
from attendo.nn.numerics import Dropout


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, eq. 2."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(block.d_model, block.d_ff)
        self.outer = nn.Linear(block.d_ff, block.d_model)
        self.dropout = Dropout(block.p_drop_inner)

    def forward(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T D"]:
        """Transform each position on its own."""
        output: Tensor = self.outer(self.dropout(self.activate(x)))
        return output

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        return functional.relu(self.inner(x))


class GeluFeedForward(FeedForward):
    """The same with GELU instead of ReLU."""

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        return functional.gelu(self.inner(x))


class GeluTanhFeedForward(FeedForward):
    """The same with an approximation of GELU, as in GPT-2."""

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        return functional.gelu(self.inner(x), approximate="tanh")


class SwishFeedForward(FeedForward):
    """The same with x · sigmoid(x), as in Marian."""

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        return functional.silu(self.inner(x))


class SquaredReluFeedForward(FeedForward):
    """So et al. 2021 (Primer): the square of ReLU."""

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        return functional.relu(self.inner(x)).square()


class GatedFeedForward(FeedForward):
    """Shazeer 2020 (SwiGLU): a second projection gates the first."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__(block)
        self.gate = nn.Linear(block.d_model, block.d_ff)

    def activate(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T F"]:
        """Return the hidden layer."""
        hidden: Tensor = functional.silu(self.gate(x)) * self.inner(x)
        return hidden


FEED_FORWARDS: dict[str, type[FeedForward]] = {
    "relu": FeedForward,
    "relu2": SquaredReluFeedForward,
    "gelu": GeluFeedForward,
    "gelu-tanh": GeluTanhFeedForward,
    "swish": SwishFeedForward,
    "gated": GatedFeedForward,
}
