"""Convolutional sequence to sequence (Gehring et al. 2017): windows instead of a memory.

Each layer sees a few words to both sides (the decoder: to the left only), so the view grows layer
by layer, and all places are computed at once. Every decoder layer looks at the source by itself.
"""

import math
from typing import NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attendo.config import BlockConfig, ConvolutionalConfig
from attendo.models.base import Memory, Recording, Seq2Seq
from attendo.nn.attention import ScaledDotProduct, Sight
from attendo.nn.dropout import Dropout
from attendo.nn.embedding import Embedding
from attendo.nn.grid import Grid
from attendo.nn.multihead import AttentionRecord, MultiHeadAttention
from attendo.nn.positions import Learned
from attendo.nn.sentences import Sentences
from attendo.nn.stacks import Recorded

HALF = math.sqrt(0.5)
"""Keeps the size of a sum of two what it was."""


class Source(NamedTuple):
    """A source as the decoder's layers see it, one sentence a row."""

    keys: Float[Tensor, "N S D"]
    values: Float[Tensor, "N S D"]
    is_token: Bool[Tensor, "N S"]


class ConvolutionalState(NamedTuple):
    """All that the next token needs; a value with batch-first tensors."""

    places: Int[Tensor, " N"]
    """How many tokens there are already."""
    windows: tuple[Float[Tensor, "N window D"], ...]
    """For each layer, what it still sees of the past."""
    source: Source


class Window(nn.Module):
    """A gated convolution: one half of what it computes decides how much of the other passes."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__()
        self.dropout = Dropout(config.p_drop)
        self.convolution = nn.Conv1d(config.d_model, 2 * config.d_model, config.kernel)
        # Gates halve the variance and dropout raises it (Gehring et al., section 3.5).
        size = math.sqrt(4 * (1 - config.p_drop) / (config.kernel * config.d_model))
        nn.init.normal_(self.convolution.weight, std=size)
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: Float[Tensor, "N L D"]) -> Float[Tensor, "N T D"]:
        """Look through the window at every place where it fits."""
        gated = functional.glu(self.convolution(self.dropout(x).transpose(1, 2)), dim=1)
        return gated.transpose(1, 2)


class EncoderWindow(Window):
    """Sees as far to the left as to the right."""

    def forward(self, x: Float[Tensor, "N S D"]) -> Float[Tensor, "N S D"]:
        """Compute every place from its surroundings."""
        margin = self.convolution.kernel_size[0] // 2
        return super().forward(functional.pad(x, (0, 0, margin, margin)))


class DecoderWindow(Window):
    """Sees the past only, and looks at the source."""

    def __init__(self, config: ConvolutionalConfig) -> None:
        super().__init__(config)
        self.query = nn.Linear(config.d_model, config.d_model)
        self.found = nn.Linear(config.d_model, config.d_model)
        self.attention = ScaledDotProduct(BlockConfig(d_model=config.d_model, n_heads=1))

    def look(
        self,
        seen: Float[Tensor, "N T D"],
        embedded: Float[Tensor, "N T D"],
        source: Source,
    ) -> tuple[Float[Tensor, "N T D"], Float[Tensor, "N T D"]]:
        """Ask the source, knowing the word; returns what was found and the question."""
        queries = (self.query(seen) + embedded) * HALF
        keys, values = source.keys[:, None], source.values[:, None]
        mask = source.is_token[:, None, None]
        found: Tensor = self.attention(queries[:, None], keys, values, Sight(mask))
        return (seen + self.found(found[:, 0])) * HALF, queries

    def record(self, queries: Float[Tensor, "N T D"], source: Source) -> AttentionRecord:
        """Compute what attention never writes down."""
        asking, keys, values = queries[:, None], source.keys[:, None], source.values[:, None]
        scores = self.attention.scores(asking, keys, None)
        weights = self.attention.weights(asking, keys, Sight(source.is_token[:, None, None]))
        return AttentionRecord(asking, keys, values, scores, weights, weights @ values)


class Convolutional(Seq2Seq):
    """Reads and writes through windows."""

    def __init__(self, config: ConvolutionalConfig, n_source: int, n_target: int) -> None:
        super().__init__()
        self.window = config.kernel - 1
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
        """Nothing to compile: the lengths of sentences change."""
        return []

    def encode(self, source: Grid) -> Memory:
        """Read the source: keys, and beside them values, which know the words themselves."""
        return self._encode(self.source_embedding(source.ids), source)

    def _encode(self, embedded: Float[Tensor, "R S D"], source: Grid) -> Memory:
        sentences = Sentences.of(source.segments)
        positioned = self.source_positions.embed(embedded, source.positions)
        entered = sentences.apart(self.dropout(positioned))
        is_token = sentences.is_filled[..., None]
        x = entered
        for layer in self.encoder:
            # What lies past the end of a sentence must stay nothing, or the next layer sees it.
            x = (layer(x) + x) * HALF * is_token
        both = torch.cat((x, (x + entered) * HALF), dim=-1)
        return Memory(sentences.together(both), source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Read the target, every token with sight of the source and of what came before it."""
        embedded, sentences = self.target_embedding(target.ids), Sentences.of(target.segments)
        positioned = self.target_positions.embed(embedded, target.positions)
        state = self._start(_partners(memory, sentences))
        written, _, _ = self._write(sentences.apart(self.dropout(positioned)), state)
        return sentences.together(self.dropout(written))

    def start(self, memory: Memory) -> ConvolutionalState:
        """Begin to decode, one sentence a row."""
        keys, values = memory.hidden.chunk(2, dim=-1)
        return self._start(Source(keys, values, memory.segments != 0))

    def _start(self, source: Source) -> ConvolutionalState:
        n_rows, _, width = source.keys.shape
        nothing = source.keys.new_zeros(n_rows, self.window, width)
        places = torch.zeros(n_rows, dtype=torch.long, device=nothing.device)
        return ConvolutionalState(places, (nothing,) * len(self.decoder), source)

    def step(
        self, tokens: Int[Tensor, " R"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "R V"], ConvolutionalState]:
        """Add one token to every row and score what comes next."""
        embedded = self.target_embedding(tokens[:, None])
        entered = self.target_positions.embed(embedded, state.places[:, None])
        written, _, state = self._write(self.dropout(entered), state)
        return self.logits(written[:, 0]), state

    def _write(
        self, entered: Float[Tensor, "N T D"], state: ConvolutionalState
    ) -> tuple[Float[Tensor, "N T D"], list[Tensor], ConvolutionalState]:
        """Read words; returns what to say after each, what each layer asked, and the new state."""
        x, asked, windows = entered, [], []
        for layer, window in zip(self._layers(), state.windows, strict=True):
            seen = torch.cat((window, x), dim=1)
            windows.append(seen[:, seen.shape[1] - self.window :])
            found, queries = layer.look(layer(seen), entered, state.source)
            asked.append(queries)
            x = (found + x) * HALF
        places = state.places + entered.shape[1]
        return x, asked, state._replace(places=places, windows=tuple(windows))

    def _layers(self) -> list[DecoderWindow]:
        return cast(list[DecoderWindow], list(self.decoder))

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Every layer has an attention, but none has heads that could be silenced."""
        return {"encoder": [], "decoder": [], "cross": []}

    def record(self, source: Grid, target: Grid) -> Recording:
        """Read a source and a target, one sentence a row, and keep all that happens on the way."""
        entered = self.source_embedding(source.ids)
        memory = self._encode(entered, source)
        embedded, state = self.target_embedding(target.ids), self.start(memory)
        positioned = self.target_positions.embed(embedded, target.positions)
        written, asked, _ = self._write(self.dropout(positioned), state)
        hidden = self.dropout(written)
        across = [
            layer.record(queries, state.source)
            for layer, queries in zip(self._layers(), asked, strict=True)
        ]
        return Recording(
            Recorded([entered, memory.hidden.chunk(2, dim=-1)[0]], [], []),
            Recorded([embedded, hidden], [], across),
            self.logits(hidden),
        )


def _partners(memory: Memory, wanted: Sentences) -> Source:
    """Find the source sentence of every target sentence."""
    sentences = Sentences.of(memory.segments)
    order = sentences.partners(wanted)
    keys, values = sentences.apart(memory.hidden)[order].chunk(2, dim=-1)
    return Source(keys, values, sentences.is_filled[order])
