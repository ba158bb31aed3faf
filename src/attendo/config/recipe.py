"""A whole recipe: its sections, what must fit together in them, and how mistakes are described."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError, model_validator

from attendo.config.base import Section
from attendo.config.data import (
    AudioConfig,
    AugmentationConfig,
    DataConfig,
    ImageConfig,
    MaskingConfig,
    NoiseConfig,
    ParsingConfig,
    TokenizerConfig,
)
from attendo.config.model import FAMILIES, ModelConfig, TransformerConfig, family_of
from attendo.config.training import DecodingConfig, FinetuningConfig, TrainingConfig
from attendo.errors import ConfigError, did_you_mean


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


def make_recipe(values: dict[str, Any], origin: str = "recipe") -> Recipe:
    """Check a tree of settings."""
    try:
        return Recipe.model_validate(values)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from None
    except ValidationError as error:
        family = family_of(values.get("model"))
        raise ConfigError(f"{origin}: {_first_problem(error, family=family)}") from None


def change_decoding(config: DecodingConfig, values: Mapping[str, Any]) -> DecodingConfig:
    """Return a copy with other values, checked."""
    try:
        return DecodingConfig.model_validate({**config.model_dump(), **values})
    except ValidationError as error:
        raise ConfigError(_first_problem(error, ("decoding",))) from None


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
