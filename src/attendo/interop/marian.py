"""Marian (Junczys-Dowmunt et al. 2018): the encoder-decoder of the paper, as in opus-mt models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import tokenizers
import torch
from torch import Tensor
from torch.nn import functional

from attendo.bundle import TARGET_TOKENIZER, Bundle
from attendo.config import TransformerConfig
from attendo.data.packing import pad_grid
from attendo.errors import BundleError, ConfigError
from attendo.files import read_json
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
from attendo.interop.equivalents import Parameters, with_halves
from attendo.interop.folders import Json
from attendo.interop.names import Names, Theirs
from attendo.nn.positions import SinusoidalHalves
from attendo.text.limits import MOST_BYTES
from attendo.text.published import load_backend
from attendo.text.sentencepiece import load_sentencepiece

ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}

LAYER = {
    **{f"self_attention.{ours}": f"self_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "around_self.norm": "self_attn_layer_norm",
    **{f"cross_attention.{ours}": f"encoder_attn.{theirs}" for ours, theirs in ATTENTION.items()},
    "around_cross.norm": "encoder_attn_layer_norm",
    "feed_forward.inner": "fc1",
    "feed_forward.outer": "fc2",
    "around_feed_forward.norm": "final_layer_norm",
}

STACKS = {
    f"{stack}.layers.{{n}}.{ours}.{{p}}": f"model.{stack}.layers.{{n}}.{theirs}.{{p}}"
    for stack in ("encoder", "decoder")
    for ours, theirs in LAYER.items()
}

BIAS: Names = {"output.bias": Theirs("final_logits_bias", is_row=True, is_optional=True)}

EMBEDDINGS: dict[str, Names] = {
    "all": {
        "target_embedding.weight": Theirs(
            "model.shared.weight",
            copies=(
                "model.encoder.embed_tokens.weight",
                "model.decoder.embed_tokens.weight",
                "lm_head.weight",
            ),
        ),
    },
    "output": {
        "source_embedding.weight": "model.encoder.embed_tokens.weight",
        "target_embedding.weight": Theirs(
            "model.decoder.embed_tokens.weight", copies=("lm_head.weight",)
        ),
    },
    "none": {
        "source_embedding.weight": "model.encoder.embed_tokens.weight",
        "target_embedding.weight": "model.decoder.embed_tokens.weight",
        "output.weight": "lm_head.weight",
    },
}
"""By `model.tied`."""

END = "</s>"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


class Marian(Architecture):
    """Translation models."""

    name: ClassVar[str] = "MarianMTModel"
    model_type: ClassVar[str] = "marian"
    task: ClassVar[str] = "translation"
    numbers: ClassVar[Mapping[str, str]] = {
        "d_model": "d_model",
        "d_ff": "encoder_ffn_dim",
        "n_heads": "encoder_attention_heads",
        "encoder_layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "scale_embedding": "scale_embedding",
        "p_drop": "dropout",
        "p_drop_attention": "attention_dropout",
        "p_drop_inner": "activation_dropout",
    }
    fixed: ClassVar[Mapping[str, Any]] = {
        **PLAIN,
        "positions": "sinusoidal-halves",
        "norm_order": "post",
        "norm_epsilon": 1e-5,
        "embedding_norm": False,
    }
    needs: ClassVar[Mapping[str, Any]] = {
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "static_position_embeddings": True,
    }
    ignored: ClassVar[tuple[str, ...]] = POSITIONS

    def vocabulary(self, folder: Path, config: Json) -> Vocabulary:
        """Read source.spm and target.spm with vocab.json, or what `attendo export` writes."""
        source, target, shared = _read_backends(folder, config)
        ends = config.get("decoder_start_token_id"), config.get("eos_token_id")
        size = config.get("vocab_size")
        if shared is True:
            return Vocabulary(make_tokenizer(source, size, ends))
        # A source of a vocabulary of its own has an end, and no beginning.
        end = source.token_to_id(END)
        first = make_tokenizer(source, size, ends if shared else (end, end))
        second = make_tokenizer(target, config.get("decoder_vocab_size", size), ends)
        return Vocabulary(first, second, "unigram", shared)

    def settings(self, config: Json, vocabulary: Vocabulary) -> Json:
        """Return activation function and shared matrices."""
        for side in ("ffn_dim", "attention_heads"):
            if config.get(f"decoder_{side}") != config.get(f"encoder_{side}"):
                raise ConfigError(
                    f"config.json has decoder_{side} = {config.get(f'decoder_{side}')!r} and "
                    f"encoder_{side} = {config.get(f'encoder_{side}')!r}; expected the same"
                )
        tied = "output" if config.get("tie_word_embeddings", True) else "none"
        if config.get("share_encoder_decoder_embeddings", True):
            tied = "all"
        return {
            "feed_forward": our_activation(config.get("activation_function")),
            "tied": tied,
            "output_bias": True,
        }

    def max_length(self, config: Json) -> Any:
        """Return the number of positions."""
        return config.get("max_position_embeddings", 512)

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Compare the stored positions with the formula."""
        for table in (tensors[name] for name in POSITIONS if name in tensors):
            is_table = table.ndim == 2 and table.shape[1] % 2 == 0
            # Files in half precision have three digits.
            if not (is_table and torch.allclose(table.float(), _waves(table), atol=2e-3)):
                raise ConfigError("its positions are not sinusoidal, and cannot be imported")

    def names(self, model: TransformerConfig) -> Names:
        """Return the table of names for a model with these settings."""
        return {**EMBEDDINGS[model.tied], **STACKS, **BIAS}

    def equivalent(
        self, model: TransformerConfig, parameters: Parameters, longest: int
    ) -> tuple[TransformerConfig, Parameters]:
        """Return the same model with positions in Marian's order."""
        source, target = "source_embedding.weight", "target_embedding.weight"
        if source in parameters:
            # The id of the padding of targets must have an embedding on both sides.
            missing = max(0, len(parameters[target]) - len(parameters[source]))
            wider = functional.pad(parameters[source], (0, 0, 0, missing))
            parameters = {**parameters, source: wider}
        return with_halves(model, parameters)

    def config(self, bundle: Bundle, model: TransformerConfig) -> Json:
        """Return vocabularies, special tokens and the decoder, which is like the encoder."""
        task, special = bundle.task, bundle.task.target.specials
        sizes = [n_embeddings(model, one) for one in (task.source, task.target)]
        return {
            "vocab_size": max(sizes),
            "decoder_vocab_size": sizes[1],
            "max_position_embeddings": task.max_length,
            "decoder_ffn_dim": model.d_ff,
            "decoder_attention_heads": model.n_heads,
            "activation_function": their_activation(model.feed_forward),
            "share_encoder_decoder_embeddings": model.tied == "all",
            "tie_word_embeddings": model.tied != "none",
            "is_encoder_decoder": True,
            "pad_token_id": special.pad,
            "bos_token_id": None,
            "eos_token_id": special.eos,
            "forced_eos_token_id": special.eos,
            "decoder_start_token_id": special.bos,
        }

    def generation(self, bundle: Bundle) -> Json:
        """Return how translations are searched for."""
        special = bundle.task.target.specials
        return {
            "num_beams": bundle.recipe.decoding.beam,
            "max_length": bundle.task.max_length,
            "bad_words_ids": [[number] for number in sorted({special.pad, special.bos})],
            "pad_token_id": special.pad,
            "eos_token_id": special.eos,
            "forced_eos_token_id": special.eos,
            "decoder_start_token_id": special.bos,
        }

    def template(self, task: Any) -> Template:
        """Return how sources are framed."""
        pad, _, eos = task.source.tokens(task.source.specials)
        return Template(["$A", eos], None, {"pad_token": pad, "eos_token": eos})

    def ids(self, task: Any, text: str, target: str) -> tuple[list[int], list[int]]:
        """Encode a source, and what the decoder is given."""
        source = [*task.source.encode(text), task.source.specials.eos]
        return source, [task.target.specials.bos, *task.target.encode(target)]

    def outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of ours computes."""
        source, target = (pad_grid([row], 0) for row in ids)
        logits: Tensor = model.logits(model.decode(target, model.encode(source)))
        return logits

    def their_outputs(self, model: Any, ids: tuple[list[int], list[int]]) -> Tensor:
        """Return the logits that a model of `transformers` computes."""
        source, target = (torch.tensor([row]) for row in ids)
        logits: Tensor = model(input_ids=source, decoder_input_ids=target).logits
        return logits


def _waves(table: Tensor) -> Tensor:
    """Return Marian's positions, as many and as wide as those of a table."""
    zeros = torch.zeros(1, *table.shape)
    positions = torch.arange(zeros.shape[1])[None]
    return SinusoidalHalves(TransformerConfig()).embed(zeros, positions)[0]


def _read_backends(
    folder: Path, config: Json
) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer, bool | str]:
    """Read the tokenizers of both sides, and what they share, as in recipes."""
    if (folder / "source.spm").is_file():
        ids = target_ids = _read_ids(folder / "vocab.json")
        is_shared = config.get("share_encoder_decoder_embeddings", True)
        if not is_shared:
            target_ids = _read_ids(folder / "target_vocab.json")
        source = load_sentencepiece(folder / "source.spm", ids)
        target = load_sentencepiece(folder / "target.spm", target_ids)
        _add_language_codes(source, ids)
        return source, target, "ids" if is_shared else False
    source = load_backend(folder)
    if not (folder / TARGET_TOKENIZER).is_file():
        return source, source, True
    target = load_backend(folder / TARGET_TOKENIZER)
    return source, target, "ids" if source.get_vocab() == target.get_vocab() else False


def _read_ids(path: Path) -> dict[str, int]:
    """Read a vocabulary: {"token": id, ...}."""
    try:
        ids = read_json(path, MOST_BYTES)
    except FileNotFoundError:
        raise BundleError(f"{str(path)!r} does not exist; the folder is incomplete") from None
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error}") from None
    if not (isinstance(ids, dict) and all(isinstance(one, int) for one in ids.values())):
        raise BundleError(f"{str(path)!r}: expected a JSON object with the id of each token")
    return ids


def _add_language_codes(backend: tokenizers.Tokenizer, ids: Mapping[str, int]) -> None:
    """Keep the names of target languages, such as >>fra<<, in one token."""
    codes = [token for token in ids if token.startswith(">>") and token.endswith("<<")]
    backend.add_tokens([tokenizers.AddedToken(code, normalized=False) for code in codes])
