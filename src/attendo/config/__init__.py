"""Recipes: everything that describes a run, checked when it is read.

A recipe is a TOML file with the sections [data] [tokenizer] [masking] [noise] [parsing] [image]
[audio] [augmentation] [model] [training] [finetuning] [decoding], or the name of a preset in
`recipes/`. A recipe read here is complete and consistent, or a ConfigError that names the key. No
torch here, so that mistakes are reported at once.
"""

from attendo.config.base import Paths, choose
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
from attendo.config.model import (
    FAMILIES,
    AnyModelConfig,
    BlockConfig,
    ConvolutionalConfig,
    RecurrentConfig,
    TransformerConfig,
    WindowConfig,
)
from attendo.config.reading import (
    given_settings,
    load_recipe,
    parse_overrides,
    presets,
    presets_by_task,
    write_recipe,
)
from attendo.config.recipe import Recipe, change_decoding, make_recipe
from attendo.config.training import DecodingConfig, FinetuningConfig, TrainingConfig

__all__ = [
    "FAMILIES",
    "AnyModelConfig",
    "AudioConfig",
    "AugmentationConfig",
    "BlockConfig",
    "ConvolutionalConfig",
    "DataConfig",
    "DecodingConfig",
    "FinetuningConfig",
    "ImageConfig",
    "MaskingConfig",
    "NoiseConfig",
    "ParsingConfig",
    "Paths",
    "Recipe",
    "RecurrentConfig",
    "TokenizerConfig",
    "TrainingConfig",
    "TransformerConfig",
    "WindowConfig",
    "change_decoding",
    "choose",
    "given_settings",
    "load_recipe",
    "make_recipe",
    "parse_overrides",
    "presets",
    "presets_by_task",
    "write_recipe",
]
