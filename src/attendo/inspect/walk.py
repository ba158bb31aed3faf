"""The walk-through: one sentence through a small model, with all numbers, by the paper's own code.

Everything is computed by `attendo.reference`, function by function, so that what is shown beside
a number is the code that made it.
"""

import ast
import inspect
from textwrap import dedent
from typing import Any, NamedTuple, cast

import numpy as np

from attendo.config import TransformerConfig
from attendo.engines import Translator
from attendo.errors import DataError
from attendo.inspect.papers import Array, transformer_of
from attendo.models import Transformer
from attendo.reference import paper
from attendo.tasks import Reading

Json = dict[str, Any]

LONGEST = 24
"""Most tokens of a sentence: each station shows all of them. A translation may have twice that."""

N_POSITIONS = 50
"""Positions in the picture of the positional encoding."""

N_CANDIDATES = 8

CODE = (
    paper.embed,
    paper.positional_encoding,
    paper.multi_head_attention,
    paper.split_heads,
    paper.scaled_dot_product_attention,
    paper.look_ahead_mask,
    paper.masked_softmax,
    paper.softmax,
    paper.concatenate_heads,
    paper.add_and_norm,
    paper.layer_norm,
    paper.feed_forward,
    paper.encoder_layer,
    paper.decoder_layer,
    paper.encode,
    paper.decode,
    paper.output_projection,
    paper.transformer,
)
"""What does the work at the stations."""


class Walker(NamedTuple):
    """A small model built as the paper says, and its weights for NumPy."""

    translator: Translator
    weights: paper.TransformerWeights
    config: TransformerConfig

    @classmethod
    def of(cls, translator: Translator) -> "Walker":
        """Take a translator along."""
        model = cast(Transformer, translator.bundle.model)
        config = cast(TransformerConfig, translator.bundle.recipe.model)
        return cls(translator, transformer_of(model), config)

    @property
    def n_heads(self) -> int:
        """As the paper calls it, h."""
        return self.config.n_heads


def walk(walker: Walker, source: str, target: str | None = None) -> Json:
    """Compute what there is to see at every station."""
    reading = _read(walker, source, target)
    source_ids, target_ids = reading.source.ids[0].numpy(), reading.target.ids[0].numpy()
    encoder = _encoder(walker, source_ids)
    decoder = _decoder(walker, target_ids, encoder["memory"])
    config = walker.config
    stations = {
        "encoder": {name: _rounded(value) for name, value in encoder.items()},
        "decoder": {name: _rounded(value) for name, value in decoder.items()},
    }
    return {
        "source": source,
        "target": walker.translator.bundle.task.target.decode(reading.labels[:-1].tolist()),
        "source_tokens": reading.source_tokens,
        "source_ids": source_ids.tolist(),
        "target_tokens": reading.target_tokens,
        "target_inputs": ["<s>", *reading.target_tokens[:-1]],
        "target_ids": target_ids.tolist(),
        "sizes": {
            "d_model": config.d_model,
            "d_k": config.d_model // config.n_heads,
            "d_ff": config.d_ff,
            "n_heads": config.n_heads,
            "vocabulary": len(walker.weights.source_embedding),
            "encoder_layers": config.encoder_layers,
            "decoder_layers": config.decoder_layers,
        },
        "position_table": _rounded(paper.positional_encoding(N_POSITIONS, config.d_model)),
        **stations,
        "steps": _steps(walker, reading, decoder["stack"][-1]),
    }


def _read(walker: Walker, source: str, target: str | None) -> Reading:
    if not source.strip():
        raise DataError("there is nothing to walk with: the text is empty")
    translator = walker.translator
    if len(translator.bundle.task.source.encode(source)) >= LONGEST:
        raise DataError(f"the sentence is too long to walk with: it has {LONGEST} tokens or more")
    if target is None:
        target = translator.translate([source], strategy="greedy")[0]
    reading = translator.bundle.task.read(source, target, translator.device)
    if len(reading.target_tokens) > 2 * LONGEST:
        raise DataError("the translation is too long to walk with; give a shorter one")
    return reading


def _encoder(walker: Walker, ids: Array) -> dict[str, Array]:
    """Walk through the encoder; its first layer in slow motion."""
    weights, first = walker.weights, walker.weights.encoder[0]
    embedded = paper.embed(ids, weights.source_embedding)
    positions = paper.positional_encoding(*embedded.shape)
    entered = embedded + positions
    seen = _attention(entered, entered, first.self_attention, walker.n_heads, None)
    total = entered + seen["projected"]
    normed = paper.layer_norm(total, first.self_attention_norm)
    hidden = np.maximum(0.0, normed @ first.feed_forward.w_1 + first.feed_forward.b_1)
    fed = paper.feed_forward(normed, first.feed_forward)
    left = paper.add_and_norm(normed, fed, first.feed_forward_norm)
    stack = [entered]
    for layer in weights.encoder:
        stack.append(paper.encoder_layer(stack[-1], layer, walker.n_heads))
    return {
        "embedded": embedded,
        "positions": positions,
        "entered": entered,
        **seen,
        "sum": total,
        "normed": normed,
        "hidden": hidden,
        "fed": fed,
        "left": left,
        "stack": np.stack(stack),
        "memory": stack[-1],
    }


def _decoder(walker: Walker, ids: Array, memory: Array) -> dict[str, Array]:
    """Walk through the decoder: masked self-attention and attention across of the first layer."""
    weights, first = walker.weights, walker.weights.decoder[0]
    entered = paper.embed(ids, weights.target_embedding)
    entered = entered + paper.positional_encoding(*entered.shape)
    mask = paper.look_ahead_mask(len(entered))
    back = _attention(entered, entered, first.self_attention, walker.n_heads, mask)
    inside = paper.add_and_norm(entered, back["projected"], first.self_attention_norm)
    attention = first.encoder_decoder_attention
    across = _attention(inside, memory, attention, walker.n_heads, None)
    stack = [entered]
    for layer in weights.decoder:
        stack.append(paper.decoder_layer(stack[-1], memory, layer, walker.n_heads))
    return {
        "entered": entered,
        "mask": mask,
        "scores": back["scores"],
        "weights": back["weights"],
        "weights_without_mask": paper.softmax(back["scores"]),
        "cross_scores": across["scores"],
        "cross_weights": across["weights"],
        "stack": np.stack(stack),
    }


def _attention(
    x: Array, memory: Array, weights: paper.AttentionWeights, n_heads: int, mask: Array | None
) -> dict[str, Array]:
    """Do what `paper.multi_head_attention` does, and keep what is on the way."""
    queries = paper.split_heads(x @ weights.w_q + weights.b_q, n_heads)
    keys = paper.split_heads(memory @ weights.w_k + weights.b_k, n_heads)
    values = paper.split_heads(memory @ weights.w_v + weights.b_v, n_heads)
    products = queries @ keys.swapaxes(-1, -2)
    heads, shares = paper.scaled_dot_product_attention(queries, keys, values, mask)
    joined = paper.concatenate_heads(heads)
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "products": products,
        "scores": products / np.sqrt(queries.shape[-1]),
        "weights_without_scaling": paper.masked_softmax(products, mask),
        "weights": shares,
        "heads": heads,
        "joined": joined,
        "projected": joined @ weights.w_o + weights.b_o,
    }


def _steps(walker: Walker, reading: Reading, hidden: Array) -> list[Json]:
    probabilities = paper.softmax(paper.output_projection(hidden, walker.weights.w_output))
    pieces = walker.translator.bundle.task.target.pieces
    steps = []
    for token, label, row in zip(
        reading.target_tokens, reading.labels.tolist(), probabilities, strict=True
    ):
        best = np.argsort(-row)[:N_CANDIDATES]
        found = zip(pieces(best.tolist()), row[best].tolist(), strict=True)
        candidates = [{"token": name, "probability": round(value, 6)} for name, value in found]
        steps.append(
            {"token": token, "probability": round(float(row[label]), 6), "candidates": candidates}
        )
    return steps


def compare_order(walker: Walker, first: str, second: str, *, positions: bool) -> Json:
    """Encode two sentences with the same words, and see whether a word can tell them apart.

    Each token is compared with the same token of the other sentence.
    """
    readings = [_read(walker, text, "") for text in (first, second)]
    vectors = [_encode(walker, reading, positions) for reading in readings]
    tokens = [reading.source_tokens for reading in readings]
    if sorted(tokens[0]) != sorted(tokens[1]):
        raise DataError("the two sentences must have the same words, in another order")
    pairs: list[Json] = []
    taken: set[int] = set()
    for here, token in enumerate(tokens[0]):
        there = next(
            place for place, other in enumerate(tokens[1]) if other == token and place not in taken
        )
        taken.add(there)
        distance = float(np.linalg.norm(vectors[0][here] - vectors[1][there]))
        pairs.append({"token": token, "here": here, "there": there, "distance": distance})
    return {"tokens": tokens, "pairs": pairs, "largest": max(pair["distance"] for pair in pairs)}


def _encode(walker: Walker, reading: Reading, positions: bool) -> Array:
    ids = reading.source.ids[0].numpy()
    if positions:
        return paper.encode(ids, walker.weights, walker.n_heads)
    x = paper.embed(ids, walker.weights.source_embedding)
    for layer in walker.weights.encoder:
        x = paper.encoder_layer(x, layer, walker.n_heads)
    return x


def code() -> dict[str, str]:
    """Give the code of the stations, without the explanations in it."""
    return {function.__name__: _without_docstring(inspect.getsource(function)) for function in CODE}


def _without_docstring(source: str) -> str:
    (function,) = ast.parse(dedent(source)).body
    assert isinstance(function, ast.FunctionDef)
    lines = source.splitlines()
    explanation = function.body[0]
    if ast.get_docstring(function) is not None:
        assert explanation.end_lineno is not None
        del lines[explanation.lineno - 1 : explanation.end_lineno]
    return "\n".join(lines)


def _rounded(values: Array) -> Any:
    if values.dtype == np.bool_:
        return values.tolist()
    return np.round(values, 5).tolist()
