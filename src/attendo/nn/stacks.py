"""Stacks: embedded tokens in, contextual vectors out. N layers with one view of the grid (§3.1)."""

from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.config import BlockConfig, choose
from attendo.nn.attention import Sight
from attendo.nn.dropout import Dropout
from attendo.nn.grid import Grid
from attendo.nn.layers import Decoded, DecoderLayer, EncoderLayer, Layer, Stream, make_norm
from attendo.nn.long import SELF_ATTENTIONS
from attendo.nn.masks import not_later, same_sentence
from attendo.nn.multihead import AttentionRecord, KeysValues
from attendo.nn.positions import POSITIONS, Positions
from attendo.nn.reversible import reversible
from attendo.nn.spans import Span, partner_span


class Entry(nn.Module):
    """Where embeddings enter a stack: they are told where they stand."""

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.positions: Positions = choose(POSITIONS, block.positions, "model.positions")(block)
        self.dropout = Dropout(block.p_drop)

    def forward(
        self, x: Float[Tensor, "R T D"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Add the positions."""
        entered: Tensor = self.dropout(self.positions.embed(x, positions))
        return entered


class Stack(nn.Module):
    """What encoder and decoder have in common: positions at the entry, a norm at the exit."""

    layers: nn.ModuleList

    def __init__(self, block: BlockConfig) -> None:
        super().__init__()
        self.enter = Entry(block)
        self.is_reversible = block.reversible
        self.has_mask = choose(SELF_ATTENTIONS, block.attention, "model.attention").has_mask
        # A pre-norm stack leaves its sum un-normalised; a post-norm layer has done it already.
        self.is_pre = block.norm_order == "pre"
        self.norm = make_norm(block) if self.is_pre else nn.Identity()

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling, each on its own."""
        # All norms but a pre-norm stack's first are parts of the layer before them.
        first = [cast(Layer, self.layers[0]).around_self] if self.is_pre else []
        return [self.enter, *first, *self.layers]

    def begin(self, x: Float[Tensor, "R T D"]) -> Stream:
        """Lead embeddings to the first layer; both streams of a reversible stack begin alike."""
        if self.is_reversible:
            x = torch.cat((x, x), dim=-1)
        first = cast(Layer, self.layers[0])
        return Stream(x, first.around_self(x))

    def following(self) -> list[nn.Module]:
        """List the norm that comes after each layer; post-norm layers have done theirs."""
        if not self.is_pre:
            return [self.norm] * len(self.layers)
        layers = cast(list[Layer], list(self.layers))
        return [*(layer.around_self.norm for layer in layers[1:]), self.norm]

    def end(self, stream: Stream) -> Float[Tensor, "R T D"]:
        """Take what leaves the last layer; its norm is done, but for the mean of two streams."""
        return self.norm(self.join(stream.x)) if self.is_reversible else stream.inside

    def join(self, x: Float[Tensor, "R T X"]) -> Float[Tensor, "R T D"]:
        """Take the mean of the streams of a reversible stack."""
        return x.unflatten(-1, (2, -1)).mean(dim=-2) if self.is_reversible else x

    def is_stored(self, record: bool) -> bool:
        """Tell whether all between the sub-layers is kept, for looking or for the gradients."""
        return record or not self.is_reversible or not torch.is_grad_enabled()

    def sight(self, grid: Grid) -> Sight:
        """Say once for all layers who may attend to whom."""
        raise NotImplementedError

    def look(
        self,
        mask: Bool[Tensor, "R 1 T S"] | None,
        queries: Int[Tensor, "R T"],
        keys: Int[Tensor, "R S"],
    ) -> Sight:
        """Add to a mask what the positions say."""
        positions = self.enter.positions
        return Sight(mask, positions.bias(queries, keys), positions.rotate(queries))


class Recorded(NamedTuple):
    """What happened in a stack, first layer first; all lists are empty unless it was asked for."""

    stream: list[Float[Tensor, "R T D"]]
    """What enters the first layer, then what leaves each layer."""
    attention: list[AttentionRecord]
    """Of the tokens to each other."""
    cross: list[AttentionRecord]
    """Of the target to the source; a decoder's only."""

    def __repr__(self) -> str:
        """Name the shapes: the values would fill many screens."""
        lists = {
            "stream": [hidden.shape for hidden in self.stream],
            "attention": [record.weights.shape for record in self.attention],
            "cross": [record.weights.shape for record in self.cross],
        }
        parts = [f"{name}: {len(all_)} x {list(all_[0])}" for name, all_ in lists.items() if all_]
        return f"Recorded({', '.join(parts)})"


class Encoder(Stack):
    """N layers in which every token sees its whole sentence."""

    def __init__(self, block: BlockConfig, n_layers: int) -> None:
        super().__init__(block)
        self.layers = nn.ModuleList(EncoderLayer(block) for _ in range(n_layers))

    def forward(
        self, x: Float[Tensor, "R S D"], grid: Grid, *, record: bool = False
    ) -> tuple[Float[Tensor, "R S D"], Recorded]:
        """Encode a grid; on request, record what happens."""
        x = self.enter(x, grid.positions)
        sight = self.sight(grid)
        recorded = Recorded([x] if record else [], [], [])
        if not self.is_stored(record):
            additions = [one for layer in self.typed_layers() for one in layer.additions(sight)]
            return self.norm(torch.stack(reversible(additions, x, x)).mean(dim=0)), recorded
        stream = self.begin(x)
        for layer, following in zip(self.layers, self.following(), strict=True):
            stream, attention = layer(stream, sight, following, record=record)
            if record:
                recorded.stream.append(self.join(stream.x))
                recorded.attention.append(attention)
        return self.end(stream), recorded

    def sight(self, grid: Grid) -> Sight:
        """Let every token see its whole sentence."""
        segments = grid.segments, grid.segments
        mask = same_sentence(*segments) if self.has_mask else None
        seen = self.look(mask, grid.positions, grid.positions)
        return seen._replace(grid=grid, span=_span(*segments))

    def typed_layers(self) -> list[EncoderLayer]:
        """List the layers, with their type, which a list of modules forgets."""
        return cast(list[EncoderLayer], list(self.layers))


class DecoderState(NamedTuple):
    """All that the next token needs; a value with batch-first tensors."""

    past: tuple[KeysValues, ...]
    """For each layer, keys and values of the target tokens so far."""
    memory: tuple[KeysValues, ...]
    """For each layer, keys and values of the source."""
    memory_mask: Bool[Tensor, "B 1 1 S"]

    @property
    def shared(self) -> tuple[str, ...]:
        """Name what beams, which stand side by side, have in common: one row for all of them."""
        return "memory", "memory_mask"


class Decoder(Stack):
    """N layers in which every token sees itself, what came before it, and the source."""

    def __init__(self, block: BlockConfig, n_layers: int) -> None:
        super().__init__(block)
        self.layers = nn.ModuleList(DecoderLayer(block) for _ in range(n_layers))

    def forward(
        self,
        x: Float[Tensor, "R T D"],
        grid: Grid,
        memory: Float[Tensor, "R S D"],
        memory_segments: Int[Tensor, "R S"],
        *,
        record: bool = False,
    ) -> tuple[Float[Tensor, "R T D"], Recorded]:
        """Decode a whole grid at once, as in training; on request, record what happens."""
        x = self.enter(x, grid.positions)
        sight = self.sight(grid)
        segments = grid.segments, memory_segments
        memory_sight = Sight(same_sentence(*segments), span=_span(*segments))
        recorded = Recorded([x] if record else [], [], [])
        if not self.is_stored(record):
            layers = self.typed_layers()
            additions = [one for layer in layers for one in layer.additions(sight, memory_sight)]
            streams = torch.stack(reversible(additions, x, x, memory))
            return self.norm(streams.mean(dim=0)), recorded
        stream = self.begin(x)
        for layer, following in zip(self.typed_layers(), self.following(), strict=True):
            decoded: Decoded = layer(stream, sight, memory, memory_sight, following, record=record)
            stream = decoded.stream
            if decoded.looked_back and decoded.looked_across:
                recorded.stream.append(self.join(stream.x))
                recorded.attention.append(decoded.looked_back)
                recorded.cross.append(decoded.looked_across)
        return self.end(stream), recorded

    def sight(self, grid: Grid) -> Sight:
        """Let every token see itself and what came before it."""
        mask = not_later(grid) if self.has_mask else None
        seen = self.look(mask, grid.positions, grid.positions)
        span = _span(grid.segments, grid.segments)
        looking_back = None if span is None else span.up_to_itself()
        return seen._replace(grid=grid, is_causal=True, span=looking_back)

    def start(
        self, memory: Float[Tensor, "R S D"], memory_segments: Int[Tensor, "R S"]
    ) -> DecoderState:
        """Prepare the source for token-by-token decoding; one sentence a row."""
        attended = [layer.cross_attention.keys_values(memory) for layer in self.typed_layers()]
        empty = tuple(KeysValues(kv.keys[:, :, :0], kv.values[:, :, :0]) for kv in attended)
        return DecoderState(empty, tuple(attended), (memory_segments != 0)[:, None, None, :])

    def step(
        self, x: Float[Tensor, "R 1 D"], state: DecoderState
    ) -> tuple[Float[Tensor, "R 1 D"], DecoderState]:
        """Decode one more token of every row."""
        place = state.past[0].keys.shape[2]
        keys = torch.arange(place + 1, device=x.device).expand(len(x), -1)
        queries = keys[:, -1:]
        stream = self.begin(self.enter(x, queries))
        sight = self.look(None, queries, keys)
        memory_sight = Sight(state.memory_mask)
        present: list[KeysValues] = []
        for layer, past, memory, following in zip(
            self.typed_layers(), state.past, state.memory, self.following(), strict=True
        ):
            stream, grown = layer.step(stream, sight, past, memory, memory_sight, following)
            present.append(grown)
        return self.end(stream), state._replace(past=tuple(present))

    def typed_layers(self) -> list[DecoderLayer]:
        """List the layers, with their type, which a list of modules forgets."""
        return cast(list[DecoderLayer], list(self.layers))


def _span(queries: Int[Tensor, "R T"], keys: Int[Tensor, "R S"]) -> Span | None:
    """Say in two numbers a token what a mask says, in training; else tokens may be hidden."""
    return partner_span(queries, keys) if torch.is_grad_enabled() else None
