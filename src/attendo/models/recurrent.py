"""The models that came before: recurrent encoders, language models and encoder-decoders.

Without attention (Sutskever et al. 2014, Cho et al. 2014) the whole source must pass through one
vector, which is read again with every word. With additive attention (Bahdanau et al. 2015) the
decoder attends to all of it before each word is read; with multiplicative attention (Luong et al.
2015) afterwards.
"""

from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from attendo.config import BlockConfig, RecurrentConfig, choose
from attendo.models.base import (
    CausalLM,
    Encoder,
    Memory,
    Recording,
    Seq2Seq,
    embedding_of,
)
from attendo.nn.attention import ATTENTIONS, Additive, Attention
from attendo.nn.attention.base import Pattern, masked_softmax
from attendo.nn.embedding import Embedding, GridEmbedding
from attendo.nn.grid import Grid, Sequences
from attendo.nn.multihead import AttentionRecord
from attendo.nn.numerics import Dropout
from attendo.nn.recurrence import (
    CellState,
    Lengths,
    known_lengths,
    make_cells,
    new_state,
    remember,
    run_cells,
)
from attendo.nn.stack import Recorded


class RecurrentEncoder(Encoder):
    """The encoder alone: for each word, what cells remember of it and of its context."""

    def __init__(self, config: RecurrentConfig, source: int | GridEmbedding) -> None:
        super().__init__()
        self.embedding = embedding_of(source, partial(Embedding, d_model=config.d_model))
        self.dropout = Dropout(config.p_drop)
        self.encoder = _encoder_cells(config)

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        memory, _ = self.record(source)
        return memory

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        embedded = self.embedding.embed(source)
        read = run_cells(self.encoder, self.dropout(embedded), source.segments)
        hidden = self.dropout(read)
        return Memory(hidden, source.segments), Recorded([embedded, hidden], [], [])


class RecurrentDecoder(CausalLM):
    """A language model."""

    def __init__(self, config: RecurrentConfig, vocabulary: int) -> None:
        super().__init__()
        width = config.d_model
        self.embedding = Embedding(vocabulary, width)
        self.dropout = Dropout(config.p_drop)
        self.decoder = make_cells(config.cell, width, width, config.decoder_layers, config.p_drop)
        self.output = nn.Linear(width, vocabulary, bias=False)
        if config.tied != "none":
            self.output.weight = self.embedding.weight

    def decode(self, target: Grid) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows."""
        return self._decode(self.embedding(target.ids), target)

    def _decode(self, embedded: Float[Tensor, "R T D"], target: Grid) -> Float[Tensor, "R T D"]:
        hidden = run_cells(self.decoder, self.dropout(embedded), target.segments)
        dropped: Tensor = self.dropout(hidden)
        return dropped

    def start(self, rows: int) -> CellState:
        """Return the state before the first token, one sequence a row."""
        return new_state(self.decoder, rows)

    def step(
        self, tokens: Int[Tensor, " R"], state: CellState
    ) -> tuple[Float[Tensor, "R V"], CellState]:
        """Add one token to every row; return the logits of the next one, and the new state."""
        hidden, state = remember(self.decoder, self.embedding(tokens[:, None]), state)
        return self.logits(hidden[:, 0]), state

    def record(self, target: Grid) -> tuple[Float[Tensor, "R T V"], Recorded]:
        """Return the logits, and what was computed on the way."""
        embedded = self.embedding(target.ids)
        hidden = self._decode(embedded, target)
        return self.logits(hidden), Recorded([embedded, hidden], [], [])


class Source(NamedTuple):
    """An encoded source for the decoder, one sentence per row."""

    hidden: Float[Tensor, "N S D"]
    keys: Float[Tensor, "N S D"]
    """The same, or for additive attention, projected once for all words."""
    is_token: Bool[Tensor, "N S"]


class RecurrentState(NamedTuple):
    """All that the next token needs; a value with batch-first tensors."""

    memory: CellState
    summary: Float[Tensor, "N D"]
    """The final hidden states of the encoder."""
    source: Source

    def first(self, n: int) -> "RecurrentState":
        """Return the first rows."""
        memory, source = CellState(*_first(self.memory, n)), Source(*_first(self.source, n))
        return RecurrentState(memory, self.summary[:n], source)


def _first(parts: tuple[Tensor, ...], n: int) -> list[Tensor]:
    return [part[:n] for part in parts]


class Written(NamedTuple):
    """The output of the decoder for some words."""

    words: Float[Tensor, "N T D"]
    """The hidden states that predict the next words."""
    queries: Float[Tensor, "N T D"]
    """The queries of the attention."""
    state: RecurrentState


class Recurrent(Seq2Seq):
    """A recurrent encoder and decoder."""

    def __init__(self, config: RecurrentConfig, source: int | GridEmbedding, n_target: int) -> None:
        super().__init__()
        width = config.d_model
        self.target_embedding = Embedding(n_target, width)
        self.source_embedding: GridEmbedding = self.target_embedding
        if config.tied != "all" or isinstance(source, GridEmbedding):
            self.source_embedding = embedding_of(source, partial(Embedding, d_model=width))
        self.dropout = Dropout(config.p_drop)
        self.n_directions = 2 if config.bidirectional else 1
        self.encoder = _encoder_cells(config)
        # Additive attention is computed before a word is read, and is read with the word. Without
        # attention, the summary of the source is.
        self.attends_first = config.attention == "additive"
        d_in = width if config.attention == "dot" else 2 * width
        self.decoder = make_cells(config.cell, d_in, width, config.decoder_layers, config.p_drop)
        self.bridge = nn.Linear(width, width * config.decoder_layers)
        self.attention: Attention | None = None
        if config.attention != "none":
            block = BlockConfig(d_model=width, n_heads=1)
            self.attention = choose(ATTENTIONS, config.attention, "model.attention")(block)
            self.join = nn.Linear(2 * width, width)
        self.output = nn.Linear(width, n_target, bias=False)
        if config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def encode(self, source: Grid) -> Memory:
        """Encode the source: the hidden state after each word."""
        return self._encode(self.source_embedding.embed(source), source)

    def _encode(self, embedded: Float[Tensor, "R S D"], source: Grid) -> Memory:
        hidden = run_cells(self.encoder, self.dropout(embedded), source.segments)
        return Memory(hidden, source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows of the target."""
        embedded, sequences = self.target_embedding(target.ids), Sequences.of(target.segments)
        if not len(sequences.keys):
            return torch.zeros_like(embedded)
        # Long sequences first, so that the open ones are always the first rows.
        lengths, order = sequences.lengths.sort(descending=True)
        state = self._start(*_partners(memory, sequences, order))
        apart = sequences.separate(self.dropout(embedded))[order]
        written = self._write(apart, state, known_lengths(lengths)).words
        return sequences.reassemble(self.dropout(written[order.argsort()]))

    def start(self, memory: Memory) -> RecurrentState:
        """Return the state before the first token, one sentence per row."""
        return self._start(memory.hidden, memory.segments != 0)

    def _start(self, read: Float[Tensor, "N S D"], is_token: Bool[Tensor, "N S"]) -> RecurrentState:
        """Return the initial state of the decoder: a summary of the final states of the encoder."""
        half = read.shape[-1] // self.n_directions
        last = (is_token.sum(dim=1) - 1).clamp(min=0)
        rows = torch.arange(len(last), device=last.device)
        summary = read[rows, last, :half]
        if self.n_directions == 2:  # which ends at the beginning
            summary = torch.cat((summary, read[:, 0, half:]), dim=-1)
        hidden = torch.tanh(self.bridge(summary)).unflatten(-1, (self.decoder.num_layers, -1))
        keys = self.attention.key(read) if isinstance(self.attention, Additive) else read
        memory = CellState(hidden, torch.zeros_like(hidden))
        return RecurrentState(memory, summary, Source(read, keys, is_token))

    def step(
        self, tokens: Int[Tensor, " R"], state: RecurrentState
    ) -> tuple[Float[Tensor, "R V"], RecurrentState]:
        """Add one token to every row; return the logits of the next one, and the new state."""
        written = self._write(self.target_embedding(tokens[:, None]), state)
        return self.logits(written.words[:, 0]), written.state

    def _write(
        self, x: Float[Tensor, "N T D"], state: RecurrentState, lengths: Lengths = None
    ) -> Written:
        """Decode embedded words; with lengths, which must fall, only as many."""
        if self.attends_first:
            return self._write_one_by_one(x, state, lengths)
        if self.attention is None:
            summary = state.summary[:, None].expand(-1, x.shape[1], -1)
            remembered, state = self._remember(torch.cat((x, summary), dim=-1), state, lengths)
            return Written(remembered, remembered, state)
        remembered, state = self._remember(x, state, lengths)
        found = self._attend(remembered, state.source)
        return Written(self._joined(found, remembered), remembered, state)

    def _write_one_by_one(
        self, x: Float[Tensor, "N T D"], state: RecurrentState, lengths: Lengths
    ) -> Written:
        """Decode word by word: the attention of each word depends on the state before it."""
        queries, found, remembered = [], [], []
        if lengths is None:
            lengths = torch.full((len(x),), x.shape[1])
        going_on = (lengths[:, None] > torch.arange(x.shape[1])).sum(dim=0)
        for place, n in enumerate(going_on.tolist()):
            state, word = state.first(n), x[:n, place : place + 1]
            queries.append(state.memory.hidden[:, -1:])
            found.append(self._attend(queries[-1], state.source))
            now, state = self._remember(torch.cat((word, found[-1]), dim=-1), state)
            remembered.append(now)
        joined = self._joined(torch.cat(found), torch.cat(remembered))
        words, used = (_padded(part, going_on) for part in (joined, torch.cat(queries)))
        return Written(words, used, state)

    def _remember(
        self, x: Float[Tensor, "N T E"], state: RecurrentState, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "N T D"], RecurrentState]:
        """Run the cells over some words."""
        outputs, memory = remember(self.decoder, x, state.memory, lengths)
        return outputs, state._replace(memory=memory)

    def _attend(self, queries: Float[Tensor, "N T D"], source: Source) -> Float[Tensor, "N T D"]:
        q, values = queries[:, None], source.hidden[:, None]
        pattern = Pattern(source.is_token[:, None, None])
        if isinstance(self.attention, Additive):
            scores = self.attention.scores_of_projected(q, source.keys[:, None])
            return (masked_softmax(scores, pattern.mask) @ values)[:, 0]
        assert self.attention is not None
        found: Tensor = self.attention(q, values, values, pattern)
        return found[:, 0]

    def _joined(
        self, found: Float[Tensor, "N T D"], remembered: Float[Tensor, "N T D"]
    ) -> Float[Tensor, "N T D"]:
        return torch.tanh(self.join(torch.cat((found, remembered), dim=-1)))

    def record(self, source: Grid, target: Grid) -> Recording:
        """Run source and target, one sentence per row; return what was computed on the way."""
        entered = self.source_embedding.embed(source)
        memory = self._encode(entered, source)
        embedded, state = self.target_embedding(target.ids), self.start(memory)
        written = self._write(self.dropout(embedded), state)
        hidden = self.dropout(written.words)
        across = [] if self.attention is None else [self._record(written.queries, state.source)]
        return Recording(
            Recorded([entered, memory.hidden], [], []),
            Recorded([embedded, hidden], [], across),
            self.logits(hidden),
        )

    def _record(self, queries: Float[Tensor, "N T D"], source: Source) -> AttentionRecord:
        """Compute the scores and attention weights, which decoding does not return."""
        assert self.attention is not None
        q, keys = queries[:, None], source.hidden[:, None]
        mask = source.is_token[:, None, None]
        scores = self.attention.scores(q, keys, None)
        weights = self.attention.weights(q, keys, Pattern(mask))
        return AttentionRecord(q, keys, keys, scores, weights, weights @ keys)


def _encoder_cells(config: RecurrentConfig) -> nn.RNNBase:
    width, layers, p_drop = config.d_model, config.encoder_layers, config.p_drop
    return make_cells(config.cell, width, width, layers, p_drop, bidirectional=config.bidirectional)


def _padded(
    words: Float[Tensor, "words 1 D"], going_on: Int[Tensor, " T"]
) -> Float[Tensor, "N T D"]:
    """Return packed words as padded rows."""
    rows, _ = pad_packed_sequence(PackedSequence(words[:, 0], going_on), batch_first=True)
    return rows


def _partners(
    memory: Memory, wanted: Sequences, order: Int[Tensor, " N"]
) -> tuple[Float[Tensor, "N S D"], Bool[Tensor, "N S"]]:
    """Find the source sentence of every target sentence, in an order."""
    sequences = Sequences.of(memory.segments)
    places = sequences.partners(wanted)[order]
    return sequences.separate(memory.hidden)[places], sequences.is_filled[places]
