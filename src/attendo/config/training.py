"""Sections about how a model is trained, and how it is searched afterwards."""

from typing import Literal

from pydantic import Field, model_validator

from attendo.config.base import (
    MOST_LAYERS,
    MOST_POSITIONS,
    MOST_SEED,
    MOST_TOKENS,
    MOST_WIDTH,
    Section,
)


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
    up to 1,000 records; auto: by the metric with at most 20,000 training records."""
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

    encoder_only: bool = False
    """The start is an encoder; the decoder above it is new. Set by training."""
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
