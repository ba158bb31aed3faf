"""Models described from their recipes: architecture, and operations that must be sequential.

Sequential steps are the longest chain of layers (or cells) in which each waits for the one before.
Everything beside the chain can be computed at once, so it bounds what any hardware can do: the
column "sequential operations" of the paper's table 1, counted for a whole model.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from attendo.config import AnyModelConfig, ConvolutionalConfig, RecurrentConfig, TransformerConfig
from attendo.models import Model, Seq2Seq
from attendo.models.base import layer_counts


class Chain(NamedTuple):
    """A number of steps as a formula of n source and m target tokens, and as a function."""

    formula: str
    steps: Callable[[int, int], int]


class Chains(NamedTuple):
    """The chains of encoding a source, of training on a pair and of decoding a translation."""

    encoding: Chain
    training: Chain
    decoding: Chain


class Family(NamedTuple):
    """How a family is described; a table below has one for each."""

    words: Callable[[Any, type[Model]], str]
    chains: Callable[[Any], Chains]


def model_in_words(config: AnyModelConfig, promise: type[Model] = Seq2Seq) -> str:
    """Describe a model: its family, its layers and its width."""
    family = FAMILIES.get(config.kind)
    return family.words(config, promise) if family else config.kind


def chains_of(config: AnyModelConfig) -> Chains | None:
    """Return the sequential operations of a model; None for a family not in the table."""
    family = FAMILIES.get(config.kind)
    return family.chains(config) if family else None


def _layers(config: AnyModelConfig, promise: type[Model]) -> str:
    counts = " + ".join(map(str, layer_counts(config, promise)))
    return f"{counts} layers of width {config.d_model}"


def _transformer(config: TransformerConfig, promise: type[Model]) -> str:
    kinds = config.attention_kinds
    kind = "" if kinds == ("dot",) else f", attention {' + '.join(kinds)}"
    return f"Transformer, {_layers(config, promise)}, {config.n_heads} heads{kind}"


def _recurrent(config: RecurrentConfig, promise: type[Model]) -> str:
    names = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU"}
    kinds = {"none": " without attention", "additive": " with attention (additive)"}
    attention = kinds.get(config.attention, f" with attention ({config.attention})")
    cells = names.get(config.cell, config.cell) + (attention if promise is Seq2Seq else "")
    return f"{cells}, {_layers(config, promise)}"


def _convolutional(config: ConvolutionalConfig, promise: type[Model]) -> str:
    attention = " with attention" if promise is Seq2Seq else ""
    return f"Convolutional{attention}, {_layers(config, promise)}, kernel {config.kernel}"


def _decoding(config: Any) -> Chain:
    """Return the sequential operations of decoding: all layers for each word."""
    layers = config.decoder_layers
    return Chain(_times(layers, "m"), lambda n, m: layers * m)


def _all_at_once(config: TransformerConfig | ConvolutionalConfig) -> Chains:
    encoder, both = config.encoder_layers, config.encoder_layers + config.decoder_layers
    return Chains(
        encoding=Chain(str(encoder), lambda n, m: encoder),
        training=Chain(str(both), lambda n, m: both),
        decoding=_decoding(config),
    )


def _one_by_one(config: RecurrentConfig) -> Chains:
    """Return the sequential operations of a recurrent model: word after word, in each direction."""
    encode, decoder = _encoding(config), config.decoder_layers
    if config.attention == "additive":  # the highest layer attends before the lowest continues
        decode = _decoding(config)
    else:
        decode = Chain(_plus("m", decoder - 1), lambda n, m: m + decoder - 1)
    return Chains(
        encoding=encode,
        training=Chain(
            f"{encode.formula} + {decode.formula}",
            lambda n, m: encode.steps(n, m) + decode.steps(n, m),
        ),
        decoding=_decoding(config),
    )


def _encoding(config: RecurrentConfig) -> Chain:
    layers = config.encoder_layers
    if config.bidirectional:
        return Chain(_times(layers, "n"), lambda n, m: layers * n)
    return Chain(_plus("n", layers - 1), lambda n, m: n + layers - 1)


def _times(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} {name}"


def _plus(name: str, more: int) -> str:
    return f"{name} + {more}" if more else name


FAMILIES: dict[str, Family] = {
    "transformer": Family(_transformer, _all_at_once),
    "recurrent": Family(_recurrent, _one_by_one),
    "convolutional": Family(_convolutional, _all_at_once),
}
