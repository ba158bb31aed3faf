"""GPT-2 (Radford et al. 2019): the decoder alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from attendo.bundle import Bundle
from attendo.config import TransformerConfig
from attendo.data.packing import pad_grid
from attendo.interop.base import (
    PLAIN,
    Architecture,
    Template,
    Vocabulary,
    make_tokenizer,
    n_embeddings,
    our_activation,
    their_activation,
)
from attendo.interop.equivalents import Parameters, with_factor, with_table
from attendo.interop.folders import Json
from attendo.interop.names import Names, Theirs
from attendo.text.published import load_backend

PREFIX = "transformer."
LAYER, THEIR_LAYER = "decoder.layers.{n}.", f"{PREFIX}h.{{n}}."
TABLE = "decoder.enter.positions.table.weight"

NAMES: Names = {
    "embedding.weight": Theirs(f"{PREFIX}wte.weight", copies=("lm_head.weight",)),
    TABLE: f"{PREFIX}wpe.weight",
    f"{LAYER}around_self.norm.{{p}}": f"{THEIR_LAYER}ln_1.{{p}}",
    # Queries, keys and values are one matrix, and all matrices are stored as (in, out).
    **{
        f"{LAYER}self_attention.{name}.{{p}}": Theirs(
            f"{THEIR_LAYER}attn.c_attn.{{p}}", part=part, transposed=True
        )
        for part, name in enumerate(("query", "key", "value"))
    },
    **{
        f"{LAYER}{ours}.{{p}}": Theirs(f"{THEIR_LAYER}{theirs}.{{p}}", transposed=True)
        for ours, theirs in {
            "self_attention.output": "attn.c_proj",
            "feed_forward.inner": "mlp.c_fc",
            "feed_forward.outer": "mlp.c_proj",
        }.items()
    },
    f"{LAYER}around_feed_forward.norm.{{p}}": f"{THEIR_LAYER}ln_2.{{p}}",
    "decoder.norm.{p}": f"{PREFIX}ln_f.{{p}}",
}

UNTIED: Names = {"embedding.weight": f"{PREFIX}wte.weight", "output.weight": "lm_head.weight"}


class Gpt2(Architecture):
    """Language models."""

    name: ClassVar[str] = "GPT2LMHeadModel"
    model_type: ClassVar[str] = "gpt2"
    task: ClassVar[str] = "language-model"
    numbers: ClassVar[Mapping[str, str]] = {
        "d_model": "n_embd",
        "n_heads": "n_head",
        "decoder_layers": "n_layer",
        "max_positions": "n_positions",
        "norm_epsilon": "layer_norm_epsilon",
        "p_drop": "resid_pdrop",
        "p_drop_attention": "attn_pdrop",
    }
    fixed: ClassVar[Mapping[str, Any]] = {
        **PLAIN,
        "positions": "learned",
        "norm_order": "pre",
        "scale_embedding": False,
        "embedding_norm": False,
        "output_bias": False,
    }
    needs: ClassVar[Mapping[str, Any]] = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    }
    ignored: ClassVar[tuple[str, ...]] = (r"transformer\.h\.\d+\.attn\.(masked_)?bias",)
    sections: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "data": {"layout": "stream"},
        "tokenizer": {"lossless": True},
        "decoding": {"strategy": "sample", "top_k": 50, "max_loops": 0},
    }

    def canonical(self, name: str) -> str:
        """Add the prefix that the first published files do not have."""
        return name if name.startswith((PREFIX, "lm_head.")) else PREFIX + name

    def vocabulary(self, folder: Path, config: Json) -> Vocabulary:
        """Read tokenizer.json, or vocab.json and merges.txt."""
        ends = config.get("bos_token_id"), config.get("eos_token_id")
        tokenizer = make_tokenizer(load_backend(folder), config.get("vocab_size"), ends)
        return Vocabulary(tokenizer, kind="byte-bpe")

    def settings(self, config: Json, vocabulary: Vocabulary) -> Json:
        """Return activation function, inner width and shared matrices."""
        return {
            "d_ff": config.get("n_inner") or 4 * config["n_embd"],
            "feed_forward": our_activation(config.get("activation_function", "gelu_new")),
            "tied": "all" if config.get("tie_word_embeddings", True) else "none",
        }

    def max_length(self, config: Json) -> Any:
        """Return the number of positions."""
        return config["n_positions"]

    def names(self, model: TransformerConfig) -> Names:
        """Return the table of names for a model with these settings."""
        return {**NAMES, **UNTIED} if model.tied == "none" else NAMES

    def equivalent(
        self, model: TransformerConfig, parameters: Parameters, longest: int
    ) -> tuple[TransformerConfig, Parameters]:
        """Return the same model with a table of positions and no factor."""
        model, parameters = with_table(model, parameters, TABLE, longest)
        return with_factor(model, parameters, "embedding.weight", "output.weight")

    def config(self, bundle: Bundle, model: TransformerConfig) -> Json:
        """Return vocabulary, special tokens and activation function."""
        specials = bundle.task.specials
        return {
            "vocab_size": n_embeddings(model, bundle.task.tokenizer),
            "n_inner": model.d_ff,
            "activation_function": their_activation(model.feed_forward),
            "embd_pdrop": model.p_drop,
            "tie_word_embeddings": model.tied != "none",
            "bos_token_id": specials.bos,
            "eos_token_id": specials.eos,
            "pad_token_id": specials.pad,
        }

    def template(self, task: Any) -> Template:
        """Return how texts are framed: not at all."""
        names = ("pad_token", "bos_token", "eos_token")
        tokens = task.tokenizer.tokens(task.specials)
        return Template(["$A"], None, dict(zip(names, tokens, strict=True)))

    def ids(self, task: Any, text: str, target: str) -> tuple[list[int], list[int]]:
        """Encode a text."""
        return task.tokenizer.encode(text), []

    def outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of ours computes."""
        logits: Tensor = model.logits(model.decode(pad_grid([ids[0]], 0)))
        return logits

    def their_outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of `transformers` computes."""
        logits: Tensor = model(input_ids=torch.tensor([ids[0]])).logits
        return logits
