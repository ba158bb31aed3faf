"""Convolutions (Gehring et al. 2017): windows instead of recurrence.

Each layer convolves a few words on both sides (a decoder: on the left only), so the receptive field
grows layer by layer, and all positions are computed at once. Where there is a source, every decoder
layer has its own attention to it.
"""

import math
from functools import partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, ConvolutionalConfig
from attendo.models.base import (
    CausalLM,
    Encoder,
    Memory,
    Recording,
    Seq2Seq,
    embedding_of,
)
from attendo.nn.attention import ScaledDotProduct
from attendo.nn.attention.base import Pattern
from attendo.nn.embedding import Embedding, GridEmbedding
from attendo.nn.grid import Grid, same_segment
from attendo.nn.multihead import AttentionRecord
from attendo.nn.numerics import Dropout
from attendo.nn.positions import Learned
from attendo.nn.stack import Recorded

HALF = math.sqrt(0.5)
"""Keeps the variance of a sum of two."""

Near = Bool[Tensor, "R T kernel"]
"""Which positions of the window around each position belong to its own sentence."""


class Source(NamedTuple):
    """An encoded source, for the layers of the decoder."""

    keys: Float[Tensor, "R S D"]
    values: Float[Tensor, "R S D"]
    mask: Bool[Tensor, "R 1 #T S"]


Past = tuple[Float[Tensor, "R window D"], ...]
"""For each layer, the past positions in its window."""


class PastState(NamedTuple):
    """All that the next token of a language model needs; a value with batch-first tensors."""

    places: Int[Tensor, " R"]
    """How many tokens there are already."""
    windows: Past


class ConvolutionalState(NamedTuple):
    """The same with a source."""

    places: Int[Tensor, " R"]
    windows: Past
    source: Source


class Window(nn.Module):
    """A gated convolution: one half of what it computes decides how much of the other passes."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.kernel = config.kernel
        self.dropout = Dropout(config.p_drop)
        self.projection = nn.Linear(config.kernel * config.d_model, 2 * config.d_model)
        # Gates halve the variance and dropout raises it (Gehring et al., section 3.5).
        size = math.sqrt(4 * (1 - config.p_drop) / (config.kernel * config.d_model))
        nn.init.normal_(self.projection.weight, std=size)
        nn.init.zeros_(self.projection.bias)

    def gated(self, x: Float[Tensor, "R L D"], is_near: Near | None) -> Float[Tensor, "R T D"]:
        """Apply the convolution and its gate at every position."""
        windows = self.dropout(x).unfold(1, self.kernel, 1)  # (R, T, D, kernel)
        if is_near is not None:
            windows = windows * is_near[:, :, None]
        return functional.glu(self.projection(windows.flatten(2)), dim=-1)


class EncoderWindow(Window):
    """A window as far to the left as to the right."""

    def forward(self, x: Float[Tensor, "R S D"], is_near: Near) -> Float[Tensor, "R S D"]:
        """Add the convolution to every position."""
        margin = self.kernel // 2
        return (self.gated(functional.pad(x, (0, 0, margin, margin)), is_near) + x) * HALF


class PastWindow(Window):
    """A window of the past only."""

    def forward(
        self, past: Float[Tensor, "R window D"], x: Float[Tensor, "R T D"], is_near: Near | None
    ) -> Float[Tensor, "R T D"]:
        """Add the convolution to every position."""
        return (self.gated(torch.cat((past, x), dim=1), is_near) + x) * HALF


class LayerOutput(NamedTuple):
    """The output of a decoder layer with attention to a source."""

    x: Float[Tensor, "R T D"]
    queries: Float[Tensor, "R T D"]
    """The queries of its attention to the source."""


class DecoderWindow(Window):
    """A window of the past, followed by attention to the source."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.d_model, config.d_model)
        self.found = nn.Linear(config.d_model, config.d_model)
        self.attention = ScaledDotProduct(BlockConfig(d_model=config.d_model, n_heads=1))

    def forward(
        self,
        past: Float[Tensor, "R window D"],
        x: Float[Tensor, "R T D"],
        entered: Float[Tensor, "R T D"],
        source: Source,
        is_near: Near | None,
    ) -> LayerOutput:
        """Add the convolution of past words, and its attention to the source."""
        context = self.gated(torch.cat((past, x), dim=1), is_near)
        queries = (self.query(context) + entered) * HALF
        keys, values = source.keys[:, None], source.values[:, None]
        found: Tensor = self.attention(queries[:, None], keys, values, Pattern(source.mask))
        attended = (context + self.found(found[:, 0])) * HALF
        return LayerOutput((attended + x) * HALF, queries)

    def record(self, queries: Float[Tensor, "R T D"], source: Source) -> AttentionRecord:
        """Compute the scores and attention weights, which `forward` does not return."""
        q, keys, values = queries[:, None], source.keys[:, None], source.values[:, None]
        scores = self.attention.scores(q, keys, None)
        weights = self.attention.weights(q, keys, Pattern(source.mask))
        return AttentionRecord(q, keys, values, scores, weights, weights @ values)


class ConvolutionalEncoder(Encoder):
    """The encoder alone."""

    def __init__(self, config: ConvolutionalConfig, source: int | GridEmbedding) -> None:
        super().__init__()
        # Small, so that rare words, which are hardly learned, do not drown the others.
        make = partial(Embedding, d_model=config.d_model, is_scaled=False)
        self.embedding = embedding_of(source, make)
        self.positions = _positions(config)
        self.dropout = Dropout(config.p_drop)
        self.encoder = nn.ModuleList(EncoderWindow(config) for _ in range(config.encoder_layers))

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling: embedding and layers."""
        return [self.embedding, *self.encoder]

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        memory, _ = self.record(source)
        return memory

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        embedded = self.embedding.embed(source)
        entered = self.dropout(self.positions.embed(embedded, source.positions))
        hidden = self.dropout(_convolve(self.encoder, entered, source.segments))
        return Memory(hidden, source.segments), Recorded([embedded, hidden], [], [])


class ConvolutionalDecoder(CausalLM):
    """A language model of gated convolutions (Dauphin et al. 2017)."""

    def __init__(self, config: ConvolutionalConfig, vocabulary: int) -> None:
        super().__init__()
        self.kernel = config.kernel
        self.embedding = Embedding(vocabulary, config.d_model)
        self.positions = _positions(config)
        self.dropout = Dropout(config.p_drop)
        self.decoder = nn.ModuleList(PastWindow(config) for _ in range(config.decoder_layers))
        self.output = nn.Linear(config.d_model, vocabulary, bias=False)
        if config.tied != "none":
            self.output.weight = self.embedding.weight

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling: embedding and layers."""
        return [self.embedding, *self.decoder]

    def decode(self, target: Grid) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows."""
        return self._decode(self.embedding(target.ids), target)

    def _decode(self, embedded: Float[Tensor, "R T D"], target: Grid) -> Float[Tensor, "R T D"]:
        is_near = _near(target.segments, self.kernel - 1, 0)
        start = self.start(len(target.ids))
        hidden, _ = self._write(embedded, target.positions, start.windows, is_near)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def start(self, rows: int) -> PastState:
        """Return the state before the first token, one sequence a row."""
        table = self.embedding.weight
        nothing = table.new_zeros(rows, self.kernel - 1, table.shape[1])
        places = torch.zeros(rows, dtype=torch.long, device=table.device)
        return PastState(places, (nothing,) * len(self.decoder))

    def step(
        self, tokens: Int[Tensor, " R"], state: PastState
    ) -> tuple[Float[Tensor, "R V"], PastState]:
        """Add one token to every row; return the logits of the next one, and the new state."""
        places, windows = state
        embedded = self.embedding(tokens[:, None])
        hidden, windows = self._write(embedded, places[:, None], windows, None)
        return self.logits(hidden[:, 0]), PastState(places + 1, windows)

    def _write(
        self,
        embedded: Float[Tensor, "R T D"],
        positions: Int[Tensor, "R T"],
        windows: Past,
        is_near: Near | None,
    ) -> tuple[Float[Tensor, "R T D"], Past]:
        """Run the layers over words that follow those in the windows; return the next windows."""
        x = self.dropout(self.positions.embed(embedded, positions))
        following = []
        for layer, past in zip(self.decoder, windows, strict=True):
            following.append(_following(past, x))
            x = layer(past, x, is_near)
        return x, tuple(following)

    def record(self, target: Grid) -> tuple[Float[Tensor, "R T V"], Recorded]:
        """Return the logits, and what was computed on the way."""
        embedded = self.embedding(target.ids)
        hidden = self._decode(embedded, target)
        return self.logits(hidden), Recorded([embedded, hidden], [], [])


class Written(NamedTuple):
    """The output of the decoder for some words."""

    words: Float[Tensor, "R T D"]
    """The hidden states that predict the next words."""
    queries: list[Float[Tensor, "R T D"]]
    """The queries of each layer."""
    windows: list[Float[Tensor, "R window D"]]
    """The past positions in the window of each layer, for the next word."""


class Convolutional(Seq2Seq):
    """An encoder and a decoder of convolutions."""

    def __init__(
        self, config: ConvolutionalConfig, source: int | GridEmbedding, n_target: int
    ) -> None:
        super().__init__()
        width = config.d_model
        self.kernel = config.kernel
        self.target_embedding = Embedding(n_target, width)
        self.source_embedding: GridEmbedding = self.target_embedding
        if config.tied != "all" or isinstance(source, GridEmbedding):
            self.source_embedding = embedding_of(source, partial(Embedding, d_model=width))
        self.source_positions, self.target_positions = _positions(config), _positions(config)
        self.dropout = Dropout(config.p_drop)
        self.encoder = nn.ModuleList(EncoderWindow(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderWindow(config) for _ in range(config.decoder_layers))
        self.output = nn.Linear(width, n_target, bias=False)
        if config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling: embeddings and layers."""
        embeddings = (self.source_embedding, self.target_embedding)
        return [*embeddings, *self.encoder, *self.decoder]

    def encode(self, source: Grid) -> Memory:
        """Encode the source: keys, and beside them values, to which the embeddings are added."""
        return self._encode(self.source_embedding.embed(source), source)

    def _encode(self, embedded: Float[Tensor, "R S D"], source: Grid) -> Memory:
        entered = self.dropout(self.source_positions.embed(embedded, source.positions))
        x = _convolve(self.encoder, entered, source.segments)
        return Memory(torch.cat((x, (x + entered) * HALF), dim=-1), source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows of the target."""
        embedded = self.target_embedding(target.ids)
        hidden: Tensor = self.dropout(self._read(embedded, target, memory).words)
        return hidden

    def _read(self, embedded: Float[Tensor, "R T D"], target: Grid, memory: Memory) -> Written:
        positioned = self.target_positions.embed(embedded, target.positions)
        source = _source(memory, same_segment(target.segments, memory.segments))
        is_near = _near(target.segments, self.kernel - 1, 0)
        return self._write(self.dropout(positioned), self._nothing(source), source, is_near)

    def start(self, memory: Memory) -> ConvolutionalState:
        """Return the state before the first token, one sentence per row."""
        source = _source(memory, (memory.segments != 0)[:, None, None])
        places = memory.segments.new_zeros(len(memory.segments))
        return ConvolutionalState(places, self._nothing(source), source)

    def _nothing(self, source: Source) -> Past:
        """Return the context of each layer before the first word: zeros."""
        rows, _, width = source.keys.shape
        return (source.keys.new_zeros(rows, self.kernel - 1, width),) * len(self.decoder)

    def step(
        self, tokens: Int[Tensor, " R"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R V"], ConvolutionalState]:
        """Add one token to every row; return the logits of the next one, and the new state."""
        embedded = self.target_embedding(tokens[:, None])
        entered = self.dropout(self.target_positions.embed(embedded, state.places[:, None]))
        written = self._write(entered, state.windows, state.source, None)
        state = ConvolutionalState(state.places + 1, tuple(written.windows), state.source)
        return self.logits(written.words[:, 0]), state

    def _write(
        self,
        entered: Float[Tensor, "R T D"],
        windows: Past,
        source: Source,
        is_near: Near | None,
    ) -> Written:
        """Decode words that follow those in the windows."""
        written = Written(entered, [], [])
        for layer, past in zip(self.decoder, windows, strict=True):
            x = written.words
            written.windows.append(_following(past, x))
            output: LayerOutput = layer(past, x, entered, source, is_near)
            written.queries.append(output.queries)
            written = written._replace(words=output.x)
        return written

    def record(self, source: Grid, target: Grid) -> Recording:
        """Run source and target, and return what was computed on the way."""
        entered = self.source_embedding.embed(source)
        memory = self._encode(entered, source)
        embedded = self.target_embedding(target.ids)
        written = self._read(embedded, target, memory)
        hidden = self.dropout(written.words)
        layers = cast(list[DecoderWindow], list(self.decoder))
        encoded = _source(memory, same_segment(target.segments, memory.segments))
        across = [
            layer.record(queries, encoded)
            for layer, queries in zip(layers, written.queries, strict=True)
        ]
        return Recording(
            Recorded([entered, memory.hidden.chunk(2, dim=-1)[0]], [], []),
            Recorded([embedded, hidden], [], across),
            self.logits(hidden),
        )


def _positions(config: ConvolutionalConfig) -> Learned:
    width, longest = config.d_model, config.max_positions
    return Learned(BlockConfig(d_model=width, n_heads=1, max_positions=longest))


def _convolve(
    layers: nn.ModuleList, x: Float[Tensor, "R S D"], segments: Int[Tensor, "R S"]
) -> Float[Tensor, "R S D"]:
    """Run the layers of an encoder."""
    margin = cast(Window, layers[0]).kernel // 2
    is_near = _near(segments, margin, margin)
    for layer in layers:
        x = layer(x, is_near)
    return x


def _following(
    past: Float[Tensor, "R window D"], x: Float[Tensor, "R T D"]
) -> Float[Tensor, "R window D"]:
    """Return the past positions in the window of the word after these."""
    return torch.cat((past, x), dim=1)[:, x.shape[1] :]


def _source(memory: Memory, mask: Bool[Tensor, "R 1 #T S"]) -> Source:
    keys, values = memory.hidden.chunk(2, dim=-1)
    return Source(keys, values, mask)


def _near(segments: Int[Tensor, "R T"], before: int, after: int) -> Near:
    """Return which neighbours belong to the same sentence, as a window must end there."""
    around = functional.pad(segments, (before, after)).unfold(1, before + 1 + after, 1)
    return (around == segments[..., None]) & (around != 0)
