"""Inspection as JSON: for the page, and for other programs.

Attention weights are sent as 16-bit fractions of 1 in base64: exact to 0.00001, and a quarter of
the size of text.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import Any
from zlib import compress

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.media.items import shown
from attendo.engines import Engine, Generator, TextTranslator
from attendo.errors import ConfigError, DataError
from attendo.look import checks
from attendo.look.about import missing_attention, model_json
from attendo.look.aggregates import mean_of_heads, rollout, rollout_across
from attendo.look.beams import beam_tree
from attendo.look.heads import KINDS, Head, all_heads, characterise, records_of
from attendo.look.overlay import picture_json
from attendo.look.record import Candidate, RecordedText, candidates, without
from attendo.text import Segment, divide
from attendo.text.streams import MAX_SENTENCE

Json = dict[str, Any]

N_CANDIDATES = 8
N_BEAMS = 4

MOST_WEIGHTS = 150_000
"""If there are more, they are sent layer by layer, on request."""

MOST_STATES = 40_000
"""Values of hidden states; more are not sent."""

TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
"""For which the page can show the probabilities of candidates."""


def translation_json(
    translator: TextTranslator,
    source: str,
    beam: int,
    done: Callable[[int], None] = lambda n: None,
) -> Json:
    """Translate a text by segments, and list the words that are not in the training data.

    The sources of the segments with their gaps are the text. `done` is called after every batch.
    """
    indent = source[: len(source) - len(source.lstrip())]
    at_once = translator.recipe.decoding.sentences
    segments = [Segment("", indent)] if indent else []
    segments += divide(source, at_once, MAX_SENTENCE)
    given = [segment.text for segment in segments]
    found = translator.translations(given, beam=beam, done=done)
    texts = [best[0].text for best in found]
    return {
        "translation": "".join(
            text + segment.gap for text, segment in zip(texts, segments, strict=True)
        ),
        "score": sum(best[0].score for best in found),
        "segments": [
            {"source": segment.text, "translation": text, "gap": segment.gap}
            for text, segment in zip(texts, segments, strict=True)
        ],
        "unknown": translator.unknown_words(source),
    }


def continuation_json(
    generator: Generator, text: str, n_tokens: int, seed: int | None, temperature: float
) -> Json:
    """Continue a text with the most probable tokens or, given a random seed, with a sample."""
    if seed is None:
        return {"continuation": generator.generate(text, tokens=n_tokens, strategy="greedy")}
    sampled = generator.generate(text, tokens=n_tokens, seed=seed, temperature=temperature)
    return {"continuation": sampled}


def recording_json(engine: Engine, recorded: RecordedText) -> Json:
    """Return what the page shows at first."""
    tokenized, weights = recorded.tokenized, recorded.weights
    recipe, model = engine.bundle.recipe, engine.bundle.model
    is_whole = _count(weights) <= MOST_WEIGHTS
    return {
        "task": engine.bundle.task.name,
        "mask": engine.bundle.task.mask,
        "source": shown(recorded.source) if recorded.picture else recorded.source,
        "picture": picture_json(recorded.picture),
        "target": recorded.target,
        "unknown": _unknown_words(engine, recorded.source or recorded.target),
        "ablated": [str(head) for head in recorded.ablated],
        "source_tokens": tokenized.source_tokens,
        "target_tokens": tokenized.target_tokens,
        "target_inputs": recorded.target_inputs,
        "encoder_layers": len(weights["encoder"]),
        "decoder_layers": len(weights["decoder"]),
        "n_heads": max((len(layer) for layers in weights.values() for layer in layers), default=0),
        "can_ablate": bool(all_heads(model)),
        "missing": missing_attention(recipe.model),
        "temperatures": TEMPERATURES,
        "steps": _steps(recorded),
        "maps": {
            kind: [map_json(layer) if is_whole else None for layer in weights[kind]]
            for kind in KINDS
        },
        "heads": {
            kind: [
                [characterise(head, kind)._asdict() for head in layer] for layer in weights[kind]
            ]
            for kind in KINDS
        },
        "rollout": _rollout(weights),
        "norms": {
            "encoder": _norms(recorded.recording.encoder.hidden_states),
            "decoder": _norms(recorded.recording.decoder.hidden_states),
        },
        "states": _states(recorded),
    }


MOST_EXACT, COARSE = 300_000, 257
"""If a file has more attention weights, they are exact to 1/255 only, so that it is below 2 MB."""

MOST_CHECKED, MOST_CHECKED_IN_FILES = 128, 40
"""Longest sentence in tokens for which the checks are made: they take seconds."""


def everything_json(engine: Engine, recorded: RecordedText, card: Json) -> Json:
    """Return everything that a page without a server can show."""
    content = {
        "model": "",
        "facts": model_json(engine, card),
        **recording_json(engine, recorded),
    }
    coarseness = COARSE if _count(recorded.weights) > MOST_EXACT else 1
    content["maps"] = {
        kind: [small_map_json(layer, coarseness) for layer in layers]
        for kind, layers in recorded.weights.items()
    }
    if len(recorded.tokenized.source_tokens or recorded.target_inputs) <= MOST_CHECKED_IN_FILES:
        if content["can_ablate"]:
            content["ablation"] = ablation_json(engine, recorded)
        if recorded.is_pair:
            content["checks"] = checks_json(engine, recorded, None, None)
            content["beams"] = beams_json(
                without(engine, recorded.ablated), recorded.source, N_BEAMS
            )
    return content


def map_json(weights: Float[Tensor, "H T S"]) -> Json:
    """Return the packed attention weights of one layer."""
    return {"shape": list(weights.shape), "data": b64encode(_packed(weights, 1)).decode()}


def small_map_json(weights: Float[Tensor, "H T S"], coarseness: int) -> Json:
    """Return the packed attention weights of one layer for a file: compressed, coarser if many."""
    data = b64encode(compress(_packed(weights, coarseness), 9)).decode()
    return {"shape": list(weights.shape), "data": data, "deflated": True}


def _packed(weights: Float[Tensor, "H T S"], coarseness: int) -> bytes:
    steps = (weights * (65535 // coarseness)).round().to(torch.int32) * coarseness
    return steps.numpy().astype("<u2").tobytes()


def layer_json(recorded: RecordedText, kind: str, layer: int) -> Json:
    """Return the attention weights of one layer."""
    return {"map": map_json(recorded.weights[kind][layer])}


def vectors_json(recorded: RecordedText, head: Head) -> Json:
    """Return the queries, keys, values and scores of one head; a masked score is null."""
    record = records_of(recorded.recording)[head.kind][head.layer]
    scores, weights = record.scores[0, head.head], record.weights[0, head.head]
    return {
        "queries": _rounded(record.queries[0, head.head]),
        "keys": _rounded(record.keys[0, head.head]),
        "values": _rounded(record.values[0, head.head]),
        "scores": [
            [score if weight else None for score, weight in zip(*rows, strict=True)]
            for rows in zip(_rounded(scores), weights.tolist(), strict=True)
        ],
    }


def checks_json(
    engine: Engine, recorded: RecordedText, layer: int | None, head: int | None
) -> Json:
    """Compare encoder-decoder attention with two measurements that do not use it.

    Without a layer, the mean of all layers is compared; without a head, the mean of its heads. A
    model without attention has the two measurements only.
    """
    if not recorded.is_pair:
        raise ConfigError(
            f"the effect of a source can be measured in translations only, and this model was "
            f"trained for the task {engine.bundle.task.name!r}"
        )
    _check_checkable(recorded)
    model = without(engine, recorded.ablated).bundle.model
    occluded = checks.occlusion(model, recorded.tokenized)
    graded = checks.gradient_times_input(model, recorded.tokenized)
    measured = {"occlusion": _rounded(occluded), "gradient": _rounded(graded)}
    if not recorded.weights["cross"]:
        return {**measured, "attention": None, "agreement": {}, "words": checks.WITHOUT_ATTENTION}
    weights = _cross_weights(recorded.weights["cross"], layer, head)
    found = tuple(checks.agreement(weights, measure.abs()) for measure in (occluded, graded))
    return {
        **measured,
        "attention": _rounded(weights),
        "agreement": {"occlusion": found[0], "gradient": found[1]},
        "words": checks.in_words(*found),
    }


def _cross_weights(
    layers: list[Float[Tensor, "H T S"]], layer: int | None, head: int | None
) -> Float[Tensor, "T S"]:
    chosen = layers if layer is None else [layers[layer]]
    means = [mean_of_heads(one) if head is None else one[head] for one in chosen]
    return torch.stack(means).mean(dim=0)


def _check_checkable(recorded: RecordedText) -> None:
    n_tokens = max(len(recorded.tokenized.source_tokens), len(recorded.tokenized.target_tokens))
    if n_tokens > MOST_CHECKED:
        raise DataError(
            f"the sentence has {n_tokens} tokens, and up to {MOST_CHECKED} can be checked: "
            "take a part of it"
        )


def ablation_json(engine: Engine, recorded: RecordedText) -> Json:
    """Return how the loss changes when a head is ablated, for every head."""
    _check_checkable(recorded)
    bundle = without(engine, recorded.ablated).bundle
    loss, changes = checks.ablation(bundle.task, bundle.model, recorded.tokenized)
    return {"loss": loss, "changes": changes}


def beams_json(engine: Engine, source: str, n_beams: int) -> Json:
    """Return the tree of a translator's beam search; parents come before their children."""
    nodes, best = beam_tree(engine, source, n_beams)
    numbers = {node.path: number for number, node in enumerate(nodes)}
    tokens = engine.bundle.task.target.tokens([node.path[-1] for node in nodes if node.path])
    return {
        "nodes": [
            {
                "id": number,
                "parent": numbers[node.path[:-1]] if node.path else None,
                "token": token,
                "score": node.score,
                "step": len(node.path),
                "state": node.state,
            }
            for number, (node, token) in enumerate(zip(nodes, ["<s>", *tokens], strict=True))
        ],
        "best": [numbers[best[:length]] for length in range(len(best) + 1)],
    }


def _unknown_words(engine: Engine, text: str) -> list[str]:
    """List the words that the training data did not contain; a hidden word is no word."""
    if engine.bundle.task.reads_files:
        return []
    mask = engine.bundle.task.mask
    return engine.unknown_words(text.replace(mask, " ") if mask else text)


def _count(weights: dict[str, list[Tensor]]) -> int:
    return sum(layer.numel() for layers in weights.values() for layer in layers)


def _steps(recorded: RecordedText) -> list[Json]:
    """List the predicted tokens, or the label, with position and the best candidates beside them.

    At temperature T the probability of a token is exp(log_prob / T - normalizer); a step has the
    normalizer of each of the `TEMPERATURES`, since the candidates alone do not determine it.
    """
    labels = recorded.labels.tolist()
    written = recorded.log_probs[range(len(labels)), labels].tolist()
    found = candidates(recorded, N_CANDIDATES)
    tempered = torch.stack([recorded.log_probs / by for by in TEMPERATURES])
    normalizers = _rounded(tempered.logsumexp(dim=-1).T)
    steps = zip(
        recorded.positions, recorded.names(labels), written, found, normalizers, strict=True
    )
    return [
        {
            **_candidate_json(Candidate(token, log_prob)),
            "position": position,
            "normalizers": of_step,
            "candidates": [_candidate_json(one) for one in best],
        }
        for position, token, log_prob, best, of_step in steps
    ]


def _candidate_json(one: Candidate) -> Json:
    probability, log_prob = round(one.probability, 6), round(one.log_prob, 5)
    return {"token": one.token, "probability": probability, "log_prob": log_prob}


def _rollout(weights: dict[str, list[Tensor]]) -> Json | None:
    found = {}
    if weights["encoder"]:  # recurrent and convolutional models have no self-attention
        found["encoder"] = rollout(weights["encoder"])
    if weights["encoder"] and weights["cross"]:
        found["cross"] = rollout_across(weights["encoder"], weights["decoder"], weights["cross"])
    if weights["decoder"] and not weights["cross"]:
        found["decoder"] = rollout(weights["decoder"])
    return {kind: map_json(mixed[None]) for kind, mixed in found.items()} or None


def _states(recorded: RecordedText) -> Json | None:
    """Return the hidden states of the last layers, for models that have nothing else to show."""
    stacks = {"encoder": recorded.recording.encoder, "decoder": recorded.recording.decoder}
    last = {
        name: stack.hidden_states[-1][0].float()
        for name, stack in stacks.items()
        if stack.hidden_states
    }
    is_small = sum(states.numel() for states in last.values()) <= MOST_STATES
    if any(recorded.weights.values()) or not is_small:
        return None
    return {name: _rounded(states, 3) for name, states in last.items()}


def _norms(hidden_states: list[Float[Tensor, "1 T D"]]) -> list[list[float]]:
    return [_rounded(layer[0].float().norm(dim=-1)) for layer in hidden_states]


def _rounded(values: Tensor, decimals: int = 5) -> Any:
    return torch.round(values.double().cpu(), decimals=decimals).tolist()
