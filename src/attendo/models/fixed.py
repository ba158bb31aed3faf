"""A Transformer's decoder for search in slots (`decoding/pool.py`)."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from attendo.nn import fast
from attendo.nn.embedding import Embedding
from attendo.nn.fixed import FixedStack
from attendo.nn.stack import Stack, StackState


def fixed_stack(
    stack: Stack, n_slots: int, n_beams: int, length: int, state: StackState
) -> FixedStack:
    """Return caches of a fixed size for a stack, with the fastest step that there is for it."""
    if fast.AVAILABLE and state.past[0].keys.is_cuda:
        from attendo.nn.fast import steps  # needs Triton

        if steps.fits(stack):
            return steps.FusedStack(stack, n_slots, n_beams, length, state)
    return FixedStack(stack, n_slots, n_beams, length, state)


class FixedTransformer:
    """Embedding, stack and output layer, with caches of a fixed size."""

    def __init__(
        self, embedding: Embedding, stack: FixedStack, logits: Callable[[Tensor], Tensor]
    ) -> None:
        self.embedding = embedding
        self.stack = stack
        self.logits = logits

    def fits(self, state: StackState) -> bool:
        """Return whether the sources of a state fit into the slots."""
        return self.stack.fits(state)

    def load(self, slots: Int[Tensor, " K"], state: StackState, rows: Int[Tensor, " K"]) -> None:
        """Put rows of a state before the first token into slots."""
        self.stack.load(slots, state, rows)

    def move(self, sources: Int[Tensor, " K"], targets: Int[Tensor, " K"]) -> None:
        """Copy some slots to others."""
        self.stack.move(sources, targets)

    def step(
        self, tokens: Int[Tensor, "B N"], lengths: Int[Tensor, " B"], origins: Int[Tensor, "B N T"]
    ) -> Float[Tensor, "R V"]:
        """Add a token to all hypotheses of the first B slots; return the logits of the next."""
        embedded = self.stack.embed(self.embedding, tokens, lengths)
        hidden = self.stack.step(embedded, lengths, origins)
        return self.logits(hidden.flatten(0, 1))
