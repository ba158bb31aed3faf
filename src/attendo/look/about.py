"""What a model is, in words: its architecture, its languages and its training data."""

import re
from pathlib import Path
from typing import Any

from attendo.bundle import read_score_card
from attendo.config import (
    AnyModelConfig,
    ConvolutionalConfig,
    DataConfig,
    RecurrentConfig,
    TransformerConfig,
)
from attendo.data.readers import Pair
from attendo.engines import Engine
from attendo.errors import BundleError
from attendo.models import CausalLM, Encoder
from attendo.tasks import Task

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


def model_json(engine: Engine, card: Json) -> Json:
    """Describe a model with what its recipe and its score card say."""
    recipe, model, task = engine.bundle.recipe, engine.bundle.model, engine.bundle.task
    has_encoder, has_decoder = not isinstance(model, CausalLM), not isinstance(model, Encoder)
    return {
        "task": task.name,
        "mask": task.mask,
        "reads": task.inputs[0] if task.reads_files else "text",
        "languages": languages(recipe.data) if _has_pairs(task) else "",
        "architecture": architecture(recipe.model),
        "encoder_layers": recipe.model.encoder_layers if has_encoder else 0,
        "decoder_layers": recipe.model.decoder_layers if has_decoder else 0,
        "n_heads": getattr(recipe.model, "n_heads", 0),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "bleu": card.get("bleu"),
        "score": _score(task, card),
        "about": training_data(engine, card),
    }


def architecture(config: AnyModelConfig) -> str:
    """Return the name of the architecture of a model."""
    if isinstance(config, TransformerConfig):
        return "Transformer"
    if isinstance(config, RecurrentConfig):
        without = config.attention == "none"
        attention = "without attention" if without else f"with {config.attention} attention"
        return f"{config.cell.upper()} {attention}"
    if isinstance(config, ConvolutionalConfig):
        return "Convolutional network with attention"
    return config.kind.capitalize()


def missing_attention(config: AnyModelConfig) -> str:
    """Explain which kinds of attention a model does not have; empty if it has all."""
    if isinstance(config, TransformerConfig):
        return ""
    if isinstance(config, RecurrentConfig) and config.attention == "none":
        return (
            f"{architecture(config)}: the decoder receives the source as one vector, so there are "
            "no attention weights and no heads."
        )
    if config.kind not in ("recurrent", "convolutional"):
        return f"{architecture(config)}: only the attention that this family has is shown."
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


def training_data(engine: Engine, card: Json) -> str:
    """Say what the model was trained on; empty if the run does not say it."""
    data, n_words = engine.bundle.recipe.data, len(engine.words)
    n_records = card.get("training_pairs") or data.builtin
    if not n_records:
        return ""
    has_pairs = _has_pairs(engine.bundle.task)
    records, kind = ("sentence pairs", "source words") if has_pairs else ("texts", "words")
    if engine.bundle.task.reads_files:
        records = f"{engine.bundle.task.inputs[0]}s"
    words = f" with {n_words:,} different {kind}" if n_words else ""
    if not data.builtin:
        return f"Trained on {n_records:,} {records}{words}."
    limit = " The model cannot translate other words." if has_pairs else ""
    return f"Trained on the built-in corpus: {n_records:,} generated {records}{words}.{limit}"


def _has_pairs(task: Task) -> bool:
    """Return whether a task reads pairs of texts."""
    return task.columns == Pair._fields


def _score(task: Task, card: Json) -> str:
    """Return the task's metric on the test set; empty if it has not been measured."""
    metric, value = task.metric, card.get(task.metric.name)
    return "" if value is None else f"{metric.title} {value:.1f}{metric.unit}"
