"""The walk-through: all numbers of one sentence in a small model, and the code of each step.

The code is that of `attendo.reference`, and the numbers are what its functions return. Values
inside a function, such as queries and scores, are computed by the same expressions once more; a
test holds that these lead to what the function returns.
"""

import ast
import inspect
from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import Any, NamedTuple, cast

import numpy as np

from attendo.config import TransformerConfig
from attendo.engines import Translator
from attendo.errors import DataError
from attendo.look.paper import Array, transformer_of
from attendo.models import Transformer
from attendo.reference import halves, paper
from attendo.tasks import TokenizedText

Json = dict[str, Any]

LONGEST = 24
"""Most tokens of a sentence, </s> included, since each station shows all of them; a translation may
have twice as many."""

N_POSITIONS = 50
"""Positions for which the positional encoding is shown."""

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
    halves.bert,
    halves.head,
    halves.gpt,
)
"""Functions that are shown at the stations."""

FUNCTION_WORDS = {
    "a", "an", "the", "this", "that", "these", "those", "he", "she", "it", "they", "him", "her",
    "them", "who", "whom", "which", "and", "or", "but", "because", "if", "when", "to", "of", "in",
    "on", "at", "for", "with", "from", "by", "not", "too", "is", "are", "was", "were", "be",
    "been", "do", "does", "did", "has", "have", "had", "will", "would", "can", "could", "must",
    "may", "might", "should",
}  # fmt: skip
"""English words that carry grammar more than content; the model reads English."""


class Walker(NamedTuple):
    """A small model built as in the paper, and its parameters for NumPy."""

    translator: Translator
    weights: paper.TransformerWeights
    config: TransformerConfig

    @classmethod
    def of(cls, translator: Translator) -> "Walker":
        """Convert the parameters of a translator."""
        model = cast(Transformer, translator.bundle.model)
        config = cast(TransformerConfig, translator.bundle.recipe.model)
        return cls(translator, transformer_of(model), config)

    @property
    def n_heads(self) -> int:
        """Return the number of heads, the paper's h."""
        return self.config.n_heads


def walk(walker: Walker, source: str, target: str | None = None) -> Json:
    """Compute the numbers of every station."""
    pair = _read(walker, source, target)
    source_ids, target_ids = pair.source.ids[0].numpy(), pair.target.ids[0].numpy()
    encoder = _encoder(walker, source_ids)
    decoder = _decoder(walker, target_ids, encoder["memory"])
    config = walker.config
    steps = _steps(walker, pair, decoder["stack"][-1])
    stations = {
        "encoder": {name: rounded(value) for name, value in encoder.items()},
        "decoder": {name: rounded(value) for name, value in decoder.items()},
    }
    return {
        "source": source,
        "target": walker.translator.bundle.task.target.decode(pair.labels[:-1].tolist()),
        "source_tokens": pair.source_tokens,
        "source_ids": source_ids.tolist(),
        "target_tokens": pair.target_tokens,
        "target_inputs": ["<s>", *pair.target_tokens[:-1]],
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
        "position_table": rounded(paper.positional_encoding(N_POSITIONS, config.d_model)),
        **stations,
        "start": {**_start(pair, encoder, decoder), "output": _least_probable(steps)},
        "steps": steps,
    }


def _read(walker: Walker, source: str, target: str | None) -> TokenizedText:
    translator = walker.translator
    check_sentence(source, len(translator.bundle.task.source.encode(source)) + 1)
    if target is None:
        target = translator.translate([source], strategy="greedy")[0]
    pair = translator.task.tokenize_pair(source, target, translator.device)
    if len(pair.target_tokens) > 2 * LONGEST:
        raise DataError(
            f"the translation has {len(pair.target_tokens)} tokens, at most {2 * LONGEST} can be"
            " shown: enter a shorter one"
        )
    return pair


def check_sentence(source: str, n_tokens: int) -> None:
    """Refuse a sentence that has no words, or too many to be shown."""
    if not source.strip():
        raise DataError("the sentence is empty: enter at least one word")
    if n_tokens > LONGEST:
        raise DataError(
            f"the sentence has {n_tokens} tokens, at most {LONGEST} can be shown: enter a shorter"
            " one"
        )


def _encoder(walker: Walker, ids: Array) -> dict[str, Array]:
    """Compute the encoder: every step of its first layer, and what leaves each layer."""
    weights, first = walker.weights, walker.weights.encoder[0]
    embedded = paper.embed(ids, weights.source_embedding)
    positions = paper.positional_encoding(*embedded.shape)
    entered = embedded + positions
    attention = _attention(entered, entered, first.self_attention, walker.n_heads, None)
    total = entered + attention["projected"]
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
        **attention,
        "sum": total,
        "normed": normed,
        "hidden": hidden,
        "fed": fed,
        "left": left,
        "stack": np.stack(stack),
        "memory": stack[-1],
    }


def _decoder(walker: Walker, ids: Array, memory: Array) -> dict[str, Array]:
    """Compute the decoder: both attentions of its first layer, and what leaves each layer."""
    weights, first = walker.weights, walker.weights.decoder[0]
    entered = paper.embed(ids, weights.target_embedding)
    entered = entered + paper.positional_encoding(*entered.shape)
    mask = paper.look_ahead_mask(len(entered))
    masked = _attention(entered, entered, first.self_attention, walker.n_heads, mask)
    normed = paper.add_and_norm(entered, masked["projected"], first.self_attention_norm)
    cross = _attention(normed, memory, first.encoder_decoder_attention, walker.n_heads, None)
    stack = [entered]
    for layer in weights.decoder:
        stack.append(paper.decoder_layer(stack[-1], memory, layer, walker.n_heads))
    return {
        "entered": entered,
        "mask": mask,
        "scores": masked["scores"],
        "weights": masked["weights"],
        "weights_without_mask": paper.softmax(masked["scores"]),
        "cross_scores": cross["scores"],
        "cross_weights": cross["weights"],
        "stack": np.stack(stack),
    }


def _attention(
    x: Array, memory: Array, weights: paper.AttentionWeights, n_heads: int, mask: Array | None
) -> dict[str, Array]:
    """Apply `paper.multi_head_attention`, and compute the values inside it once more."""
    projected, attention = paper.multi_head_attention(x, memory, memory, weights, n_heads, mask)
    queries = paper.split_heads(x @ weights.w_q + weights.b_q, n_heads)
    keys = paper.split_heads(memory @ weights.w_k + weights.b_k, n_heads)
    values = paper.split_heads(memory @ weights.w_v + weights.b_v, n_heads)
    products = queries @ keys.swapaxes(-1, -2)
    heads, _ = paper.scaled_dot_product_attention(queries, keys, values, mask)
    return {
        "queries": queries,
        "keys": keys,
        "values": values,
        "products": products,
        "scores": products / np.sqrt(queries.shape[-1]),
        "weights_without_scaling": paper.masked_softmax(products, mask),
        "weights": attention,
        "heads": heads,
        "joined": paper.concatenate_heads(heads),
        "projected": projected,
    }


def _start(pair: TokenizedText, encoder: dict[str, Array], decoder: dict[str, Array]) -> Json:
    """Choose the head and the query that each attention is shown with at first.

    The largest attention weight decides: in the encoder among those between two different content
    words; in the decoder among those from a word to a later one, which the mask removes; in
    cross-attention among those from a step that reads and predicts a word to a content word.
    """
    source, target = pair.source_tokens, ["<s>", *pair.target_tokens[:-1]]
    content = content_words(source)
    words = np.array([_is_word(token) for token in target])
    predicts_word = np.array([_is_word(token) for token in pair.target_tokens])
    differ = np.array([[query != key for key in source] for query in source])
    allowed = {
        "encoder": content[:, None] & content & differ,
        "decoder": words[:, None] & words & ~decoder["mask"],
        "cross": (words & predicts_word)[:, None] & content,
    }
    weights = {
        "encoder": encoder["weights"],
        "decoder": decoder["weights_without_mask"],
        "cross": decoder["cross_weights"],
    }
    return {name: largest_weight(weights[name], mask) for name, mask in allowed.items()}


def _least_probable(steps: list[Json]) -> Json:
    return {"head": 0, "row": int(np.argmin([step["probability"] for step in steps]))}


def _is_word(token: str) -> bool:
    return token.lstrip("▁").isalpha()


def content_words(tokens: list[str]) -> Array:
    """Return which tokens are whole words, but not function words."""
    following = [*tokens[1:], ""]
    return np.array(
        [
            token.startswith("▁")
            and token[1:].isalpha()
            and not after[:1].isalpha()
            and token[1:].lower() not in FUNCTION_WORDS
            for token, after in zip(tokens, following, strict=True)
        ]
    )


def largest_weight(weights: Array, allowed: Array) -> Json:
    """Find head and row of the largest allowed weight of (H, T, S); 0 and 0 if none is allowed."""
    best = np.where(allowed, weights, -1.0).argmax()
    head, row, _ = np.unravel_index(best, weights.shape)
    return {"head": int(head), "row": int(row)}


def _steps(walker: Walker, pair: TokenizedText, hidden: Array) -> list[Json]:
    probabilities = paper.softmax(paper.output_projection(hidden, walker.weights.w_output))
    tokens = walker.translator.bundle.task.target.tokens
    return [
        step_json(tokens, token, label, row)
        for token, label, row in zip(
            pair.target_tokens, pair.labels.tolist(), probabilities, strict=True
        )
    ]


def step_json(
    tokens: Callable[[Sequence[int]], list[str]], token: str, label: int, probabilities: Array
) -> Json:
    """Return the probability of a token, and the most probable tokens beside it."""
    best = np.argsort(-probabilities)[:N_CANDIDATES]
    found = zip(tokens(best.tolist()), probabilities[best].tolist(), strict=True)
    candidates = [{"token": name, "probability": round(value, 6)} for name, value in found]
    probability = round(float(probabilities[label]), 6)
    return {"token": token, "probability": probability, "candidates": candidates}


def compare_order(walker: Walker, first: str, second: str, *, positions: bool) -> Json:
    """Encode two sentences with the same words; return how far apart equal tokens are.

    Each token is compared with the same token of the other sentence.
    """
    readings = [_read(walker, text, "") for text in (first, second)]
    vectors = [_encode(walker, pair, positions) for pair in readings]
    tokens = [pair.source_tokens for pair in readings]
    if sorted(tokens[0]) != sorted(tokens[1]):
        raise DataError(
            f"{first!r} and {second!r} have different words: enter the same words in another order"
        )
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


def _encode(walker: Walker, pair: TokenizedText, positions: bool) -> Array:
    ids = pair.source.ids[0].numpy()
    if positions:
        return paper.encode(ids, walker.weights, walker.n_heads)
    x = paper.embed(ids, walker.weights.source_embedding)
    for layer in walker.weights.encoder:
        x = paper.encoder_layer(x, layer, walker.n_heads)
    return x


def code() -> dict[str, str]:
    """Return the code of the stations, without docstrings."""
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


def rounded(values: Array) -> Any:
    """Return nested lists of numbers with 5 decimals, or of booleans."""
    if values.dtype == np.bool_:
        return values.tolist()
    return np.round(values, 5).tolist()
