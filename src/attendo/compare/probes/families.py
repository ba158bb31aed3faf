"""The families of models at equal width, small enough to learn an exercise in seconds."""

from typing import Any

from attendo.compare.probes.exercises import VOCABULARY
from attendo.config import AnyModelConfig, ConvolutionalConfig, RecurrentConfig, TransformerConfig
from attendo.models import Seq2Seq, build_model


def transformer(d_model: int, n_layers: int = 2, **changes: Any) -> TransformerConfig:
    """Describe a small Transformer."""
    settings = {"n_heads": 4, "d_ff": 2 * d_model, "p_drop": 0.0, "tied": "none", **changes}
    return TransformerConfig(
        d_model=d_model, encoder_layers=n_layers, decoder_layers=n_layers, **settings
    )


def recurrent(d_model: int, cell: str, attention: str = "none") -> RecurrentConfig:
    """Describe a recurrent network that reads one way, so that distances are what they are."""
    return RecurrentConfig(
        d_model=d_model,
        cell=cell,
        attention=attention,
        bidirectional=False,
        encoder_layers=1,
        decoder_layers=1,
        p_drop=0.0,
        tied="none",
    )


def convolutional(d_model: int, longest: int, n_layers: int = 2) -> ConvolutionalConfig:
    """Describe a convolutional network with a place in its tables for the longest sequence."""
    return ConvolutionalConfig(
        d_model=d_model,
        encoder_layers=n_layers,
        decoder_layers=n_layers,
        p_drop=0.0,
        max_positions=longest,
        tied="none",
    )


def families(d_model: int, longest: int) -> dict[str, AnyModelConfig]:
    """Describe every family."""
    return {
        "rnn": recurrent(d_model, "rnn"),
        "gru": recurrent(d_model, "gru"),
        "lstm": recurrent(d_model, "lstm"),
        "lstm with attention": recurrent(d_model, "lstm", "additive"),
        "convolution": convolutional(d_model, longest),
        "transformer": transformer(d_model),
    }


def build(config: AnyModelConfig, vocabulary: int = VOCABULARY) -> Seq2Seq:
    """Build a model for the exercises."""
    return build_model(config, vocabulary, vocabulary)
