"""A Transformer's decoder for search in slots (`decoding/pool.py`)."""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from attendo.nn import fast
from attendo.nn.embedding import Embedding
from attendo.nn.fixed import FixedStack, Size
from attendo.nn.stack import Stack, StackState


def fixed_stack(stack: Stack, size: Size, state: StackState) -> FixedStack:
    """Return caches of a fixed size for a stack, with the fastest step that there is for it."""
    if fast.AVAILABLE and state.past[0].keys.is_cuda:
        from attendo.nn.fast import steps  # needs Triton

        if steps.fits(stack):
            return steps.FusedStack(stack, size, state)
    return FixedStack(stack, size, state)


class FixedTransformer:
    """Embedding, stack and output layer, with caches of a fixed size."""

    def __init__(
        self, embedding: Embedding, stack: FixedStack, logits: Callable[[Tensor], Tensor]
    ) -> None:
        self.embedding = embedding
        self.stack = stack
        self.logits = logits

    def fits(self, state: StackState) -> bool:
        """Return whether the sources of a state fit."""
        return self.stack.fits(state)

    def load(self, entries: Int[Tensor, " K"], state: StackState, rows: Int[Tensor, " K"]) -> None:
        """Keep rows of a state before the first token for entries."""
        self.stack.load(entries, state, rows)

    def move(
        self,
        sources: Int[Tensor, " K"],
        targets: Int[Tensor, " K"],
        lengths: Int[Tensor, " B"],
    ) -> None:
        """Copy some slots, which have so many tokens by now, to others."""
        self.stack.move(sources, targets, lengths)

    def step(
        self,
        tokens: Int[Tensor, "B N"],
        lengths: Int[Tensor, " B"],
        origins: Int[Tensor, "B N T"],
        entries: Int[Tensor, " B"],
    ) -> Float[Tensor, "R V"]:
        """Add a token to all hypotheses of the first B slots; return the logits of the next."""
        embedded = self.stack.embed(self.embedding, tokens, lengths)
        hidden = self.stack.step(embedded, lengths, origins, entries)
        return self.logits(hidden.flatten(0, 1))
