"""BERT (Devlin et al. 2019): the encoder alone, with or without its head for masked tokens."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from attendo.bundle import Bundle
from attendo.config import TransformerConfig
from attendo.data.packing import pad_grid
from attendo.files import read_json
from attendo.interop.base import (
    PLAIN,
    Architecture,
    Template,
    Vocabulary,
    make_tokenizer,
    n_embeddings,
    our_activation,
)
from attendo.interop.equivalents import Parameters, with_factor, with_table
from attendo.interop.folders import Json
from attendo.interop.names import Names, Theirs
from attendo.text.published import load_backend

PREFIX = "bert."
LAYER, THEIR_LAYER = "body.encoder.layers.{n}.", f"{PREFIX}encoder.layer.{{n}}."
EMBEDDING, TABLE = "body.embedding.weight", "body.encoder.enter.positions.table.weight"
DECODER = "cls.predictions.decoder.weight"
WORDS = f"{PREFIX}embeddings.word_embeddings.weight"

BODY: Names = {
    EMBEDDING: Theirs(WORDS, copies=(DECODER,)),
    TABLE: f"{PREFIX}embeddings.position_embeddings.weight",
    "body.token_types.table.weight": f"{PREFIX}embeddings.token_type_embeddings.weight",
    "body.encoder.enter.norm.{p}": f"{PREFIX}embeddings.LayerNorm.{{p}}",
    f"{LAYER}self_attention.query.{{p}}": f"{THEIR_LAYER}attention.self.query.{{p}}",
    f"{LAYER}self_attention.key.{{p}}": f"{THEIR_LAYER}attention.self.key.{{p}}",
    f"{LAYER}self_attention.value.{{p}}": f"{THEIR_LAYER}attention.self.value.{{p}}",
    f"{LAYER}self_attention.output.{{p}}": f"{THEIR_LAYER}attention.output.dense.{{p}}",
    f"{LAYER}around_self.norm.{{p}}": f"{THEIR_LAYER}attention.output.LayerNorm.{{p}}",
    f"{LAYER}feed_forward.inner.{{p}}": f"{THEIR_LAYER}intermediate.dense.{{p}}",
    f"{LAYER}feed_forward.outer.{{p}}": f"{THEIR_LAYER}output.dense.{{p}}",
    f"{LAYER}around_feed_forward.norm.{{p}}": f"{THEIR_LAYER}output.LayerNorm.{{p}}",
}

HEAD: Names = {
    "transform.linear.{p}": "cls.predictions.transform.dense.{p}",
    "transform.norm.{p}": "cls.predictions.transform.LayerNorm.{p}",
    "output.bias": Theirs("cls.predictions.bias", copies=("cls.predictions.decoder.bias",)),
}

UNTIED: Names = {
    EMBEDDING: WORDS,
    "output.weight": DECODER,
    "output.bias": Theirs("cls.predictions.decoder.bias", also="cls.predictions.bias"),
}


class BertForMaskedLM(Architecture):
    """Masked language models."""

    name: ClassVar[str] = "BertForMaskedLM"
    model_type: ClassVar[str] = "bert"
    task: ClassVar[str] = "masked-language-model"
    numbers: ClassVar[Mapping[str, str]] = {
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "n_heads": "num_attention_heads",
        "encoder_layers": "num_hidden_layers",
        "max_positions": "max_position_embeddings",
        "token_types": "type_vocab_size",
        "norm_epsilon": "layer_norm_eps",
        "p_drop": "hidden_dropout_prob",
        "p_drop_attention": "attention_probs_dropout_prob",
    }
    fixed: ClassVar[Mapping[str, Any]] = {
        **PLAIN,
        "positions": "learned",
        "norm_order": "post",
        "scale_embedding": False,
        "embedding_norm": True,
        "feed_forward": "gelu",  # the activation function of the head cannot be chosen
    }
    needs: ClassVar[Mapping[str, Any]] = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
        "hidden_act": "gelu",
    }
    ignored: ClassVar[tuple[str, ...]] = (
        r"bert\.embeddings\.position_ids",
        # For the next sentence, which a run does not predict.
        r"bert\.pooler\..*",
        r"cls\.seq_relationship\..*",
    )

    def canonical(self, name: str) -> str:
        """Add the prefix that files of the encoder lack, and replace TensorFlow's names."""
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        return name if name.startswith((PREFIX, "cls.")) else PREFIX + name

    def vocabulary(self, folder: Path, config: Json) -> Vocabulary:
        """Read tokenizer.json or vocab.txt."""
        path = folder if (folder / "tokenizer.json").is_file() else folder / "vocab.txt"
        backend = load_backend(path, lowercase=_lowercase(folder))
        return Vocabulary(make_tokenizer(backend, config.get("vocab_size")), kind="wordpiece")

    def settings(self, config: Json, vocabulary: Vocabulary) -> Json:
        """Return separator and shared matrices."""
        return {
            "separator": vocabulary.tokenizer.specials.eos,
            "tied": "all" if config.get("tie_word_embeddings", True) else "none",
        }

    def max_length(self, config: Json) -> Any:
        """Return the number of positions."""
        return config["max_position_embeddings"]

    def names(self, model: TransformerConfig) -> Names:
        """Return the table of names for a model with these settings."""
        names = {**BODY, **HEAD}
        return {**names, **UNTIED} if model.tied == "none" else names

    def equivalent(
        self, model: TransformerConfig, parameters: Parameters, longest: int
    ) -> tuple[TransformerConfig, Parameters]:
        """Return the same model with a table of positions, one of token types and no factor."""
        model, parameters = with_table(model, parameters, TABLE, longest)
        if not model.token_types:
            model = model.model_copy(update={"token_types": 1})
            zeros = torch.zeros(1, model.d_model)
            parameters = {**parameters, "body.token_types.table.weight": zeros}
        return with_factor(model, parameters, EMBEDDING, "output.weight")

    def config(self, bundle: Bundle, model: TransformerConfig) -> Json:
        """Return vocabulary, special tokens and activation function."""
        return {
            "vocab_size": n_embeddings(model, bundle.task.tokenizer),
            "hidden_act": "gelu",
            "tie_word_embeddings": model.tied != "none",
            "pad_token_id": bundle.task.tokenizer.specials.pad,
        }

    def template(self, task: Any) -> Template:
        """Return how texts and pairs of texts are framed."""
        pad, first, last = task.tokenizer.tokens(task.tokenizer.specials)
        return Template(
            single=[first, "$A", last],
            pair=[first, "$A", last, "$B:1", f"{last}:1"],
            special={
                "pad_token": pad,
                "cls_token": first,
                "sep_token": last,
                "mask_token": task.tokenizer.mask_name,
            },
            inputs=("input_ids", "token_type_ids", "attention_mask"),
        )

    def ids(self, task: Any, text: str, target: str) -> tuple[list[int], list[int]]:
        """Encode a text."""
        specials = task.tokenizer.specials
        return [specials.bos, *task.tokenizer.encode(text), specials.eos], []

    def outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of ours computes."""
        logits: Tensor = model.logits(model.encode(pad_grid([ids[0]], 0)).hidden)
        return logits

    def their_outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of `transformers` computes."""
        logits: Tensor = model(input_ids=torch.tensor([ids[0]])).logits
        return logits


class BertModel(BertForMaskedLM):
    """Encoders without a head; the run gets a new one, which has learned nothing."""

    name: ClassVar[str] = "BertModel"
    command: ClassVar[tuple[str, ...]] = ("embed", "RUN", "some text")
    new: ClassVar[tuple[str, ...]] = ("transform.", "output.")
    needs: ClassVar[Mapping[str, Any]] = {
        key: value for key, value in BertForMaskedLM.needs.items() if key != "hidden_act"
    }

    def settings(self, config: Json, vocabulary: Vocabulary) -> Json:
        """Return also the activation function."""
        activation = our_activation(config.get("hidden_act", "gelu"))
        return {**super().settings(config, vocabulary), "feed_forward": activation}

    def names(self, model: TransformerConfig) -> Names:
        """Return the table of names for a model with these settings."""
        return BODY


def _lowercase(folder: Path) -> bool | None:
    """Return whether tokenizer_config.json says that text is made lower-case."""
    try:
        value = read_json(folder / "tokenizer_config.json", 1 << 20).get("do_lower_case")
    except (OSError, ValueError, AttributeError):
        return None
    return value if isinstance(value, bool) else None
