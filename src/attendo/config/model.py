"""The section [model]: the settings of each model family."""

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, model_validator

from attendo.config.base import (
    MOST_LAYERS,
    MOST_POSITIONS,
    MOST_TOKENS,
    MOST_WIDTH,
    Section,
    choose,
)


class AnyModelConfig(Section):
    """What the settings of every model family have."""

    kind: str
    d_model: int = Field(512, ge=2, le=MOST_WIDTH)
    """Width of embeddings and hidden states."""
    encoder_layers: int = Field(1, ge=1, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(1, ge=1, le=MOST_LAYERS)
    """Number of decoder layers."""
    vocabulary_multiple: int = Field(1, ge=1, le=4096)
    """Round the number of embeddings up to a multiple of this; 64 suits GPUs."""
    tied: Literal["all", "output", "none"] = "all"
    """Which of source embedding, target embedding and output layer share one matrix (§3.4)."""
    pooling: Literal["first", "mean", "max"] = "first"
    """Classification: by the hidden state of the first position (of an image or a recording, a
    class token), or the mean or maximum of all."""

    @property
    def n_positions(self) -> int | None:
        """Return the number of learned positions; None if positions have no limit."""
        return None


LONG = ("window", "chunks", "lsh", "favor")
"""Attention kinds for long texts: they never compute the scores of all pairs of positions."""


class WindowConfig(Section):
    """Attention within sliding windows, and to global tokens (Longformer)."""

    reach: int = Field(128, ge=1, le=MOST_POSITIONS)
    """Number of tokens on either side that a token attends to."""
    n_global: int = Field(1, ge=0, le=MOST_POSITIONS)
    """Number of first tokens that attend to all positions and are attended by all."""


class ChunksConfig(Section):
    """Attention within overlapping chunks."""

    size: int = Field(128, ge=1, le=MOST_POSITIONS)
    """Number of tokens of a chunk."""
    overlap: int = Field(32, ge=0, le=MOST_POSITIONS)
    """Number of tokens beyond either end of its chunk that a token attends to."""


class LshConfig(Section):
    """Attention within buckets of similar queries and keys (Reformer)."""

    reach: int = Field(128, ge=1, le=MOST_POSITIONS)
    """Number of tokens on either side, in the order of the buckets, that a token attends to."""
    n_buckets: int = Field(16, ge=2, le=65_536, multiple_of=2)
    """Number of hash buckets; must be even."""
    n_rounds: int = Field(4, ge=1, le=1000)
    """Number of independent rounds of hashing."""


class FavorConfig(Section):
    """Attention through random features (Performer)."""

    n_features: int = Field(128, ge=1, le=65_536)
    """Number of random features per head."""


OLDER_OPTIONS = {
    "window": (("window", "reach"), ("chunks", "size"), ("lsh", "reach")),
    "n_global": (("window", "n_global"),),
    "overlap": (("chunks", "overlap"),),
    "n_buckets": (("lsh", "n_buckets"),),
    "n_rounds": (("lsh", "n_rounds"),),
    "n_features": (("favor", "n_features"),),
}
"""Options of attention kinds as older recipes have them, without sections of their own."""


class BlockConfig(Section):
    """The settings of a stack of attention layers, named as in the paper."""

    d_model: int = Field(512, ge=2, le=MOST_WIDTH)
    """Width of the hidden states."""
    d_ff: int = Field(2048, ge=1, le=4 * MOST_WIDTH)
    """Inner width of the position-wise feed-forward network."""
    n_heads: int = Field(8, ge=1, le=MOST_WIDTH)
    """Number of attention heads; must divide d_model."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on each sub-layer's output and on the sum of embedding and position (§5.4)."""
    p_drop_embedding: float = Field(0.0, ge=0, lt=1)
    """Dropout of whole words: all occurrences in a batch of so many words have no embedding."""
    p_drop_attention: float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights (not in the paper's text)."""
    p_drop_inner: float = Field(0.0, ge=0, lt=1)
    """Dropout inside the feed-forward network (not in the paper's text)."""
    attention: str = "dot"
    """dot (the paper's), additive (Bahdanau's), or for long texts window, chunks, lsh or favor."""
    attention_pattern: tuple[str, ...] = ()
    """Kinds of attention of the layers in turn, e.g. ["window", "dot"]; empty: all as above."""
    window: WindowConfig = WindowConfig()
    """Options of attention = "window"."""
    chunks: ChunksConfig = ChunksConfig()
    """Options of attention = "chunks"."""
    lsh: LshConfig = LshConfig()
    """Options of attention = "lsh"."""
    favor: FavorConfig = FavorConfig()
    """Options of attention = "favor"."""
    reversible: bool = False
    """Recompute hidden states in the backward pass instead of storing them, to save memory."""
    positions: str = "sinusoidal"
    """sinusoidal, sinusoidal-halves (all sines, then all cosines), learned, rotary, alibi, none."""
    query_key_norm: bool = False
    """Normalise queries and keys (RMSNorm per head), which bounds the scores of attention."""
    feed_forward: str = "relu"
    """relu, relu2 (its square), gelu, gelu-tanh (GPT-2's approximation), swish or gated."""
    norm: str = "layer"
    """Normalisation: layer (LayerNorm) or rms (RMSNorm)."""
    norm_epsilon: float = Field(1e-5, ge=1e-15, le=1)
    """Term against division by zero in norms (BERT: 1e-12)."""
    norm_order: Literal["post", "pre"] = "post"
    """post: normalise after each residual sum, as in the paper; pre: before each sub-layer."""
    max_positions: int = Field(1024, ge=1, le=MOST_POSITIONS)
    """Number of learned positions; the other kinds have no limit."""
    scale_embedding: bool = True
    """Multiply embeddings by √d_model, as in the paper (§3.4); BERT and GPT-2 do not."""
    embedding_norm: bool = False
    """Normalise the sum of embedding and position, as in BERT."""
    token_types: int = Field(0, ge=0, le=1024)
    """Number of learned token types of an encoder, as in BERT: 0, then 1 after a separator, ..."""
    separator: int = Field(-1, ge=-1, le=MOST_TOKENS)
    """Id of the token after which the next token type begins: that of </s> or [SEP] (-1: none)."""

    @property
    def attention_kinds(self) -> tuple[str, ...]:
        """Return the kinds of attention of the first layers; the others repeat them."""
        return self.attention_pattern or (self.attention,)

    def of_layer(self, number: int) -> "BlockConfig":
        """Return the settings of one layer, counted from 0: those of the stack, with its kind."""
        kinds = self.attention_kinds
        return self.model_copy(update={"attention": kinds[number % len(kinds)]})

    @model_validator(mode="before")
    @classmethod
    def _options_of_attention_have_sections(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        older = {key for key in OLDER_OPTIONS if isinstance(values.get(key), int)}
        result = {key: value for key, value in values.items() if key not in older}
        for key in older:
            for section, option in OLDER_OPTIONS[key]:
                result[section] = {**dict(result.get(section, ())), option: values[key]}
        return result

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "BlockConfig":
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        if self.d_model % 2 and self.positions.startswith("sinusoidal"):
            raise ValueError(f"{self.positions} positions need an even d_model, not {self.d_model}")
        return self

    @model_validator(mode="after")
    def _long_attention_has_no_scores_of_all_pairs(self) -> "BlockConfig":
        long = [kind for kind in self.attention_kinds if kind in LONG]
        if long and self.positions == "alibi":
            raise ValueError(
                'positions = "alibi" needs the scores of all pairs of positions, which attention = '
                f'"{long[0]}" does not compute; choose another kind of positions'
            )
        if long and self.p_drop_attention:
            raise ValueError(
                f'attention = "{long[0]}" has no attention weights to drop: '
                "set p_drop_attention = 0"
            )
        return self

    @model_validator(mode="after")
    def _reversible_layers_normalise_first(self) -> "BlockConfig":
        if self.reversible and self.norm_order != "pre":
            raise ValueError('reversible = true needs norm_order = "pre"')
        return self

    @model_validator(mode="after")
    def _token_types_need_a_separator(self) -> "BlockConfig":
        if self.token_types > 1 and self.separator < 0:
            raise ValueError(
                f"token_types = {self.token_types} needs separator, the id of the token that ends "
                "a text, </s> or [SEP]"
            )
        return self

    @model_validator(mode="after")
    def _rotary_needs_an_even_head(self) -> "BlockConfig":
        if (self.d_model // self.n_heads) % 2 and self.positions == "rotary":
            raise ValueError(
                "rotary positions need an even head width, "
                f"not d_model / n_heads = {self.d_model // self.n_heads}"
            )
        return self


class TransformerConfig(BlockConfig, AnyModelConfig):
    """The encoder-decoder of the paper."""

    kind: Literal["transformer"] = "transformer"
    """Model family: transformer, recurrent or convolutional."""
    encoder_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of encoder layers (N in the paper)."""
    decoder_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of decoder layers (N in the paper)."""
    output_bias: bool = False
    """Add a learned number for each token to the logits (Marian, BERT)."""
    logit_cap: float = Field(0.0, ge=0, le=1e6)
    """Bound the logits of the next token: cap · tanh(logits / cap), as in Gemma 2 (0: none)."""
    initialisation: Literal["glorot", "scaled", "zero"] = "glorot"
    """Output projection of each of a stack's N sub-layers: glorot; scaled by 1/√N; zero."""

    @property
    def n_positions(self) -> int | None:
        """Return the number of learned positions; None if positions have no limit."""
        return self.max_positions if self.positions == "learned" else None


class RecurrentConfig(AnyModelConfig):
    """The recurrent encoder-decoders that preceded the Transformer."""

    kind: Literal["recurrent"] = "recurrent"
    """Model family: transformer, recurrent or convolutional."""
    cell: str = "lstm"
    """Recurrent cell: rnn, lstm or gru."""
    attention: Literal["none", "additive", "dot"] = "additive"
    """none (one vector for the whole source), additive (Bahdanau) or dot (Luong, scaled)."""
    bidirectional: bool = True
    """Encode the source in both directions, each with half of the width."""
    encoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(2, ge=1, le=MOST_LAYERS)
    """Number of decoder layers."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output."""

    @model_validator(mode="after")
    def _directions_share_the_width(self) -> "RecurrentConfig":
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"bidirectional = true needs an even d_model, not {self.d_model}")
        return self


class ConvolutionalConfig(AnyModelConfig):
    """The convolutional encoder-decoder (ConvS2S)."""

    kind: Literal["convolutional"] = "convolutional"
    """Model family: transformer, recurrent or convolutional."""
    kernel: int = Field(3, ge=1, le=1001)
    """Kernel width in tokens; must be odd."""
    encoder_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of encoder layers."""
    decoder_layers: int = Field(6, ge=1, le=MOST_LAYERS)
    """Number of decoder layers; each attends to the source."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings, before every convolution and before the output."""
    max_positions: int = Field(1024, ge=1, le=MOST_POSITIONS)
    """Number of learned positions; all later positions share the last one."""

    @property
    def n_positions(self) -> int | None:
        """Return the number of learned positions."""
        return self.max_positions

    @model_validator(mode="after")
    def _kernels_are_odd(self) -> "ConvolutionalConfig":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel}: expected an odd number")
        return self


FAMILIES: dict[str, type[AnyModelConfig]] = {
    "transformer": TransformerConfig,
    "recurrent": RecurrentConfig,
    "convolutional": ConvolutionalConfig,
}


def family_of(values: Any) -> str:
    """Return the model family that is given; the Transformer by default."""
    kind = values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)
    return "transformer" if kind is None else str(kind)


def _check_model(values: Any) -> AnyModelConfig:
    """Check the section [model] by the rules of its family."""
    return choose(FAMILIES, family_of(values), "model.kind").model_validate(values)


ModelConfig = Annotated[SerializeAsAny[AnyModelConfig], PlainValidator(_check_model)]
