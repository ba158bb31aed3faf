"""The interface of a published architecture, so that import and export depend on none."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import tokenizers
from torch import Tensor

from attendo.bundle import Bundle
from attendo.config import TransformerConfig
from attendo.errors import BundleError, ConfigError
from attendo.interop.folders import Json
from attendo.interop.names import Names
from attendo.text import Tokenizer

PLAIN = {
    "attention": "dot",
    "attention_pattern": (),
    "reversible": False,
    "query_key_norm": False,
    "norm": "layer",
    "logit_cap": 0.0,
}
"""Settings of [model] that all published architectures here have in common."""

ACTIVATIONS = {
    "relu": ("relu",),
    "gelu": ("gelu",),
    "gelu-tanh": ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"),
    "swish": ("swish", "silu"),
}
"""Our feed-forward kinds, and what others call them; the first is what is exported."""


class Vocabulary(NamedTuple):
    """The tokenizers of a published model."""

    tokenizer: Tokenizer
    target: Tokenizer | None = None
    """That of the target side, if it is another one."""
    kind: str = "bpe"
    """As in recipes."""
    shared: bool | str = True
    """As in recipes."""


class Template(NamedTuple):
    """How `transformers` frames a text with special tokens; $A and $B are texts."""

    single: list[str]
    pair: list[str] | None
    special: dict[str, str]
    """The special tokens by the names that `transformers` has for them."""
    inputs: tuple[str, ...] = ("input_ids", "attention_mask")
    """What the model is given."""


class Architecture(ABC):
    """One class of `transformers`, as a recipe and a table of names."""

    name: ClassVar[str]
    """The class, as in config.json."""
    model_type: ClassVar[str]
    task: ClassVar[str]
    """The task of the run that it becomes."""
    numbers: ClassVar[Mapping[str, str]]
    """Keys of [model], and the keys of config.json that have the same value."""
    fixed: ClassVar[Mapping[str, Any]]
    """Settings of [model] that this architecture always has."""
    command: ClassVar[tuple[str, ...]] = ()
    """A command that uses the run, if it is another one than that of its task."""
    needs: ClassVar[Mapping[str, Any]]
    """Values of config.json without which it is something else; a key may be left out."""
    ignored: ClassVar[tuple[str, ...]] = ()
    """Names of tensors, as regular expressions, that a run does not need."""
    new: ClassVar[tuple[str, ...]] = ()
    """What the names of parameters begin with that a run has, and this architecture has not."""
    sections: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Other settings of the run that it becomes, by section."""

    # -- from transformers

    def canonical(self, name: str) -> str:
        """Return the usual name of a tensor that older files call something else."""
        return name

    @abstractmethod
    def vocabulary(self, folder: Path, config: Json) -> Vocabulary:
        """Read the tokenizers of a published folder."""

    @abstractmethod
    def settings(self, config: Json, vocabulary: Vocabulary) -> Json:
        """Return the settings of [model] that are no plain numbers of config.json."""

    @abstractmethod
    def max_length(self, config: Json) -> Any:
        """Return the largest number of tokens of a text."""

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raise an error if tensors that are left out are not what they should be."""
        del tensors

    def may_ignore(self, name: str) -> bool:
        """Return whether a run does not need a tensor."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignored)

    # -- in both directions

    @abstractmethod
    def names(self, model: TransformerConfig) -> Names:
        """Return the table of names for a model with these settings."""

    # -- to transformers

    def equivalent(
        self, model: TransformerConfig, parameters: dict[str, Tensor], longest: int
    ) -> tuple[TransformerConfig, dict[str, Tensor]]:
        """Return settings and parameters of the same function that this architecture can have."""
        return model, parameters

    @abstractmethod
    def config(self, bundle: Bundle, model: TransformerConfig) -> Json:
        """Return the values of config.json that are no plain numbers of [model]."""

    def generation(self, bundle: Bundle) -> Json:
        """Return the content of generation_config.json; empty: there is none."""
        return {}

    @abstractmethod
    def template(self, task: Any) -> Template:
        """Return how texts are framed."""

    @abstractmethod
    def ids(self, task: Any, text: str, target: str) -> tuple[list[int], list[int]]:
        """Encode what a model is given to compare: the input, and that of the decoder if any."""

    @abstractmethod
    def outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of ours computes."""

    @abstractmethod
    def their_outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of `transformers` computes."""


def model_settings(architecture: Architecture, config: Json, vocabulary: Vocabulary) -> Json:
    """Return the section [model] of a recipe for a config.json."""
    for key, value in architecture.needs.items():
        if config.get(key, value) != value:
            raise ConfigError(
                f"config.json has {key} = {config[key]!r}, which cannot be imported; "
                f"expected {value!r}"
            )
    found = {}
    for ours, theirs in architecture.numbers.items():
        value = config.get(theirs)
        if isinstance(value, int | float):
            found[ours] = value
        elif value is not None or not ours.startswith("p_drop"):
            raise ConfigError(
                f"config.json has {theirs} = {value!r}; expected a number, as {architecture.name} "
                "has"
            )
    return {**found, **architecture.fixed, **architecture.settings(config, vocabulary)}


def full_config(architecture: Architecture, bundle: Bundle, model: TransformerConfig) -> Json:
    """Return the content of config.json, or raise an error if the model does not fit."""
    for key, value in architecture.fixed.items():
        if (own := getattr(model, key)) != value:
            setting = value if isinstance(value, str) else json.dumps(value)
            raise ConfigError(
                f"model.{key} = {own!r} cannot be exported: {architecture.name} of transformers "
                f"has {value!r} only; train with --set model.{key}={setting}"
            )
    numbers = {theirs: getattr(model, ours) for ours, theirs in architecture.numbers.items()}
    return {
        "architectures": [architecture.name],
        "model_type": architecture.model_type,
        "dtype": "float32",
        **numbers,
        **architecture.config(bundle, model),
    }


def n_embeddings(model: TransformerConfig, tokenizer: Tokenizer) -> int:
    """Return the number of embeddings of a model, which may be more than it has tokens."""
    return -(-tokenizer.size // model.vocabulary_multiple) * model.vocabulary_multiple


def our_activation(name: Any) -> str:
    """Return the feed-forward kind of an activation function of others."""
    for ours, theirs in ACTIVATIONS.items():
        if name in theirs:
            return ours
    known = ", ".join(one for names in ACTIVATIONS.values() for one in names)
    raise ConfigError(f"config.json has the activation function {name!r}; known are: {known}")


def their_activation(kind: str) -> str:
    """Return what others call a feed-forward kind."""
    if kind not in ACTIVATIONS:
        raise ConfigError(
            f"model.feed_forward = {kind!r} cannot be exported; transformers has only "
            f"{', '.join(ACTIVATIONS)} in this architecture"
        )
    return ACTIVATIONS[kind][0]


def make_tokenizer(
    backend: tokenizers.Tokenizer, size: Any, ends: tuple[Any, Any] | None = None
) -> Tokenizer:
    """Build a tokenizer with as many tokens as a model has embeddings.

    Args:
        backend: What was read.
        size: Number of embeddings. Those without a token get one that text never becomes.
        ends: Ids of the tokens that begin and end a sequence, where they have unusual names.
    """
    names = None if ends is None else (_token(backend, ends[0]), _token(backend, ends[1]))
    known = 1 + max(backend.get_vocab().values())
    if isinstance(size, int) and known < size <= known + _MOST_UNUSED:
        backend.add_special_tokens([f"<unused {number}>" for number in range(known, size)])
    tokenizer = Tokenizer(backend, names)
    if tokenizer.size != size:
        raise BundleError(
            f"the tokenizer has {tokenizer.size:,} tokens, but config.json says vocab_size = "
            f"{size!r}; it belongs to another model"
        )
    return tokenizer


_MOST_UNUSED = 5000
"""Embeddings without a token: some models have a few, to make the number a round one."""


def _token(backend: tokenizers.Tokenizer, number: Any) -> str:
    token = backend.id_to_token(number) if isinstance(number, int) and number >= 0 else None
    if token is None:
        raise BundleError(f"config.json names the token {number!r}, which the tokenizer lacks")
    return str(token)
