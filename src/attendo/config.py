"""Recipes: everything that describes a run, checked when it is read.

A recipe is a TOML file with the sections [data] [tokenizer] [masking] [noise] [parsing] [image]
[audio] [augmentation] [model] [training] [finetuning] [decoding], or the name of a preset in
`recipes/`. A recipe read here is complete and consistent, or a ConfigError that names the key. No
torch here, so that mistakes are answered at once.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from attendo.errors import ConfigError, did_you_mean

T = TypeVar("T")

MOST_BYTES = 1 << 20
"""Largest recipe file."""

# Far beyond any model that can be trained, so that a wrong digit fails here and not much later.
MOST_TOKENS = 1_000_000
MOST_WIDTH = 65_536
MOST_LAYERS = 1000
MOST_POSITIONS = 1_000_000
MOST_SEED = 2**63 - 1  # the largest integer of TOML

Paths = tuple[str, ...]
"""One or more files that are read one after the other."""


class Section(BaseModel):
    """A part of a recipe: typed, frozen, and closed to unknown keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _one_file_is_a_list_of_one(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        return {
            key: (value,)
            if isinstance(value, str) and key in fields and fields[key].annotation == Paths
            else value
            for key, value in values.items()
        }


class DataConfig(Section):
    """Which sentence pairs are used, and where they come from."""

    source: Paths = ()
    """Text files with one source sentence per line (plain, .gz, .xz or .zst)."""
    target: Paths = ()
    """Text files with the translations, line by line."""
    pairs: Paths = ()
    """Files with both sides: .tsv (source TAB target) or .jsonl (keys "source" and "target")."""
    files: Paths = ()
    """Files with all columns of a task: .tsv or .jsonl; text alone: also .txt, .py, folders. Images
    and recordings: also folders with a folder for each label, IDX (MNIST) and NumPy files."""
    valid_source: Paths = ()
    """Source side of the validation pairs; if there are none, some training pairs are held out."""
    valid_target: Paths = ()
    """Target side of the validation pairs."""
    valid_pairs: Paths = ()
    """Validation pairs with both sides in one file."""
    valid_files: Paths = ()
    """Validation files with all columns of a task."""
    test_source: Paths = ()
    """Source side of the test pairs; if there are none, some training pairs are held out."""
    test_target: Paths = ()
    """Target side of the test pairs."""
    test_pairs: Paths = ()
    """Test pairs with both sides in one file."""
    test_files: Paths = ()
    """Test files with all columns of a task."""
    builtin: int = Field(0, ge=0, le=100_000_000)
    """Number of pairs to generate from the built-in English-German corpus, instead of files."""
    hold_out: int = Field(1000, ge=1, le=1_000_000)
    """Largest number of pairs to hold out for validation, and again for test (at most 5 % each)."""
    max_length: int = Field(128, ge=4, le=1_000_000)
    """Longest sentence to train on, in tokens of either side; also the row width of a batch."""
    max_ratio: float = Field(0.0, ge=0, le=1e6)
    """Leave out pairs whose sides differ in length by more than this factor (0: keep all)."""
    layout: Literal["packed", "padded", "stream"] = "packed"
    """packed: several texts per row; padded: one; stream: rows cut out of one endless text."""
    remember: float = Field(1.0, ge=0, le=1e6)
    """With a start: number of its training pairs to mix in for each new pair (0: none)."""

    @model_validator(mode="after")
    def _sides_go_together(self) -> "DataConfig":
        for prefix in ("", "valid_", "test_"):
            source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
            if len(source) != len(target):
                raise ValueError(
                    f"{prefix}source names {len(source)} files and {prefix}target {len(target)}: "
                    "give one target file for each source file"
                )
        if self.builtin and (self.source or self.pairs or self.files):
            raise ValueError("builtin replaces files: give either builtin or your own files")
        return self


class TokenizerConfig(Section):
    """How text is split into tokens."""

    kind: str = "bpe"
    """Algorithm: bpe, byte-bpe, code-bpe (for programs), wordpiece, unigram, word or char."""
    vocabulary: int = Field(8000, ge=300, le=MOST_TOKENS)
    """Largest number of tokens in the vocabulary."""
    lossless: bool = False
    """Keep all white space and line ends (byte-bpe, word and char; needed for code-bpe)."""
    shared: Literal[True, False, "ids"] = True
    """One vocabulary for both languages; "ids": but each splits text in its own way (Marian)."""
    path: str | None = None
    """Existing tokenizer: tokenizer.json, vocab.txt (BERT), .model (SentencePiece) or GPT-2's."""
    target_path: str | None = None
    """Existing tokenizer for the target side (with shared = false)."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Probability of leaving out a BPE merge in training (BPE-dropout, subword regularisation)."""
    sample: int = Field(250_000, ge=1, le=10**9)
    """Number of pairs, spread over the corpus, to learn the vocabulary from."""

    @model_validator(mode="after")
    def _a_target_side_is_not_shared(self) -> "TokenizerConfig":
        if self.target_path and self.shared is True:
            raise ValueError("target_path needs shared = false: it is for a second vocabulary")
        return self


class MaskingConfig(Section):
    """Which tokens a masked language model has to guess (task = "masked-language-model")."""

    share: float = Field(0.15, ge=0.001, le=0.9)
    """Share of the tokens that are to be guessed (BERT: 0.15)."""
    whole_words: bool = False
    """Mask all tokens of a word together."""


class NoiseConfig(Section):
    """Training pairs that are changed, each time anew, to what people really write."""

    caps: float = Field(0.0, ge=0, le=1)
    """Share of the pairs with both sides in capitals."""
    title: float = Field(0.0, ge=0, le=1)
    """Share of the pairs with a capital at the beginning of every word, on both sides."""
    typos: float = Field(0.0, ge=0, le=1)
    """Share of the pairs whose source has typing errors, in about one word of seven."""
    punctuation: float = Field(0.0, ge=0, le=1)
    """Share of the pairs without punctuation at the end of both sides."""
    spaces: float = Field(0.0, ge=0, le=1)
    """Share of the pairs whose source lacks about one space of ten."""

    @property
    def total(self) -> float:
        """Return the share of pairs with noise of any kind."""
        return self.caps + self.title + self.typos + self.punctuation + self.spaces

    @model_validator(mode="after")
    def _a_pair_has_one_kind(self) -> "NoiseConfig":
        if self.total > 1:
            raise ValueError(
                f"the shares add up to {self.total:g}, but a pair has at most one kind of noise: "
                "expected at most 1"
            )
        return self


class ParsingConfig(Section):
    """What parsers predict (tasks "parsing" and "parsing-spans")."""

    tags: bool = True
    """Predict the part of speech of each word; else XX stands in its place."""
    reads_words: bool = True
    """Sequence to sequence: a decoder reads the next word for each placeholder (paper: false)."""


class ImageConfig(Section):
    """How images become sequences (task = "image-classification")."""

    size: int = Field(28, ge=4, le=1024)
    """Height and width in pixels; images of other sizes are scaled and padded to a square."""
    channels: Literal[1, 3] = 1
    """1: grey, 3: red, green and blue."""
    patch: int = Field(4, ge=1, le=256)
    """Height and width of the square of pixels that is one position; must divide size."""
    stem: Literal["patches", "convolution"] = "patches"
    """How a position is embedded: its own pixels (ViT), or by convolutions over the image."""

    @property
    def n_patches(self) -> int:
        """Return the number of patches of an image."""
        return (self.size // self.patch) ** 2

    @model_validator(mode="after")
    def _patches_fill_the_image(self) -> "ImageConfig":
        if self.size % self.patch:
            raise ValueError(f"patch = {self.patch} does not divide size = {self.size}")
        if self.stem == "convolution" and self.patch & (self.patch - 1):
            raise ValueError(
                f'stem = "convolution" halves the image again and again: patch = {self.patch} '
                "must be a power of 2"
            )
        return self


class AudioConfig(Section):
    """How recordings become sequences (audio-classification and speech-recognition)."""

    rate: int = Field(8000, ge=1000, le=192_000)
    """Samples per second; recordings of other rates are resampled."""
    window: int = Field(200, ge=16, le=16_384)
    """Samples of a frame, whose spectrum is computed (at 8,000 per second, 200 are 25 ms)."""
    hop: int = Field(80, ge=8, le=16_384)
    """Samples from the beginning of a frame to that of the next."""
    n_mels: int = Field(40, ge=4, le=512)
    """Number of mel bands of a frame."""
    frames: int = Field(4, ge=1, le=64)
    """Number of frames that convolutions join to one position."""

    @property
    def samples(self) -> int:
        """Return the number of samples of one position."""
        return self.frames * self.hop

    @model_validator(mode="after")
    def _frames_overlap(self) -> "AudioConfig":
        if not self.hop <= self.window <= 2 * self.samples:
            raise ValueError(
                f"window = {self.window}: expected from hop = {self.hop} to 2 · frames · hop = "
                f"{2 * self.samples}"
            )
        return self


class AugmentationConfig(Section):
    """Random changes of images and recordings in training; 0 switches each of them off."""

    shift: float = Field(0.0, ge=0, le=0.5)
    """Images: largest shift, as a share of the size."""
    rotation: float = Field(0.0, ge=0, le=180)
    """Images: largest rotation, in degrees."""
    scale: float = Field(0.0, ge=0, lt=1)
    """Images: largest change of height and of width, as a share of them."""
    shear: float = Field(0.0, ge=0, lt=1)
    """Images: largest shift of one edge against the opposite one, as a share of the size."""
    elastic: float = Field(0.0, ge=0, le=1)
    """Images: typical shift of a point by elastic deformation, as a share of the size."""
    erasing: float = Field(0.0, ge=0, le=1)
    """Images: probability that a random rectangle is erased."""
    mixup: float = Field(0.0, ge=0, le=10)
    """Images: α of mix-up, the mean of two images with weights drawn from Beta(α, α)."""
    speed: float = Field(0.0, ge=0, lt=1)
    """Recordings: largest change of the speed, as a share of it; the pitch changes with it."""
    gain: float = Field(0.0, ge=0, le=60)
    """Recordings: largest change of the volume, in decibels."""
    noise: float = Field(0.0, ge=0, le=1)
    """Recordings: largest amplitude of white noise; 1 is full scale."""
    time_mask: float = Field(0.0, ge=0, le=1)
    """Recordings: largest share of the positions that is hidden (SpecAugment)."""
    band_mask: float = Field(0.0, ge=0, le=1)
    """Recordings: largest share of the mel bands that is hidden (SpecAugment)."""
    join: int = Field(1, ge=1, le=100)
    """Speech recognition: most recordings that are joined to one, with their texts."""
    gap: float = Field(0.3, ge=0, le=60)
    """Speech recognition: longest silence between joined recordings, in seconds."""


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


def _family(values: Any) -> str:
    """Return the model family that is given; the Transformer by default."""
    kind = values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)
    return "transformer" if kind is None else str(kind)


def _check_model(values: Any) -> AnyModelConfig:
    """Check the section [model] by the rules of its family."""
    return choose(FAMILIES, _family(values), "model.kind").model_validate(values)


ModelConfig = Annotated[SerializeAsAny[AnyModelConfig], PlainValidator(_check_model)]


class TrainingConfig(Section):
    """How the parameters are learned."""

    steps: int = Field(100_000, ge=1, le=10**9)
    """Number of parameter updates."""
    seconds: float = Field(0.0, ge=0, le=1e9)
    """Train for this time instead; settings in steps keep their share of it (0: no limit)."""
    seed: int = Field(1, ge=0, le=MOST_SEED)
    """Random seed of the initial parameters, the order of the data and dropout."""
    batch_tokens: int = Field(4096, ge=16, le=10**7)
    """Target tokens per update, padding included (the paper: about 25,000)."""
    accumulate: int = Field(1, ge=1, le=10_000)
    """Number of parts to split every update into, to save memory; the result is the same."""
    activation_checkpointing: bool = False
    """Recompute every layer in the backward pass, to save memory; the result is the same."""
    optimizer: str = "adam"
    """adam (the paper's), adamw or muon (Muon for matrices, AdamW for the rest)."""
    learning_rate: float = Field(1.0, ge=1e-12, le=1e30)
    """Highest learning rate; with the paper's schedule, a factor on its formula."""
    beta_1: float = Field(0.9, ge=0, lt=1)
    """Adam's decay of the first moment."""
    beta_2: float = Field(0.98, ge=0, lt=1)
    """Adam's decay of the second moment."""
    epsilon: float = Field(1e-9, ge=1e-30, le=1)
    """Adam's term against division by zero."""
    weight_decay: float = Field(0.0, ge=0, le=1e3)
    """Decoupled weight decay of the matrices (adamw and muon)."""
    schedule: str = "paper"
    """Learning rate: paper (warm-up, then inverse square root), cosine, linear or constant."""
    warmup_steps: int = Field(4000, ge=0, le=10**9)
    """Number of steps over which the learning rate rises from zero."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability that is spread over the whole vocabulary (§5.4)."""
    r_drop: float = Field(0.0, ge=0, le=1e3)
    """Weight of R-Drop: two forward passes with different dropout must agree (0: one pass)."""
    clip_norm: float = Field(0.0, ge=0, le=1e9)
    """Largest norm of the gradient (0: no clipping)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Number format; auto chooses bf16 where the hardware multiplies it faster, else fp32."""
    residual: Literal["fp32", "bf16"] = "fp32"
    """Number format of the sums between sub-layers, in bf16 on a GPU; bf16 takes less time."""
    compile: Literal[True, False, "auto"] = "auto"
    """Compile the training step and, on a GPU, record it as a graph; auto does so on GPUs."""
    deterministic: bool = False
    """Make results on a GPU repeatable (on a CPU they always are)."""
    log_every: int = Field(50, ge=1, le=10**9)
    """Number of steps between two lines of log.jsonl."""
    validate_every: int = Field(1000, ge=1, le=10**9)
    """Number of steps between two validations."""
    save_every: int = Field(1000, ge=1, le=10**9)
    """Number of steps between two saved states: the most that a killed run loses."""
    patience: int = Field(0, ge=0, le=10**9)
    """Stop after this many validations without a better one (0: never)."""
    select: Literal["auto", "loss", "metric"] = "auto"
    """Choose checkpoints by validation loss or by the metric of the task (BLEU, accuracy, ...), on
    up to 1,000 records; auto: translations by BLEU if they have at most 20,000 training pairs."""
    validation_bleu: int = Field(100, ge=0, le=1_000_000)
    """Number of sentences to translate at each validation to measure BLEU (0: none)."""
    average: int = Field(5, ge=1, le=1000)
    """Number of last validations whose checkpoints are averaged at the end (the paper: 5)."""
    ema: float = Field(0.0, ge=0, lt=1)
    """Decay of a moving average of the parameters, one more candidate at the end (0: none)."""
    tensorboard: bool = False
    """Also write TensorBoard event files."""


class FinetuningConfig(Section):
    """Which parameters of a start are trained, and how fast; by default all of them, alike."""

    frozen: bool = False
    """Train the new head only; the body keeps the parameters of the start."""
    frozen_layers: int = Field(0, ge=0, le=MOST_LAYERS)
    """Train neither embeddings and positions nor this many of the first layers (0: train all)."""
    layer_decay: float = Field(1.0, gt=0, le=1)
    """Learning rate of a layer as a share of that of the layer above; the head has all of it."""
    lora_rank: int = Field(0, ge=0, le=MOST_WIDTH)
    """Train matrices of this rank beside the frozen projections, and the head (LoRA; 0: none)."""
    lora_alpha: float = Field(16.0, gt=0, le=1e6)
    """The product of the low-rank matrices is multiplied by lora_alpha / lora_rank."""
    lora_projections: tuple[
        Literal["query", "key", "value", "output", "inner", "outer", "gate"], ...
    ] = Field(("query", "value"), min_length=1)
    """Which: query, key, value and output of attention; inner, outer and gate of feed-forward."""

    @property
    def is_partial(self) -> bool:
        """Return whether some parameters are not trained."""
        return bool(self.frozen or self.frozen_layers or self.lora_rank)

    @model_validator(mode="after")
    def _only_one_way_to_freeze(self) -> "FinetuningConfig":
        ways = [name for name in ("frozen", "frozen_layers", "lora_rank") if getattr(self, name)]
        if len(ways) > 1:
            raise ValueError(f"{ways[0]} and {ways[1]} cannot be combined; choose one of them")
        return self


class DecodingConfig(Section):
    """How translations are searched for."""

    strategy: str = "beam"
    """Search: beam, greedy or sample."""
    beam: int = Field(4, ge=1, le=64)
    """Number of hypotheses that beam search keeps at each step."""
    alpha: float = Field(0.6, ge=0, le=10)
    """Strength of the length penalty (§6.1)."""
    max_extra: int = Field(50, ge=1, le=10_000)
    """Largest number of tokens that a translation may have more than its source (§6.1)."""
    temperature: float = Field(1.0, ge=0.001, le=1000)
    """Temperature of sampling: below 1 it favours likely tokens, above 1 it evens them out."""
    top_k: int = Field(0, ge=0, le=MOST_TOKENS)
    """Sample among this many most likely tokens (0: all)."""
    top_p: float = Field(1.0, ge=1e-9, le=1)
    """Sample among the most likely tokens that together have this probability."""
    no_repeat_ngram: int = Field(0, ge=0, le=1000)
    """Never produce a sequence of this many tokens twice (0: no such rule)."""
    max_loops: int = Field(8, ge=0, le=1000)
    """End a translation that repeats the same tokens this many times in a row (0: no such rule)."""
    batch_size: int = Field(64, ge=1, le=100_000)
    """Number of sentences to translate at a time."""
    seed: int = Field(0, ge=0, le=MOST_SEED)
    """Random seed of sampling."""
    stride: int = Field(0, ge=0, le=MOST_POSITIONS)
    """Tokens scored per row of a stream; those before them are context (0: half of a row)."""
    sentences: int = Field(1, ge=1, le=1000)
    """Number of sentences to translate together; training sets it to that of a training source."""


class Recipe(Section):
    """Everything that describes a run; docs/settings.md explains each setting.

    >>> recipe = attendo.load_recipe("paper-base")
    >>> recipe.model.d_model, recipe.model.encoder_layers, recipe.decoding.beam
    (512, 6, 4)
    """

    description: str = ""
    """What this recipe is for."""
    task: str = "translation"
    """What is learned: translation, language-model, masked-language-model, classification,
    pair-classification, token-classification, image-classification, audio-classification,
    speech-recognition, parsing or parsing-spans."""
    name: str = ""
    """Name of the recipe that a run was started with; set by training."""
    auto: bool = False
    """Choose all settings that are left out, according to the data and the hardware."""
    start: str | None = None
    """A trained run to start from: its vocabulary, its model settings and its parameters."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    masking: MaskingConfig = MaskingConfig()
    noise: NoiseConfig = NoiseConfig()
    parsing: ParsingConfig = ParsingConfig()
    image: ImageConfig = ImageConfig()
    audio: AudioConfig = AudioConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    model: ModelConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    finetuning: FinetuningConfig = FinetuningConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _tying_needs_one_vocabulary(self) -> "Recipe":
        if self.model.tied == "all" and not self.tokenizer.shared:
            raise ValueError(
                'model.tied = "all" needs tokenizer.shared = true; '
                'set model.tied = "output" for two vocabularies'
            )
        return self

    @model_validator(mode="after")
    def _streams_are_for_language_models(self) -> "Recipe":
        if self.data.layout == "stream" and self.task != "language-model":
            raise ValueError(
                f'data.layout = "stream" is for the task "language-model", not "{self.task}"; '
                'use "packed"'
            )
        return self

    @model_validator(mode="after")
    def _noise_is_for_translation(self) -> "Recipe":
        if self.noise.total and self.task != "translation":
            raise ValueError(f'[noise] is for the task "translation", not "{self.task}"')
        return self

    @model_validator(mode="after")
    def _every_patch_has_its_position(self) -> "Recipe":
        n_positions = self.image.n_patches + (self.model.pooling == "first")
        n_learned = self.model.n_positions
        if self.task == "image-classification" and n_learned and n_positions > n_learned:
            raise ValueError(
                f"an image has {n_positions} positions (image.size, image.patch), and "
                f"model.max_positions = {n_learned}: raise it"
            )
        return self

    @model_validator(mode="after")
    def _mixed_images_are_run_once(self) -> "Recipe":
        if self.augmentation.mixup and self.training.r_drop:
            raise ValueError("augmentation.mixup and training.r_drop cannot be combined")
        return self

    @model_validator(mode="after")
    def _only_stacks_are_recomputed(self) -> "Recipe":
        if self.training.activation_checkpointing and self.model.kind != "transformer":
            raise ValueError(
                'training.activation_checkpointing needs model.kind = "transformer", '
                f'not "{self.model.kind}"'
            )
        return self


def load_recipe(
    name: str, overrides: Mapping[str, Any] | None = None, *, allow_like: bool = True
) -> Recipe:
    """Read a recipe.

    Args:
        name: The name of a recipe (`attendo recipes` lists them) or the path of a TOML file.
        overrides: Settings that replace those of the recipe.
        allow_like: Whether the recipe may name another one as `like`. That of a run folder is
            complete and may come from a stranger, so it must not make other files be read.

    Raises:
        ConfigError: There is no such recipe, or one of its settings is wrong.

    >>> attendo.load_recipe("small", {"training.steps": 2000}).training.steps
    2000
    """
    values = _whole_values(name) if allow_like else _read_values(name)
    if "like" in values:
        raise ConfigError(f"recipe {name!r}: the recipe of a run must not be like another one")
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    return make_recipe(values, origin=f"recipe {name!r}")


def given_settings(name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the tree of settings that the user has given, not a preset."""
    values = _whole_values(name, read=lambda one: _read_values(one) if _is_file_name(one) else {})
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    return values


def make_recipe(values: dict[str, Any], origin: str = "recipe") -> Recipe:
    """Check a tree of settings."""
    try:
        return Recipe.model_validate(values)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except ValidationError as error:
        family = _family(values.get("model"))
        raise ConfigError(f"{origin}: {_first_problem(error, family=family)}") from None


def change_decoding(config: DecodingConfig, values: Mapping[str, Any]) -> DecodingConfig:
    """Return a copy with other values, checked."""
    try:
        return DecodingConfig.model_validate({**config.model_dump(), **values})
    except ValidationError as error:
        raise ConfigError(_first_problem(error, ("decoding",))) from None


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """Convert `a.b=c` to {"a.b": c}; c is parsed as TOML, or else kept as a string."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting!r}: expected key=value, such as model.d_model=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        except RecursionError:
            raise ConfigError(f"--set {key}: the value is nested too deeply") from None
        overrides[key.strip()] = value
    return overrides


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML; reading it back gives the same recipe.

    What `auto` has yet to choose is left out.
    """
    values = recipe.model_dump(exclude_none=True, exclude_unset=recipe.auto, mode="json")
    return tomli_w.dumps(values)


def presets() -> dict[str, str]:
    """Return the name and description of every preset."""
    folder = resources.files("attendo") / "recipes"
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text(encoding="utf-8")).get(
            "description", ""
        )
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def presets_by_task() -> dict[str, dict[str, str]]:
    """Return the same, grouped by the task that a preset is for."""
    grouped: dict[str, dict[str, str]] = {}
    for name, description in presets().items():
        task = _whole_values(name).get("task", Recipe.model_fields["task"].default)
        grouped.setdefault(task, {})[name] = description
    return dict(sorted(grouped.items(), key=lambda item: -len(item[1])))


def _whole_values(
    name: str, below: tuple[str, ...] = (), read: Callable[[str], dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Read a recipe; one that is `like` another lists only where it differs."""
    if name in below:
        raise ConfigError(f"recipes are like each other in a circle: {' -> '.join((*below, name))}")
    values = (read or _read_values)(name)
    other = values.pop("like", None)
    if other is None:
        return values
    if not isinstance(other, str):
        raise ConfigError(f"recipe {name!r}: like = {other!r}: expected the name of a recipe")
    if _is_file_name(other) and Path(other).exists() and not Path(other).is_file():
        raise ConfigError(f"recipe {name!r}: like = {other!r}: expected a preset or a regular file")
    return _changed(_whole_values(other, (*below, name), read), values)


def _changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Merge section by section; a model of another family inherits nothing from the first."""
    result = {**values, **changes}
    for name, section in changes.items():
        base = values.get(name)
        is_other = name == "model" and _family(section) != _family(base)
        if isinstance(section, dict) and isinstance(base, dict) and not is_other:
            result[name] = _changed(base, section)
    return result


def _is_file_name(name: str) -> bool:
    return name.endswith(".toml") or "/" in name


def _read_values(name: str) -> dict[str, Any]:
    preset = resources.files("attendo") / "recipes" / f"{name}.toml"
    try:
        with (Path(name) if _is_file_name(name) else preset).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(
                f"recipe file {name!r} is larger than {MOST_BYTES:,} bytes: not a recipe"
            )
        return tomllib.loads(content.decode())
    except FileNotFoundError:
        if _is_file_name(name):
            raise ConfigError(f"recipe file {name!r} does not exist") from None
        raise ConfigError(
            f"no recipe is called {name!r}; {did_you_mean(name, presets())} (or give a .toml file)"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe file {name!r} is not valid TOML: {error}") from None
    except RecursionError:
        raise ConfigError(f"recipe file {name!r} is nested too deeply: not a recipe") from None
    except OSError as error:
        raise ConfigError(f"recipe file {name!r} cannot be read: {error.strerror}") from None


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"--set {key}: {section!r} is a value, not a section")
        values = inner
    values[last] = value


def _first_problem(
    error: ValidationError, within: tuple[str, ...] = (), family: str = "transformer"
) -> str:
    """Describe the first validation error: the key, what was given, what was expected."""
    problem = error.errors()[0]
    path = [*within, *(str(part) for part in problem["loc"])]
    dotted = ".".join(path)
    if problem["type"] == "extra_forbidden":
        return f"unknown key {dotted!r}; {did_you_mean(path[-1], _keys(path[:-1], family))}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "model_type":
        return f"{dotted} = {problem['input']!r}: {dotted} is a section; set the keys in it"
    if problem["type"] == "int_parsing_size":
        message = "the number is too large"
    if problem["type"] == "value_error":
        return f"[{dotted}] {message}" if dotted else message
    return f"{dotted} = {problem['input']!r}: {message[0].lower()}{message[1:]}"


def _keys(path: list[str], family: str) -> list[str]:
    """List the keys of a section; those of [model] depend on the family."""
    section: Any = Recipe
    for part in path:
        section = FAMILIES[family] if part == "model" else section.model_fields[part].annotation
    return list(section.model_fields)


def choose(table: Mapping[str, T], kind: str, key: str) -> T:
    """Return the entry of a table with this name."""
    if kind not in table:
        raise ConfigError(f"{key} = {kind!r} is not known; {did_you_mean(kind, table)}")
    return table[kind]
