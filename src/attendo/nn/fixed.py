"""A causal stack that runs token by token with caches of a fixed size, changed in place.

`Stack.step` defines what is computed. Here nothing grows and nothing is copied when hypotheses
change places: a hypothesis refers to the caches in which its positions lie. So a GPU can replay a
step that was recorded once.

Shapes: B slots of one sequence each, N hypotheses in a slot, R = B · N rows, L layers, T positions,
M entries (sequences that are in a slot or wait for one), S positions of the memory.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.nn.attention.base import Pattern
from attendo.nn.embedding import Embedding
from attendo.nn.layers import Layer
from attendo.nn.multihead import KeysValues
from attendo.nn.stack import Stack, StackState

UNIT = 64
"""The memory's length is rounded up to a multiple of this."""


def fits(stack: Stack) -> bool:
    """Return whether all attention within the stack is of kinds that use a mask of all pairs."""
    kinds = [layer.self_attention.attention for layer in stack.typed_layers()]
    return stack.causal and all(kind.uses_mask for kind in kinds)


class Size(NamedTuple):
    """How much a pool can hold."""

    slots: int
    """Sentences that are searched at once."""
    entries: int
    """The same and those that wait for a slot."""
    beams: int
    length: int


class StackedMemory(NamedTuple):
    """The memories of all layers."""

    values: Float[Tensor, "L 2 R S H K"]
    """Keys and values."""
    lengths: Int[Tensor, " R"]

    @classmethod
    def of(cls, state: StackState) -> "StackedMemory":
        """Stack the memories of a state that has one."""
        assert state.memory_mask is not None
        parts = [part.transpose(1, 2) for layer in state.memory for part in layer]
        return cls(torch.stack(parts).unflatten(0, (-1, 2)), state.memory_mask[:, 0, 0].sum(dim=-1))


class FixedStack:
    """The caches of a stack, for slots that begin and end independently of each other."""

    def __init__(self, stack: Stack, size: Size, state: StackState) -> None:
        self.stack = stack
        n_layers, n_heads = len(stack.layers), stack.n_heads
        like = state.past[0].keys
        n_slots, n_entries, n_beams, length = size
        self.past = like.new_zeros(n_layers, 2, n_slots, n_beams, length, n_heads, like.shape[-1])
        """Keys and values of the tokens so far (L, 2, B, N, T, H, K)."""
        n_memory = -(-state.memory[0].keys.shape[2] // UNIT) * UNIT if state.memory else 0
        self.memory = like.new_zeros(n_layers, 2, n_entries, n_memory, n_heads, like.shape[-1])
        """Keys and values of the memory (L, 2, M, S, H, K)."""
        self.memory_lengths = torch.zeros(n_entries, dtype=torch.long, device=like.device)
        self._loaded: tuple[StackState, StackedMemory] | None = None
        """The state that was loaded last."""

    def fits(self, state: StackState) -> bool:
        """Return whether the memory of a state fits."""
        return not state.memory or state.memory[0].keys.shape[2] <= self.memory.shape[3]

    def load(self, entries: Int[Tensor, " K"], state: StackState, rows: Int[Tensor, " K"]) -> None:
        """Keep the memory of some rows for entries."""
        if state.memory_mask is None:
            return
        if self._loaded is None or self._loaded[0] is not state:
            self._loaded = state, StackedMemory.of(state)
        self._copy(entries, self._loaded[1], rows)

    def _copy(
        self, entries: Int[Tensor, " K"], memory: StackedMemory, rows: Int[Tensor, " K"]
    ) -> None:
        self.memory_lengths[entries] = memory.lengths[rows]
        chosen = memory.values.index_select(2, rows)
        self.memory[:, :, :, : chosen.shape[3]].index_copy_(2, entries, chosen)

    def move(
        self,
        sources: Int[Tensor, " K"],
        targets: Int[Tensor, " K"],
        lengths: Int[Tensor, " B"],
    ) -> None:
        """Copy some slots, which have so many tokens by now, to others."""
        self.past[:, :, targets] = self.past[:, :, sources]

    def embed(
        self, embedding: Embedding, tokens: Int[Tensor, "B N"], lengths: Int[Tensor, " B"]
    ) -> Float[Tensor, "B N D"]:
        """Return the embeddings of tokens at positions `lengths`."""
        positions = lengths[:, None].expand_as(tokens)
        entered: Tensor = self.stack.enter(embedding(tokens), positions)
        return entered

    def step(
        self,
        x: Float[Tensor, "B N D"],
        lengths: Int[Tensor, " B"],
        origins: Int[Tensor, "B N T"],
        entries: Int[Tensor, " B"],
    ) -> Float[Tensor, "B N D"]:
        """Run one more token of every hypothesis in the first B slots, at position `lengths`."""
        n_beams, used = x.shape[1], entries.clamp(min=0)
        queries = lengths.repeat_interleave(n_beams)[:, None]  # (R, 1)
        keys = torch.arange(origins.shape[2], device=x.device).expand(len(queries), -1)
        pattern = self._pattern(queries, keys)
        memory_pattern = Pattern(self._memory_mask(used))
        hidden = self.stack.split(x.flatten(0, 1)[:, None])
        for number, layer in enumerate(self.stack.typed_layers()):
            memory = KeysValues(*self.memory[number, :, used].transpose(2, 3))
            attend = partial(self._attend_to_memory, layer, memory, memory_pattern)
            hidden = self._layer(number, layer, hidden, pattern, attend, lengths, origins)
        output: Tensor = self.stack.norm(self.stack.merge(hidden))
        return output.view_as(x)

    def _pattern(self, queries: Int[Tensor, "R 1"], keys: Int[Tensor, "R T"]) -> Pattern:
        positions = self.stack.enter.positions
        mask = (keys <= queries)[:, None, None]
        return Pattern(mask, positions.bias(queries, keys), positions.rotate(queries))

    def _memory_mask(self, entries: Int[Tensor, " B"]) -> Bool[Tensor, "B 1 1 S"]:
        columns = torch.arange(self.memory.shape[3], device=self.memory.device)
        return (columns < self.memory_lengths[entries][:, None])[:, None, None]

    def _attend_to_memory(
        self,
        layer: Layer,
        memory: KeysValues,
        pattern: Pattern,
        x: Float[Tensor, "R 1 D"],
    ) -> Float[Tensor, "R 1 D"]:
        """Attend to the memory, which the hypotheses of a slot share."""
        queries = x.reshape(len(memory.keys), -1, x.shape[-1])
        return layer.cross_attention.attend(queries, memory, pattern).reshape_as(x)

    def _layer(
        self,
        number: int,
        layer: Layer,
        x: Float[Tensor, "R 1 X"],
        pattern: Pattern,
        attend_to_memory: Callable[[Tensor], Tensor],
        lengths: Int[Tensor, " B"],
        origins: Int[Tensor, "B N T"],
    ) -> Float[Tensor, "R 1 X"]:
        n_beams = origins.shape[1]
        newest = lengths[:, None, None].expand(-1, n_beams, 1)
        beams = torch.arange(n_beams, device=x.device)
        sources = origins.scatter(2, newest, beams[None, :, None].expand_as(newest))

        def attend(x: Tensor) -> Tensor:
            attention = layer.self_attention
            self._write(number, attention.keys_values(x, pattern), lengths)
            return attention.step(x, self._read(number, sources), pattern)

        x = layer.around_self(x, attend)
        if layer.has_cross:
            x = layer.around_cross(x, attend_to_memory)
        output: Tensor = layer.around_feed_forward(x, layer.feed_forward)
        return output

    def _write(self, number: int, new: KeysValues, lengths: Int[Tensor, " B"]) -> None:
        """Write keys and values of the new tokens to the caches of their own hypotheses."""
        n_slots = len(lengths)
        slots = torch.arange(n_slots, device=lengths.device)
        for part, given in enumerate(new):
            self.past[number, part][slots, :, lengths] = given[:, :, 0].unflatten(0, (n_slots, -1))

    def _read(self, number: int, origins: Int[Tensor, "B N T"]) -> KeysValues:
        """Collect keys and values of all positions from the caches where they lie."""
        past = self.past[number, :, : len(origins)]  # (2, B, N, T, H, K)
        index = origins[None, ..., None, None].expand(2, -1, -1, -1, *past.shape[4:])
        keys, values = past.gather(2, index).flatten(1, 2).transpose(2, 3)
        return KeysValues(keys, values)
