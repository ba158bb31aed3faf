"""The last stations of the walk-through: one sentence in a small BERT and in a small GPT.

The numbers are those of `attendo.reference.halves`.
"""

from typing import Any, NamedTuple, cast

import numpy as np

from attendo.config import TransformerConfig
from attendo.engines import Engine
from attendo.engines.base import check_text
from attendo.look.paper import Array, bert_of, gpt_of
from attendo.look.walk import check_sentence, content_words, largest_weight, rounded, step_json
from attendo.reference import halves, paper

Json = dict[str, Any]

CERTAIN = 0.9
"""A token with a higher probability has no other candidates worth showing."""


class Bert(NamedTuple):
    """A small masked language model, and its parameters for NumPy."""

    engine: Engine
    weights: halves.BertWeights

    @classmethod
    def of(cls, engine: Engine) -> "Bert":
        """Convert the parameters of a masked language model."""
        return cls(engine, bert_of(engine.bundle.model))


class Gpt(NamedTuple):
    """A small language model, and its parameters for NumPy."""

    engine: Engine
    weights: halves.GptWeights

    @classmethod
    def of(cls, engine: Engine) -> "Gpt":
        """Convert the parameters of a language model."""
        return cls(engine, gpt_of(engine.bundle.model))


def walk_bert(bert: Bert, source: str, hidden: int | None = None) -> Json:
    """Hide each token of a sentence in turn and predict it; show the attention for one of them.

    Args:
        bert: The model.
        source: The sentence.
        hidden: Position of the token that is hidden while attention is shown, counted from 0; that
            of the last token, if it is larger. By default a content word is hidden that is
            predicted well, but not with certainty.
    """
    tokenizer, n_heads = bert.engine.bundle.task.tokenizer, _n_heads(bert.engine)
    ids, tokens = _read(bert.engine, source)
    is_mask = np.eye(len(ids), dtype=np.bool_)[1:-1]  # without <s> and </s>
    variants = np.where(is_mask, tokenizer.mask, ids)
    steps = [
        {
            **step_json(
                tokenizer.tokens,
                tokens[position],
                int(ids[position]),
                halves.bert(variant, bert.weights, n_heads)[position],
            ),
            "position": position,
        }
        for position, variant in enumerate(variants, start=1)
    ]
    chosen = _choose(steps, tokens) if hidden is None else min(hidden, len(steps) - 1)
    tokens[chosen + 1] = tokenizer.mask_name
    weights = _attention(variants[chosen], bert.weights, n_heads, None)
    query = np.arange(len(ids)) == chosen + 1
    mask = np.ones((len(ids), len(ids)), dtype=np.bool_)
    return {
        **_half_json(bert.engine, source, tokens, steps, mask, weights),
        "start": _start(weights, tokens, query[:, None] & ~query),
        "hidden": chosen,
    }


def walk_gpt(gpt: Gpt, source: str) -> Json:
    """Predict the token after each token of a sentence, with the attention of all positions."""
    tokenizer, n_heads = gpt.engine.bundle.task.tokenizer, _n_heads(gpt.engine)
    ids, tokens = _read(gpt.engine, source)
    read, labels = ids[:-1], ids[1:]  # </s> is predicted, but not read
    probabilities = halves.gpt(read, gpt.weights, n_heads)
    rows = zip(tokens[1:], labels.tolist(), probabilities, strict=True)
    steps = [
        {**step_json(tokenizer.tokens, *row), "position": position}
        for position, row in enumerate(rows)
    ]
    mask = paper.look_ahead_mask(len(read))
    weights = _attention(read, gpt.weights, n_heads, mask)
    earlier = np.tri(len(read), k=-1, dtype=np.bool_)
    return {
        **_half_json(gpt.engine, source, tokens[:-1], steps, mask, weights),
        "start": _start(weights, tokens[:-1], earlier),
        "hidden": None,
    }


def _read(engine: Engine, source: str) -> tuple[Array, list[str]]:
    """Return the ids and the tokens of a sentence between <s> and </s>."""
    check_text(source)
    tokenizer = engine.bundle.task.tokenizer
    ids = [tokenizer.specials.bos, *tokenizer.encode(source), tokenizer.specials.eos]
    check_sentence(source, len(ids) - 1)
    return np.array(ids), tokenizer.tokens(ids)


def _n_heads(engine: Engine) -> int:
    return cast(TransformerConfig, engine.bundle.recipe.model).n_heads


def _choose(steps: list[Json], tokens: list[str]) -> int:
    """Find the content word with the highest probability that leaves something to guess."""
    is_content = content_words(tokens)[1:-1]
    probabilities = np.array([step["probability"] for step in steps])
    return int(np.argmax(probabilities + is_content - (probabilities > CERTAIN)))


def _attention(
    ids: Array,
    weights: halves.BertWeights | halves.GptWeights,
    n_heads: int,
    mask: Array | None,
) -> Array:
    """Compute the attention weights of all layers and heads, (layers, H, T, T)."""
    x = paper.embed(ids, weights.embedding)
    x = x + paper.positional_encoding(*x.shape)
    found = []
    for layer in weights.layers:
        _, attention = paper.multi_head_attention(x, x, x, layer.self_attention, n_heads, mask)
        found.append(attention)
        x = paper.encoder_layer(x, layer, n_heads, mask)
    return np.stack(found)


def _start(weights: Array, tokens: list[str], allowed: Array) -> Json:
    """Choose layer, head and query: the largest allowed attention weight on a content word."""
    n_heads = weights.shape[1]
    best = largest_weight(np.concatenate(list(weights)), allowed & content_words(tokens))
    return {"layer": best["head"] // n_heads, "head": best["head"] % n_heads, "row": best["row"]}


def _half_json(
    engine: Engine, source: str, tokens: list[str], steps: list[Json], mask: Array, weights: Array
) -> Json:
    model = engine.bundle.model
    return {
        "source": source,
        "tokens": tokens,
        "steps": steps,
        "mask": rounded(mask),
        "weights": rounded(weights),
        "sizes": {
            "d_model": engine.bundle.recipe.model.d_model,
            "n_heads": weights.shape[1],
            "layers": len(weights),
            "vocabulary": engine.bundle.task.tokenizer.size,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
        },
    }
