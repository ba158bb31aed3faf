"""The stack: embedded tokens in, hidden states out, through N layers (§3.1).

One class makes the encoder (or BERT: neither causal nor cross), the decoder (both) and a language
model (GPT: causal only).
"""

from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.config import BlockConfig, choose
from attendo.errors import ConfigError
from attendo.nn.attention import ATTENTIONS
from attendo.nn.attention.base import Pattern
from attendo.nn.grid import Grid, WholeRows, not_later, same_segment
from attendo.nn.layers import Layer, Records, make_norm
from attendo.nn.multihead import AttentionRecord, KeysValues
from attendo.nn.numerics import Dropout
from attendo.nn.positions import POSITIONS, Positions


class Memory(NamedTuple):
    """A sequence that has been encoded."""

    hidden: Float[Tensor, "R S D"]
    segments: Int[Tensor, "R S"]
    """As in its grid."""


class Recorded(NamedTuple):
    """What a stack computed, first layer first."""

    hidden_states: list[Float[Tensor, "R T D"]]
    """The hidden states that enter the first layer, then those that leave each layer."""
    attention: list[AttentionRecord]
    """Self-attention."""
    cross: list[AttentionRecord]
    """Attention to the memory; empty if there is none."""

    def __repr__(self) -> str:
        """Return the shapes: the values would fill many screens."""
        lists = {
            "hidden states": [hidden.shape for hidden in self.hidden_states],
            "attention": [record.weights.shape for record in self.attention],
            "cross": [record.weights.shape for record in self.cross],
        }
        parts = [f"{name}: {len(all_)} x {list(all_[0])}" for name, all_ in lists.items() if all_]
        return f"Recorded({', '.join(parts)})"


def nothing_recorded() -> Recorded:
    """Return the record of a stack that a model does not have."""
    return Recorded([], [], [])


class StackState(NamedTuple):
    """All that the next token needs; a value with batch-first tensors."""

    past: tuple[KeysValues, ...]
    """For each layer, keys and values of the tokens so far."""
    memory: tuple[KeysValues, ...]
    """For each layer, keys and values of the memory."""
    memory_mask: Bool[Tensor, "B 1 1 S"] | None

    @property
    def shared(self) -> tuple[str, ...]:
        """Return the fields that hypotheses of the same source share: one row for all of them."""
        return "memory", "memory_mask"


class Entry(nn.Module):
    """Positions are added to the embeddings, then dropout (§3.5, §5.4); BERT normalises between."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.positions: Positions = choose(POSITIONS, block.positions, "model.positions")(block)
        self.norm = make_norm(block) if block.embedding_norm else nn.Identity()
        self.dropout = Dropout(block.p_drop)

    def forward(
        self, x: Float[Tensor, "R T D"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Add the positions."""
        entered: Tensor = self.dropout(self.norm(self.positions.embed(x, positions)))
        return entered


class Stack(nn.Module):
    """N layers, equal but for their kinds of attention."""

    faster: Callable[[Float[Tensor, "R T D"], Grid, Memory | None], Tensor] | None = None
    """Another way to run the layers in training, with the same result (`nn/fast`)."""

    def __init__(
        self, block: BlockConfig, n_layers: int, *, causal: bool = False, cross: bool = False
    ) -> None:
        super().__init__()
        self.causal = causal
        self.cross = cross
        self.n_heads = block.n_heads
        self.is_reversible = block.reversible
        blocks = [block.of_layer(number) for number in range(n_layers)]
        kinds = {
            one.attention: choose(ATTENTIONS, one.attention, "model.attention") for one in blocks
        }
        without_mask = [name for name, kind in kinds.items() if not kind.uses_mask]
        self.uses_mask = len(without_mask) < len(kinds)
        self.enter = Entry(block)
        if without_mask and type(self.enter.positions).bias is not Positions.bias:
            raise ConfigError(
                f"model.positions = {block.positions!r} adds to the scores of all pairs, which "
                f"attention {without_mask[0]!r} does not compute; choose another of them"
            )
        # The output of a pre-norm layer is a sum that has not been normalised.
        self.norm = make_norm(block) if block.norm_order == "pre" else nn.Identity()
        self.layers = nn.ModuleList(Layer(one, cross=cross) for one in blocks)

    def forward(
        self, x: Float[Tensor, "R T D"], grid: Grid, memory: Memory | None = None
    ) -> Float[Tensor, "R T D"]:
        """Run the layers over embedded tokens."""
        x = self.enter(x, grid.positions)
        if self.faster is not None and torch.is_grad_enabled():
            return self.faster(x, grid, memory)
        return self._run(x, grid, memory, None)

    def record(
        self, x: Float[Tensor, "R T D"], grid: Grid, memory: Memory | None = None
    ) -> tuple[Float[Tensor, "R T D"], Recorded]:
        """Do the same, and return also what was computed on the way."""
        recorded = nothing_recorded()
        x = self.enter(x, grid.positions)
        return self._run(x, grid, memory, recorded), recorded

    def _run(
        self,
        x: Float[Tensor, "R T D"],
        grid: Grid,
        memory: Memory | None,
        recorded: Recorded | None,
    ) -> Float[Tensor, "R T D"]:
        pattern = self.pattern(grid)
        hidden = None if memory is None else memory.hidden
        memory_pattern = None if memory is None else self.memory_pattern(grid, memory)
        records = Records(recorded.attention, recorded.cross) if recorded else Records()
        x = self.split(x)
        if recorded:
            recorded.hidden_states.append(self.merge(x))
        for layer in self.layers:
            x = layer(x, pattern, hidden, memory_pattern, records)
            if recorded:
                recorded.hidden_states.append(self.merge(x))
        hidden_states: Tensor = self.norm(self.merge(x))
        return hidden_states

    def pattern(self, grid: Grid, *, uses_mask: bool = True) -> Pattern:
        """Return which positions may attend to which: all of their sequence, or those before.

        Without a mask it is only for kinds of attention that use none.
        """
        mask = None
        if uses_mask and self.uses_mask and not isinstance(grid, WholeRows):
            mask = not_later(grid) if self.causal else same_segment(grid.segments, grid.segments)
        return self._positioned(mask, grid.positions, grid.positions)._replace(
            grid=grid, is_causal=self.causal
        )

    def memory_pattern(self, grid: Grid, memory: Memory) -> Pattern:
        """Return which positions may attend to which of the memory: their partner sequence."""
        return Pattern(same_segment(grid.segments, memory.segments))

    def _positioned(
        self,
        mask: Bool[Tensor, "R 1 T S"] | None,
        queries: Int[Tensor, "R T"],
        keys: Int[Tensor, "R S"],
    ) -> Pattern:
        positions = self.enter.positions
        return Pattern(mask, positions.bias(queries, keys), positions.rotate(queries))

    def split(self, x: Float[Tensor, "R T D"]) -> Float[Tensor, "R T X"]:
        """Return two equal halves for reversible layers."""
        return torch.cat((x, x), dim=-1) if self.is_reversible else x

    def merge(self, x: Float[Tensor, "R T X"]) -> Float[Tensor, "R T D"]:
        """Return the mean of the halves of reversible layers."""
        return x.unflatten(-1, (2, -1)).mean(dim=-2) if self.is_reversible else x

    def start(self, rows: int, memory: Memory | None = None) -> StackState:
        """Prepare to run token by token, one sequence a row."""
        layers = self.typed_layers()
        attended: tuple[KeysValues, ...] = ()
        mask = None
        if memory is not None:
            pattern = Pattern(None)
            attended = tuple(
                layer.cross_attention.keys_values(memory.hidden, pattern) for layer in layers
            )
            mask = (memory.segments != 0)[:, None, None, :]
        weight = layers[0].self_attention.value.weight
        like = attended[0].values if attended else weight
        empty = like.new_empty(rows, self.n_heads, 0, weight.shape[0] // self.n_heads)
        return StackState((KeysValues(empty, empty),) * len(layers), attended, mask)

    def step(
        self, x: Float[Tensor, "R 1 D"], state: StackState
    ) -> tuple[Float[Tensor, "R 1 D"], StackState]:
        """Run one more token of every row."""
        position = state.past[0].keys.shape[2]
        # Not len(x), which a graph that is exported could not leave open.
        keys = torch.arange(position + 1, device=x.device).expand(x.shape[0], -1)
        queries = keys[:, -1:]
        pattern = self._positioned(None, queries, keys)
        memories = state.memory or (None,) * len(self.layers)
        memory_pattern = Pattern(state.memory_mask)
        present: list[KeysValues] = []
        x = self.split(self.enter(x, queries))
        for layer, past, memory in zip(self.typed_layers(), state.past, memories, strict=True):
            x, grown = layer.step(x, pattern, past, memory, memory_pattern)
            present.append(grown)
        return self.norm(self.merge(x)), state._replace(past=tuple(present))

    def typed_layers(self) -> list[Layer]:
        """Return the layers with their type, which a list of modules forgets."""
        return cast(list[Layer], list(self.layers))
