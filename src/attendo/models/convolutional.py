"""Convolutional sequence to sequence (Gehring et al. 2017): windows instead of recurrence.

Each layer convolves a few words on both sides (the decoder: on the left only), so the receptive
field grows layer by layer, and all positions are computed at once. Every decoder layer has its own
attention to the source.
"""

import math
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, ConvolutionalConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.nn.attention import ScaledDotProduct
from attendo.nn.attention.base import Pattern
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid, same_segment
from attendo.nn.multihead import AttentionRecord, MultiHeadAttention
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


class ConvolutionalState(NamedTuple):
    """All that the next token needs; a value with batch-first tensors."""

    places: Int[Tensor, " R"]
    """How many tokens there are already."""
    windows: tuple[Float[Tensor, "R window D"], ...]
    """For each layer, the past positions in its window."""
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


class LayerOutput(NamedTuple):
    """The output of a decoder layer."""

    x: Float[Tensor, "R T D"]
    queries: Float[Tensor, "R T D"]
    """The queries of its attention to the source."""


class DecoderWindow(Window):
    """A window of the past only, followed by attention to the source."""

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

    def __init__(self, config: ConvolutionalConfig, n_source: int, n_target: int) -> None:
        super().__init__()
        self.kernel = config.kernel
        self.target_embedding = Embedding(n_target, config.d_model)
        self.source_embedding = (
            self.target_embedding if config.tied == "all" else Embedding(n_source, config.d_model)
        )
        block = BlockConfig(d_model=config.d_model, n_heads=1, max_positions=config.max_positions)
        self.source_positions, self.target_positions = Learned(block), Learned(block)
        self.dropout = Dropout(config.p_drop)
        self.encoder = nn.ModuleList(EncoderWindow(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderWindow(config) for _ in range(config.decoder_layers))
        self.output = nn.Linear(config.d_model, n_target, bias=False)
        if config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def parts(self) -> list[nn.Module]:
        """List the modules that are worth compiling: embeddings and layers."""
        embeddings = (self.source_embedding, self.target_embedding)
        return [*embeddings, *self.encoder, *self.decoder]

    def encode(self, source: Grid) -> Memory:
        """Encode the source: keys, and beside them values, to which the embeddings are added."""
        return self._encode(self.source_embedding(source.ids), source)

    def _encode(self, embedded: Float[Tensor, "R S D"], source: Grid) -> Memory:
        entered = self.dropout(self.source_positions.embed(embedded, source.positions))
        margin = self.kernel // 2
        is_near = _near(source.segments, margin, margin)
        x = entered
        for layer in self.encoder:
            x = layer(x, is_near)
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

    def _nothing(self, source: Source) -> tuple[Float[Tensor, "R window D"], ...]:
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
        windows: tuple[Float[Tensor, "R window D"], ...],
        source: Source,
        is_near: Near | None,
    ) -> Written:
        """Decode words that follow those in the windows."""
        written = Written(entered, [], [])
        for layer, past in zip(self.decoder, windows, strict=True):
            x = written.words
            written.windows.append(torch.cat((past, x), dim=1)[:, x.shape[1] :])
            output: LayerOutput = layer(past, x, entered, source, is_near)
            written.queries.append(output.queries)
            written = written._replace(words=output.x)
        return written

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return nothing: every layer has an attention, but no heads that could be ablated."""
        return {"encoder": [], "decoder": [], "cross": []}

    def record(self, source: Grid, target: Grid) -> Recording:
        """Run source and target, and return what was computed on the way."""
        entered = self.source_embedding(source.ids)
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


def _source(memory: Memory, mask: Bool[Tensor, "R 1 #T S"]) -> Source:
    keys, values = memory.hidden.chunk(2, dim=-1)
    return Source(keys, values, mask)


def _near(segments: Int[Tensor, "R T"], before: int, after: int) -> Near:
    """Return which neighbours belong to the same sentence, as a window must end there."""
    around = functional.pad(segments, (before, after)).unfold(1, before + 1 + after, 1)
    return (around == segments[..., None]) & (around != 0)
