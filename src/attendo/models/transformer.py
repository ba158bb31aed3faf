"""The Transformer, figure 1 of the paper, and its two halves alone: BERT and GPT."""

from collections.abc import Mapping
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attendo.config import AnyModelConfig, TransformerConfig
from attendo.errors import ConfigError
from attendo.models.base import CausalLM, Encoder, Memory, Recording, Seq2Seq, embedding_of
from attendo.models.fixed import FixedTransformer, fixed_stack
from attendo.nn.embedding import Embedding, GridEmbedding, TokenTypes
from attendo.nn.fixed import Size, fits
from attendo.nn.grid import Grid
from attendo.nn.layers import Layer
from attendo.nn.multihead import MultiHeadAttention
from attendo.nn.stack import Recorded, Stack, StackState


class Transformer(Seq2Seq):
    """Encoder and decoder."""

    def __init__(
        self, config: TransformerConfig, source: int | GridEmbedding, n_target: int
    ) -> None:
        super().__init__()
        _refuse_token_types(config)
        self.target_embedding = make_embedding(config, n_target)
        self.source_embedding: GridEmbedding = self.target_embedding
        if config.tied != "all" or isinstance(source, GridEmbedding):
            self.source_embedding = embedding_of(source, partial(make_embedding, config))
        self.encoder = Stack(config, config.encoder_layers)
        self.decoder = Stack(config, config.decoder_layers, causal=True, cross=True)
        self.output = nn.Linear(config.d_model, n_target, bias=config.output_bias)
        self.logit_cap = config.logit_cap
        _initialise(self, config.initialisation)
        if config.tied != "none":
            self.output.weight = self.target_embedding.weight

    def as_encoder(self) -> "TransformerEncoder":
        """Return the encoder alone, with the same parameters."""
        return TransformerEncoder.of(self.source_embedding, self.encoder)

    def parts(self) -> list[nn.Module]:
        """Return the embeddings; reversible layers run twice, which is not compiled."""
        if self.encoder.is_reversible:
            return []
        return [self.source_embedding, self.target_embedding]

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        embedded = self.source_embedding.embed(source)
        return Memory(self.encoder(embedded, source), source.segments)

    def decode(self, target: Grid, memory: Memory) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows of the target."""
        hidden: Tensor = self.decoder(self.target_embedding(target.ids), target, memory)
        return hidden

    def start(self, memory: Memory) -> StackState:
        """Return the state before the first token, one sequence a row."""
        return self.decoder.start(memory.segments.shape[0], memory)

    def step(
        self, tokens: Int[Tensor, " R"], state: StackState
    ) -> tuple[Float[Tensor, "R V"], StackState]:
        """Add one token to every row; returns the logits of the next one, and the new state."""
        hidden, state = self.decoder.step(self.target_embedding(tokens[:, None]), state)
        return self.logits(hidden[:, 0]), state

    @property
    def can_be_fixed(self) -> bool:
        """Return whether there is a decoder with caches of a fixed size."""
        return fits(self.decoder)

    @property
    def can_be_recorded(self) -> bool:
        """Return whether nothing in the encoder depends on values that a GPU knows only later."""
        layers = self.encoder.typed_layers()
        return all(layer.self_attention.attention.uses_mask for layer in layers)

    def fixed(self, size: Size, state: StackState) -> FixedTransformer:
        """Return a decoder with caches of a fixed size, for states like the given one."""
        stack = fixed_stack(self.decoder, size, state)
        return FixedTransformer(self.target_embedding, stack, self.logits)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return the attentions by kind, first layer first."""
        decoder = self.decoder.typed_layers()
        return {
            "encoder": [layer.self_attention for layer in self.encoder.typed_layers()],
            "decoder": [layer.self_attention for layer in decoder],
            "cross": [layer.cross_attention for layer in decoder],
        }

    def record(self, source: Grid, target: Grid) -> Recording:
        """Run source and target, and return what was computed on the way."""
        hidden, encoder = self.encoder.record(self.source_embedding.embed(source), source)
        memory = Memory(hidden, source.segments)
        hidden, decoder = self.decoder.record(self.target_embedding(target.ids), target, memory)
        return Recording(encoder, decoder, self.logits(hidden))


class TransformerEncoder(Encoder):
    """The encoder alone, as in BERT."""

    def __init__(self, config: TransformerConfig, source: int | GridEmbedding) -> None:
        super().__init__()
        if config.logit_cap:
            raise ConfigError(
                f"model.logit_cap = {config.logit_cap} is for models that predict the next token; "
                "an encoder has no such logits: set model.logit_cap = 0"
            )
        self.embedding = embedding_of(source, partial(make_embedding, config))
        self.token_types: TokenTypes | None = None
        if config.token_types:
            self.token_types = TokenTypes(config.token_types, config.d_model, config.separator)
        self.encoder = Stack(config, config.encoder_layers)
        _initialise(self, config.initialisation)

    @classmethod
    def of(cls, embedding: GridEmbedding, stack: Stack) -> "TransformerEncoder":
        """Return an encoder of parts that exist, such as those of a larger model."""
        encoder = cls.__new__(cls)
        super(TransformerEncoder, encoder).__init__()
        encoder.embedding, encoder.token_types, encoder.encoder = embedding, None, stack
        return encoder

    def parts(self) -> list[nn.Module]:
        """Return the embedding."""
        return [] if self.encoder.is_reversible else [self.embedding]

    def encode(self, source: Grid) -> Memory:
        """Encode the source."""
        return Memory(self.encoder(self._embed(source), source), source.segments)

    def _embed(self, source: Grid) -> Float[Tensor, "R T D"]:
        embedded = self.embedding.embed(source)
        if self.token_types is not None:
            embedded = embedded + self.token_types(source.ids, source.positions)
        return embedded

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return the attentions by kind, first layer first."""
        layers = self.encoder.typed_layers()
        return {"encoder": [layer.self_attention for layer in layers], "decoder": [], "cross": []}

    def record(self, source: Grid) -> tuple[Memory, Recorded]:
        """Encode the source, and return also what was computed on the way."""
        hidden, recorded = self.encoder.record(self._embed(source), source)
        return Memory(hidden, source.segments), recorded


class TransformerDecoder(CausalLM):
    """The decoder alone, without attention to a source, as in GPT."""

    def __init__(self, config: TransformerConfig, vocabulary: int) -> None:
        super().__init__()
        _refuse_token_types(config)
        self.embedding = make_embedding(config, vocabulary)
        self.decoder = Stack(config, config.decoder_layers, causal=True)
        self.output = nn.Linear(config.d_model, vocabulary, bias=config.output_bias)
        self.logit_cap = config.logit_cap
        _initialise(self, config.initialisation)
        if config.tied != "none":
            self.output.weight = self.embedding.weight

    def parts(self) -> list[nn.Module]:
        """Return the embedding."""
        return [] if self.decoder.is_reversible else [self.embedding]

    def decode(self, target: Grid) -> Float[Tensor, "R T D"]:
        """Return the hidden states of whole rows."""
        hidden: Tensor = self.decoder(self.embedding(target.ids), target)
        return hidden

    def start(self, rows: int) -> StackState:
        """Return the state before the first token, one sequence a row."""
        return self.decoder.start(rows)

    def step(
        self, tokens: Int[Tensor, " R"], state: StackState
    ) -> tuple[Float[Tensor, "R V"], StackState]:
        """Add one token to every row; returns the logits of the next one, and the new state."""
        hidden, state = self.decoder.step(self.embedding(tokens[:, None]), state)
        return self.logits(hidden[:, 0]), state

    @property
    def can_be_fixed(self) -> bool:
        """Return whether there is a decoder with caches of a fixed size."""
        return fits(self.decoder)

    def fixed(self, size: Size, state: StackState) -> FixedTransformer:
        """Return a decoder with caches of a fixed size, for states like the given one."""
        stack = fixed_stack(self.decoder, size, state)
        return FixedTransformer(self.embedding, stack, self.logits)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """Return the attentions by kind, first layer first."""
        layers = self.decoder.typed_layers()
        return {"encoder": [], "decoder": [layer.self_attention for layer in layers], "cross": []}

    def record(self, target: Grid) -> tuple[Float[Tensor, "R T V"], Recorded]:
        """Return the logits, and what was computed on the way."""
        hidden, recorded = self.decoder.record(self.embedding(target.ids), target)
        return self.logits(hidden), recorded


def make_embedding(config: TransformerConfig, vocabulary: int) -> Embedding:
    """Build the embedding that a recipe describes."""
    return Embedding(
        vocabulary, config.d_model, config.p_drop_embedding, is_scaled=config.scale_embedding
    )


def fold_token_types(tensors: Mapping[str, Tensor], config: AnyModelConfig) -> dict[str, Tensor]:
    """Return the parameters of an encoder whose tokens are all of the first type, without types."""
    folded = dict(tensors)
    types = folded.pop("token_types.table.weight", None)
    if types is not None:
        assert isinstance(config, TransformerConfig)
        scale = config.d_model**0.5 if config.scale_embedding else 1.0
        folded["embedding.weight"] = folded["embedding.weight"] + types[0] / scale
    return folded


def _refuse_token_types(config: TransformerConfig) -> None:
    if config.token_types:
        raise ConfigError(
            f"model.token_types = {config.token_types} is for encoders; a decoder has no token "
            "types: set model.token_types = 0"
        )


@torch.no_grad()
def _initialise(model: nn.Module, initialisation: str) -> None:
    """Initialise all projections, and scale those that end sub-layers as a recipe says.

    Every sub-layer adds to the same sum, whose variance grows with their number N unless their
    outputs start smaller: by 1/√N (GPT-2, §2.3), or at zero. GPT-2 draws all matrices with a
    standard deviation of 0.02, which suits its width only; that of Glorot and Bengio suits any.
    """
    model.apply(_initialise_projection)
    for stack in (part for part in model.modules() if isinstance(part, Stack)):
        projections = [projection for layer in stack.typed_layers() for projection in _last(layer)]
        factors = {"glorot": 1.0, "scaled": len(projections) ** -0.5, "zero": 0.0}
        for projection in projections:
            projection.weight.mul_(factors[initialisation])


def _initialise_projection(module: nn.Module) -> None:
    """Initialise a projection as Glorot and Bengio 2010, its bias with zero."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _last(layer: Layer) -> list[nn.Linear]:
    """Return the last projection of each sub-layer."""
    attentions = [layer.self_attention, *([layer.cross_attention] if layer.has_cross else [])]
    return [*(attention.output for attention in attentions), layer.feed_forward.outer]
