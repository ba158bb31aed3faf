"""Recipes: everything that describes a run, checked when it is read.

A recipe is a TOML file with the sections [data] [tokenizer] [model] [training] [decoding], or the
name of a preset in `recipes/`. A recipe read here is complete and consistent, or a ConfigError that
names the key. No torch here, so that mistakes are answered at once.
"""

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from attendo.errors import ConfigError, did_you_mean

T = TypeVar("T")

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
    """Where the sentence pairs come from and which of them are used."""

    source: Paths = ()
    """Text files with one source sentence a line (.gz, .xz, .zst too)."""
    target: Paths = ()
    """Text files with the translations, line by line."""
    pairs: Paths = ()
    """Files with both sides: .tsv (source TAB target) or .jsonl (keys "source" and "target")."""
    valid_source: Paths = ()
    """Validation sentences; when none are given, some are split off."""
    valid_target: Paths = ()
    """Translations of the validation sentences."""
    valid_pairs: Paths = ()
    """Validation pairs in one file."""
    test_source: Paths = ()
    """Test sentences, scored once at the end; when none are given, some are split off."""
    test_target: Paths = ()
    """Translations of the test sentences."""
    test_pairs: Paths = ()
    """Test pairs in one file."""
    builtin: int = Field(0, ge=0)
    """Take this many pairs from the built-in English-German corpus instead of files."""
    hold_out: int = Field(1000, ge=1)
    """Most pairs to split off for validation, and again for test (never more than 5 % each)."""
    max_length: int = Field(128, ge=4)
    """Longest sentence, in tokens of either side, that is trained on; also the width of a row."""
    max_ratio: float = Field(0.0, ge=0)
    """Leave out pairs whose sides differ in length by more than this factor (0: keep all)."""
    layout: Literal["packed", "padded"] = "packed"
    """Rows filled with several sentences, or one sentence a row with like lengths together."""
    remember: float = Field(1.0, ge=0)
    """With a start, how many of its training pairs to mix in, for each new one (0: none)."""

    @model_validator(mode="after")
    def _sides_go_together(self) -> "DataConfig":
        for prefix in ("", "valid_", "test_"):
            source, target = getattr(self, f"{prefix}source"), getattr(self, f"{prefix}target")
            if len(source) != len(target):
                raise ValueError(
                    f"{prefix}source names {len(source)} files and {prefix}target {len(target)}: "
                    "give one target file for each source file"
                )
        if self.builtin and (self.source or self.pairs):
            raise ValueError("builtin stands for files: give either builtin or your own files")
        return self


class TokenizerConfig(Section):
    """How text becomes ids."""

    kind: str = "bpe"
    """bpe, byte-bpe, wordpiece, unigram, word or char."""
    vocabulary: int = Field(8000, ge=300)
    """Number of different tokens to learn."""
    shared: bool = True
    """One vocabulary for both languages (needed to tie source and target embeddings)."""
    path: str | None = None
    """Use an existing one: tokenizer.json, BERT's vocab.txt, or a folder with GPT-2's files."""
    target_path: str | None = None
    """An existing tokenizer for the target side."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Subword regularisation: share of BPE merges left out at random in training (BPE-dropout)."""
    sample: int = Field(250_000, ge=1)
    """Number of pairs, spread over the corpus, that the vocabulary is learned from."""

    @model_validator(mode="after")
    def _a_target_side_is_not_shared(self) -> "TokenizerConfig":
        if self.target_path and self.shared:
            raise ValueError("target_path needs shared = false: it is for a second vocabulary")
        return self


LONG = ("window", "chunks", "lsh", "favor")
"""Attention kinds that never build a table of all pairs."""


class BlockConfig(Section):
    """What every stack of attention layers is made of, in the paper's words."""

    d_model: int = Field(512, ge=2)
    """Width of the residual stream."""
    d_ff: int = Field(2048, ge=1)
    """Inner width of the position-wise feed-forward network."""
    n_heads: int = Field(8, ge=1)
    """Number of attention heads; divides d_model."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on each sub-layer's output and on the sum of embedding and position (§5.4)."""
    p_drop_attention: float = Field(0.0, ge=0, lt=1)
    """Dropout on the attention weights (not in the paper's text)."""
    p_drop_inner: float = Field(0.0, ge=0, lt=1)
    """Dropout inside the feed-forward network (not in the paper's text)."""
    attention: str = "dot"
    """dot (the paper's), additive (Bahdanau's), or for long texts window, chunks, lsh or favor."""
    window: int = Field(128, ge=1)
    """How far they see: tokens on either side (window), of a piece (chunks), of a bucket (lsh)."""
    n_global: int = Field(1, ge=0)
    """First tokens of a sentence that see all, and are seen by all (window)."""
    overlap: int = Field(32, ge=0)
    """Tokens seen beyond either end of the own piece (chunks)."""
    n_buckets: int = Field(16, ge=2)
    """Number of buckets that tokens are sorted into (lsh); even."""
    n_rounds: int = Field(4, ge=1)
    """How often they are sorted, each time another way (lsh)."""
    n_features: int = Field(128, ge=1)
    """Number of random features for each head (favor)."""
    reversible: bool = False
    """Two streams, computed again backwards instead of being stored: less memory, more time."""
    positions: str = "sinusoidal"
    """sinusoidal, learned, rotary, alibi or none."""
    feed_forward: str = "relu"
    """relu, gelu or gated."""
    norm: str = "layer"
    """layer (LayerNorm) or rms (RMSNorm)."""
    norm_order: Literal["post", "pre"] = "post"
    """post: normalise after each residual sum, as in the paper; pre: before each sub-layer."""
    max_positions: int = Field(1024, ge=1)
    """Size of the table of learned positions; the other kinds have no limit."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> "BlockConfig":
        if self.d_model % self.n_heads:
            raise ValueError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        if self.d_model % 2 and self.positions == "sinusoidal":
            raise ValueError(f"sinusoidal positions need an even d_model, not {self.d_model}")
        return self

    @model_validator(mode="after")
    def _long_attention_has_no_table_of_pairs(self) -> "BlockConfig":
        if self.attention not in LONG:
            return self
        if self.positions == "alibi":
            raise ValueError(
                f'positions = "alibi" needs a score for all pairs, which attention = '
                f'"{self.attention}" does not make; take another kind of positions'
            )
        if self.p_drop_attention:
            raise ValueError(
                f'attention = "{self.attention}" has no weights to drop: set p_drop_attention = 0'
            )
        if self.n_buckets % 2:
            raise ValueError(f"n_buckets = {self.n_buckets}: expected an even number")
        return self

    @model_validator(mode="after")
    def _reversible_streams_are_not_normalised(self) -> "BlockConfig":
        if self.reversible and self.norm_order != "pre":
            raise ValueError('reversible = true needs norm_order = "pre"')
        return self

    @model_validator(mode="after")
    def _rotary_turns_pairs(self) -> "BlockConfig":
        if (self.d_model // self.n_heads) % 2 and self.positions == "rotary":
            raise ValueError(
                "rotary positions need an even head width, "
                f"not d_model / n_heads = {self.d_model // self.n_heads}"
            )
        return self


class TransformerConfig(BlockConfig):
    """The encoder-decoder of the paper."""

    kind: Literal["transformer"] = "transformer"
    """The model family."""
    encoder_layers: int = Field(6, ge=1)
    """Number of encoder layers (N in the paper)."""
    decoder_layers: int = Field(6, ge=1)
    """Number of decoder layers (N in the paper)."""
    tied: Literal["all", "output", "none"] = "all"
    """Which of source embedding, target embedding and output layer share one matrix (§3.4)."""


class RecurrentConfig(Section):
    """The encoder-decoders that came before: word after word."""

    kind: Literal["recurrent"] = "recurrent"
    """The model family."""
    d_model: int = Field(512, ge=2)
    """Width of embeddings and of what is remembered."""
    cell: str = "lstm"
    """rnn, lstm or gru."""
    attention: Literal["none", "additive", "dot"] = "additive"
    """none (one vector for the whole source), additive (Bahdanau's) or dot (Luong's, scaled)."""
    bidirectional: bool = True
    """Read the source in both directions, each with half of the width."""
    encoder_layers: int = Field(2, ge=1)
    """Number of encoder layers."""
    decoder_layers: int = Field(2, ge=1)
    """Number of decoder layers."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output."""
    tied: Literal["all", "output", "none"] = "all"
    """Which of source embedding, target embedding and output layer share one matrix."""

    @model_validator(mode="after")
    def _directions_share_the_width(self) -> "RecurrentConfig":
        if self.bidirectional and self.d_model % 2:
            raise ValueError(f"two directions need an even d_model, not {self.d_model}")
        return self


class ConvolutionalConfig(Section):
    """The convolutional encoder-decoder: windows that grow layer by layer."""

    kind: Literal["convolutional"] = "convolutional"
    """The model family."""
    d_model: int = Field(512, ge=2)
    """Width of embeddings and layers."""
    kernel: int = Field(3, ge=1)
    """Number of words that a window shows; odd, so that it has a middle."""
    encoder_layers: int = Field(6, ge=1)
    """Number of encoder layers."""
    decoder_layers: int = Field(6, ge=1)
    """Number of decoder layers; each looks at the source."""
    p_drop: float = Field(0.1, ge=0, lt=1)
    """Dropout on embeddings, before every window and before the output."""
    max_positions: int = Field(1024, ge=1)
    """Size of the tables of learned positions; what comes later shares the last one."""
    tied: Literal["all", "output", "none"] = "all"
    """Which of source embedding, target embedding and output layer share one matrix."""

    @model_validator(mode="after")
    def _windows_have_a_middle(self) -> "ConvolutionalConfig":
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel = {self.kernel}: a window needs a middle, so an odd number")
        return self


AnyModelConfig = TransformerConfig | RecurrentConfig | ConvolutionalConfig

FAMILIES: dict[str, type[AnyModelConfig]] = {
    "transformer": TransformerConfig,
    "recurrent": RecurrentConfig,
    "convolutional": ConvolutionalConfig,
}


def _family(values: Any) -> str:
    """Tell which family is meant; that of the paper, if nothing is said."""
    kind = values.get("kind") if isinstance(values, dict) else getattr(values, "kind", None)
    return "transformer" if kind is None else str(kind)


ModelConfig = Annotated[
    Annotated[TransformerConfig, Tag("transformer")]
    | Annotated[RecurrentConfig, Tag("recurrent")]
    | Annotated[ConvolutionalConfig, Tag("convolutional")],
    Discriminator(_family),
]


class TrainingConfig(Section):
    """How the weights are learned."""

    steps: int = Field(100_000, ge=1)
    """Number of weight updates."""
    seed: int = Field(1, ge=0)
    """Start of every random choice: weights, order of the data, dropout."""
    batch_tokens: int = Field(4096, ge=16)
    """Places for target tokens in one update (the paper: about 25,000)."""
    accumulate: int = Field(1, ge=1)
    """Split every update into this many parts to save memory; the result is the same."""
    optimizer: str = "adam"
    """adam (the paper's), adamw or muon (Muon for matrices, AdamW for the rest)."""
    learning_rate: float = Field(1.0, gt=0)
    """Highest learning rate; for the paper's schedule a factor on its formula."""
    beta_1: float = Field(0.9, ge=0, lt=1)
    """Adam's decay of the first moment."""
    beta_2: float = Field(0.98, ge=0, lt=1)
    """Adam's decay of the second moment."""
    epsilon: float = Field(1e-9, gt=0)
    """Adam's term against division by zero."""
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled weight decay of the matrices (adamw and muon)."""
    schedule: str = "paper"
    """paper (warm-up, then inverse square root), cosine, linear or constant."""
    warmup_steps: int = Field(4000, ge=0)
    """Steps over which the learning rate rises from zero."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    """Share of the probability spread over the whole vocabulary (§5.4)."""
    r_drop: float = Field(0.0, ge=0)
    """Read all pairs twice with other dropout; the weight of their agreement (R-Drop; 0: once)."""
    clip_norm: float = Field(0.0, ge=0)
    """Largest norm of the gradient (0: never clipped)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """auto takes bf16 on GPUs and CPUs that multiply it faster, and fp32 elsewhere."""
    compile: Literal[True, False, "auto"] = "auto"
    """Compile the training step, and on a GPU record it as a graph; auto does so on GPUs."""
    deterministic: bool = False
    """Ask the GPU for repeatable results (the CPU's always are)."""
    log_every: int = Field(50, ge=1)
    """Steps between two lines of log.jsonl."""
    validate_every: int = Field(1000, ge=1)
    """Steps between two validations."""
    save_every: int = Field(1000, ge=1)
    """Steps between two saved states; a killed run loses at most this much."""
    patience: int = Field(0, ge=0)
    """Stop after this many validations without a better loss (0: never)."""
    validation_bleu: int = Field(100, ge=0)
    """Sentences translated at each validation to measure BLEU (0: none)."""
    average: int = Field(5, ge=1)
    """Average the weights of this many last validations at the end (the paper: 5)."""
    ema: float = Field(0.0, ge=0, lt=1)
    """Decay of a moving average of the weights, a further candidate at the end (0: none)."""
    tensorboard: bool = False
    """Also write TensorBoard event files."""


class DecodingConfig(Section):
    """How translations are searched."""

    strategy: str = "beam"
    """beam, greedy or sample."""
    beam: int = Field(4, ge=1, le=64)
    """Hypotheses kept at each step of beam search."""
    alpha: float = Field(0.6, ge=0)
    """Strength of the length penalty (§6.1)."""
    max_extra: int = Field(50, ge=1)
    """A translation is at most this many tokens longer than its source (§6.1)."""
    temperature: float = Field(1.0, gt=0)
    """Below 1 sampling is bolder in favour of the likely, above 1 more even."""
    top_k: int = Field(0, ge=0)
    """Sample among this many most likely tokens (0: all)."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Sample among the most likely tokens that together have this probability."""
    no_repeat_ngram: int = Field(0, ge=0)
    """Never produce a sequence of this many tokens twice (0: no such rule)."""
    max_loops: int = Field(8, ge=0)
    """End a translation that says the same thing this many times in a row (0: let it)."""
    batch_size: int = Field(64, ge=1)
    """Sentences translated at a time."""
    seed: int = Field(0, ge=0)
    """Start of the random choices of sampling."""
    sentences: int = Field(1, ge=1, le=1000)
    """Number of sentences to translate together; training sets it to that of a training source."""


class Recipe(Section):
    """A whole run."""

    description: str = ""
    """What this recipe is for."""
    auto: bool = False
    """Choose what is not set here by looking at the data and the hardware."""
    start: str | None = None
    """A trained run to begin with: its vocabulary, its model and its weights."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = TransformerConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()

    @model_validator(mode="after")
    def _tying_needs_one_vocabulary(self) -> "Recipe":
        if self.model.tied == "all" and not self.tokenizer.shared:
            raise ValueError(
                'model.tied = "all" needs tokenizer.shared = true; '
                'set model.tied = "output" for two vocabularies'
            )
        return self


def load_recipe(name: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read a preset by name or a TOML file by path, with overrides such as {"model.d_ff": 64}."""
    values = _whole_values(name)
    for key, value in (overrides or {}).items():
        _set(values, key, value)
    return make_recipe(values, origin=f"recipe {name!r}")


def make_recipe(values: dict[str, Any], origin: str = "recipe") -> Recipe:
    """Check a tree of settings."""
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{origin}: {_first_problem(error)}") from None


def change_decoding(config: DecodingConfig, values: Mapping[str, Any]) -> DecodingConfig:
    """Give a copy with other values, checked."""
    try:
        return DecodingConfig.model_validate({**config.model_dump(), **values})
    except ValidationError as error:
        raise ConfigError(_first_problem(error, ("decoding",))) from None


def parse_overrides(settings: Iterable[str]) -> dict[str, Any]:
    """Turn `a.b=c` into {"a.b": c}; c is read as TOML where it is TOML, else as a string."""
    overrides: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {setting!r}: expected key=value, such as model.d_model=256")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        overrides[key.strip()] = value
    return overrides


def write_recipe(recipe: Recipe) -> str:
    """Write a recipe as TOML; reading it back gives the same recipe.

    What `auto` has yet to choose stays open.
    """
    values = recipe.model_dump(exclude_none=True, exclude_unset=recipe.auto, mode="json")
    return tomli_w.dumps(values)


def presets() -> dict[str, str]:
    """Name and description of every preset."""
    folder = resources.files("attendo") / "recipes"
    return {
        entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text(encoding="utf-8")).get(
            "description", ""
        )
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".toml")
    }


def _whole_values(name: str, below: tuple[str, ...] = ()) -> dict[str, Any]:
    """Read a recipe; one that is `like` another says only where it differs."""
    if name in below:
        raise ConfigError(f"recipes are like each other in a circle: {' -> '.join((*below, name))}")
    values = _read_values(name)
    other = values.pop("like", None)
    if other is None:
        return values
    if not isinstance(other, str):
        raise ConfigError(f"recipe {name!r}: like = {other!r}: expected the name of a recipe")
    return _changed(_whole_values(other, (*below, name)), values)


def _changed(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Set keys section by section; a model of another family takes nothing from the first."""
    result = {**values, **changes}
    for name, section in changes.items():
        base = values.get(name)
        is_other = name == "model" and _family(section) != _family(base)
        if isinstance(section, dict) and isinstance(base, dict) and not is_other:
            result[name] = {**base, **section}
    return result


def _read_values(name: str) -> dict[str, Any]:
    preset = resources.files("attendo") / "recipes" / f"{name}.toml"
    is_file = name.endswith(".toml") or "/" in name
    try:
        if is_file:
            return tomllib.loads(Path(name).read_text(encoding="utf-8"))
        return tomllib.loads(preset.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if is_file:
            raise ConfigError(f"recipe file {name!r} does not exist") from None
        raise ConfigError(
            f"no recipe is called {name!r}; {did_you_mean(name, presets())} (or give a .toml file)"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe file {name!r} is not valid TOML: {error}") from None
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


def _first_problem(error: ValidationError, within: tuple[str, ...] = ()) -> str:
    """Say one validation error in the reader's words: the key, what was given, what is right."""
    problem = error.errors()[0]
    path = [*within, *(str(part) for part in problem["loc"])]
    family = path.pop(1) if path[:1] == ["model"] and len(path) > 1 else ""  # not a key
    dotted = ".".join(path)
    if problem["type"] == "union_tag_invalid":
        kind = problem["ctx"]["tag"]
        return f"model.kind = {kind!r} is not known; {did_you_mean(kind, FAMILIES)}"
    if problem["type"] == "extra_forbidden":
        return f"unknown key {dotted!r}; {did_you_mean(path[-1], _keys(path[:-1], family))}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "model_type":
        return f"{dotted} = {problem['input']!r}: {dotted} is a section; set the keys in it"
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
    """Look a kind up in its table."""
    if kind not in table:
        raise ConfigError(f"{key} = {kind!r} is not known; {did_you_mean(kind, table)}")
    return table[kind]
