"""What was seen as JSON: for the page, and for other programs.

Weights travel as 16-bit fractions of 1 in base64: exact to 0.00001, and a quarter of the size that
they would have as text.
"""

from base64 import b64encode
from typing import Any
from zlib import compress

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.engines import Translator
from attendo.errors import DataError
from attendo.inspect import checks
from attendo.inspect.aggregates import mean_of_heads, rollout, rollout_across
from attendo.inspect.beams import beam_tree
from attendo.inspect.heads import KINDS, Head, characterise, records_of
from attendo.inspect.looking import Looked, candidates, layers_of, without

Json = dict[str, Any]

N_CANDIDATES = 8
N_BEAMS = 4

MOST_WEIGHTS = 150_000
"""If there are more, they are sent layer by layer, when somebody wants to see them."""


def looked_json(translator: Translator, looked: Looked) -> Json:
    """Tell all that a page shows at first."""
    reading, weights = looked.reading, looked.weights
    is_whole = _count(weights) <= MOST_WEIGHTS
    return {
        "source": looked.source,
        "target": looked.target,
        "silenced": [str(head) for head in looked.silenced],
        "source_tokens": reading.source_tokens,
        "target_tokens": reading.target_tokens,
        "target_inputs": looked.target_inputs,
        "encoder_layers": len(weights["encoder"]),
        "decoder_layers": len(weights["decoder"]),
        "n_heads": max((len(layer) for layers in weights.values() for layer in layers), default=0),
        "steps": _steps(translator, looked),
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
            "encoder": _norms(looked.recording.encoder.stream),
            "decoder": _norms(looked.recording.decoder.stream),
        },
    }


MOST_EXACT, COARSE = 300_000, 257
"""If a file has more weights, they are only exact to 1/255, so that it stays below 2 MB."""

MOST_CHECKED, MOST_CHECKED_IN_FILES = 128, 40
"""Tokens of a sentence up to which there are checks, which take seconds."""


def everything_json(translator: Translator, looked: Looked) -> Json:
    """Tell all that a page without a server can show."""
    told = {"model": "", **looked_json(translator, looked)}
    coarseness = COARSE if _count(looked.weights) > MOST_EXACT else 1
    told["maps"] = {
        kind: [small_map_json(layer, coarseness) for layer in layers]
        for kind, layers in looked.weights.items()
    }
    if len(looked.reading.source_tokens) <= MOST_CHECKED_IN_FILES:
        if looked.weights["cross"]:
            told["checks"] = checks_json(translator, looked, None, None)
        told["ablation"] = ablation_json(translator, looked)
        told["beams"] = beams_json(without(translator, looked.silenced), looked.source, N_BEAMS)
    return told


def map_json(weights: Float[Tensor, "H T S"]) -> Json:
    """Pack the weights of one layer."""
    return {"shape": list(weights.shape), "data": b64encode(_packed(weights, 1)).decode()}


def small_map_json(weights: Float[Tensor, "H T S"], coarseness: int) -> Json:
    """Pack them for a file: compressed, and if there are many, coarser."""
    data = b64encode(compress(_packed(weights, coarseness), 9)).decode()
    return {"shape": list(weights.shape), "data": data, "deflated": True}


def _packed(weights: Float[Tensor, "H T S"], coarseness: int) -> bytes:
    steps = (weights * (65535 // coarseness)).round().to(torch.int32) * coarseness
    return steps.numpy().astype("<u2").tobytes()


def layer_json(looked: Looked, kind: str, layer: int) -> Json:
    """Tell the weights of one layer."""
    return {"map": map_json(looked.weights[kind][layer])}


def vectors_json(looked: Looked, head: Head) -> Json:
    """Tell the queries, keys, values and scores of one head; a masked score is null."""
    record = records_of(looked.recording)[head.kind][head.layer]
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
    translator: Translator, looked: Looked, layer: int | None, head: int | None
) -> Json:
    """Compare attention across with what can be measured without it.

    Without a layer, the mean of all layers is compared; without a head, the mean of its heads.
    """
    _check_checkable(looked)
    model = without(translator, looked.silenced).bundle.model
    across = layers_of(looked, "cross")
    chosen = across if layer is None else [across[layer]]
    means = [mean_of_heads(one) if head is None else one[head] for one in chosen]
    weights = torch.stack(means).mean(dim=0)
    occluded = checks.occlusion(model, looked.reading)
    graded = checks.gradient_times_input(model, looked.reading)
    found = tuple(checks.agreement(weights, measured.abs()) for measured in (occluded, graded))
    return {
        "attention": _rounded(weights),
        "occlusion": _rounded(occluded),
        "gradient": _rounded(graded),
        "agreement": {"occlusion": found[0], "gradient": found[1]},
        "words": checks.in_words(*found),
    }


def _check_checkable(looked: Looked) -> None:
    n_tokens = max(len(looked.reading.source_tokens), len(looked.reading.target_tokens))
    if n_tokens > MOST_CHECKED:
        raise DataError(
            f"the sentence has {n_tokens} tokens, and only up to {MOST_CHECKED} are checked: "
            "take a part of it"
        )


def ablation_json(translator: Translator, looked: Looked) -> Json:
    """Tell how the loss changes when a head is silenced, for every head."""
    _check_checkable(looked)
    model = without(translator, looked.silenced).bundle.model
    loss, changes = checks.ablation(model, looked.reading)
    return {"loss": loss, "changes": changes}


def beams_json(translator: Translator, source: str, n_beams: int) -> Json:
    """Tell the tree of a search; parents come before their children."""
    nodes, best = beam_tree(translator, source, n_beams)
    numbers = {node.path: number for number, node in enumerate(nodes)}
    tokens = translator.bundle.task.target.pieces([node.path[-1] for node in nodes if node.path])
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


def _count(weights: dict[str, list[Tensor]]) -> int:
    return sum(layer.numel() for layers in weights.values() for layer in layers)


def _steps(translator: Translator, looked: Looked) -> list[Json]:
    labels = looked.reading.labels.tolist()
    said = looked.log_probs.exp()[range(len(labels)), labels].tolist()
    found = candidates(translator, looked, N_CANDIDATES)
    tokens = looked.reading.target_tokens
    return [
        {
            "token": token,
            "probability": round(probability, 6),
            "candidates": [
                {"token": one.token, "probability": round(one.probability, 6)} for one in best
            ],
        }
        for token, probability, best in zip(tokens, said, found, strict=True)
    ]


def _rollout(weights: dict[str, list[Tensor]]) -> Json | None:
    if not weights["encoder"]:
        return None  # recurrent and convolutional models attend across only
    across = rollout_across(weights["encoder"], weights["decoder"], weights["cross"])
    return {"encoder": map_json(rollout(weights["encoder"])[None]), "cross": map_json(across[None])}


def _norms(stream: list[Float[Tensor, "1 T D"]]) -> list[list[float]]:
    return [_rounded(layer[0].float().norm(dim=-1)) for layer in stream]


def _rounded(values: Tensor) -> Any:
    """Make lists of numbers with as many digits as anybody reads."""
    return torch.round(values.double().cpu(), decimals=5).tolist()
