"""What a model is, in words: its architecture, its languages and its training data."""

import re
from pathlib import Path
from typing import Any

from attendo.bundle import read_score_card
from attendo.config import AnyModelConfig, DataConfig, RecurrentConfig, TransformerConfig
from attendo.engines import Translator
from attendo.errors import BundleError

Json = dict[str, Any]

LANGUAGE = re.compile("(?!txt|tsv|csv)[a-z]{2,3}")
"""The ending of a file such as corpus.de."""

COMPRESSED = (".gz", ".xz", ".zst")


def card_of(run: Path) -> Json:
    """Read the score card of a run; empty if there is none."""
    try:
        return read_score_card(run)
    except BundleError:
        return {}


def model_json(translator: Translator, card: Json) -> Json:
    """Describe a model from its recipe and its score card."""
    recipe, model = translator.bundle.recipe, translator.bundle.model
    return {
        "languages": languages(recipe.data),
        "architecture": architecture(recipe.model),
        "encoder_layers": recipe.model.encoder_layers,
        "decoder_layers": recipe.model.decoder_layers,
        "n_heads": getattr(recipe.model, "n_heads", 0),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bleu": card.get("bleu"),
        "about": training_data(translator, card),
    }


def architecture(config: AnyModelConfig) -> str:
    """Return the name of the architecture of a model."""
    if isinstance(config, TransformerConfig):
        return "Transformer"
    if isinstance(config, RecurrentConfig):
        without = config.attention == "none"
        attention = "without attention" if without else f"with {config.attention} attention"
        return f"{config.cell.upper()} {attention}"
    return "Convolutional network with attention"


def missing_attention(config: AnyModelConfig) -> str:
    """Explain which kinds of attention a model does not have; empty if it has all."""
    if isinstance(config, TransformerConfig):
        return ""
    if isinstance(config, RecurrentConfig) and config.attention == "none":
        return (
            f"{architecture(config)}: the decoder receives the source as one vector, so there are "
            "no attention weights and no heads."
        )
    return (
        f"{architecture(config)}: encoder and decoder are {config.kind}, so there is no "
        "self-attention, only encoder-decoder attention."
    )


def languages(data: DataConfig) -> str:
    """Return the language pair of the training data: "en → de" for files a.en and a.de."""
    if data.builtin:
        return "English → German"
    files = [Path(side[0]) for side in (data.source, data.target) if side]
    plain = [file.with_suffix("") if file.suffix in COMPRESSED else file for file in files]
    names = [file.suffix[1:] for file in plain]
    is_pair = len(set(names)) == 2 and all(LANGUAGE.fullmatch(name) for name in names)
    return " → ".join(names) if is_pair else ""


def training_data(translator: Translator, card: Json) -> str:
    """Return what the model was trained on; empty if it is not known."""
    data, n_words = translator.bundle.recipe.data, len(translator.words)
    n_pairs = card.get("training_pairs") or data.builtin
    if not n_pairs:
        return ""
    words = f" with {n_words:,} different source words" if n_words else ""
    if not data.builtin:
        return f"Trained on {n_pairs:,} sentence pairs{words}."
    return (
        f"Trained on the built-in corpus: {n_pairs:,} generated sentence pairs{words}. "
        "The model cannot translate other words."
    )
