"""What a model family promises, so that training, search, looking and serving never ask which it is."""

from typing import NamedTuple, Protocol

from jaxtyping import Float, Int
from torch import Tensor

from attendo.nn.grid import Grid


class Memory(NamedTuple):
    """A source that has been read."""

    hidden: Float[Tensor, "R S D"]
    segments: Int[Tensor, "R S"]
    """Whose tokens these are, as in the source grid."""


class AttentionMaps(NamedTuple):
    """Attention weights of every layer, first layer first."""

    encoder: list[Float[Tensor, "R H S S"]]
    decoder: list[Float[Tensor, "R H T T"]]
    cross: list[Float[Tensor, "R H T S"]]


class Seq2Seq(Protocol):
    """Reads a source, then says for every target token what comes next.

    `step` repeated gives the same logits as `decode` over the whole target. A state is a nested
    value (tuples and named tuples) of batch-first tensors, so that search can reorder it.
    """

    def encode(self, source: Grid) -> Memory:
        """Read the source."""
        ...

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Read the target, every token with sight of the source and of what came before it."""
        ...

    def logits(self, hidden: Float[Tensor, "*R D"]) -> Float[Tensor, "*R V"]:
        """Score the whole vocabulary as the next token."""
        ...

    def start(self, memory: Memory) -> NamedTuple:
        """Begin to decode, one sentence a row."""
        ...

    def step(
        self, tokens: Int[Tensor, " R"], state: NamedTuple
    ) -> tuple[Float[Tensor, "R V"], NamedTuple]:
        """Add one token to every row and score what comes next."""
        ...

    def attention_maps(self, source: Grid, target: Grid) -> AttentionMaps:
        """Compute all attention weights of reading this source and this target."""
        ...
