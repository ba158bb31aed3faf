"""Record what a model computes for a sentence and its translation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attendo.engines import Translator
from attendo.engines.pytorch import check_text
from attendo.errors import BundleError, ConfigError, DataError
from attendo.look.heads import NAMES, Head, ablate, entropy, records_of
from attendo.models import Recording
from attendo.tasks import TokenizedPair

LONGEST = 400
"""Most tokens of a source: a larger matrix could not be read."""

MORE = 50
"""How many more tokens a translation may have."""


@dataclass(frozen=True, slots=True)
class RecordedPair:
    """The recording of a pair by a model, perhaps with some of its heads ablated."""

    source: str
    target: str
    ablated: tuple[Head, ...]
    pair: TokenizedPair
    recording: Recording
    weights: dict[str, list[Float[Tensor, "H T S"]]]
    """By kind and layer."""

    @property
    def target_inputs(self) -> list[str]:
        """Return the input of the decoder: column s of its self-attention is token s of these."""
        return ["<s>", *self.pair.target_tokens[:-1]]

    @property
    def log_probs(self) -> Float[Tensor, "T V"]:
        """Return the log-probabilities of the next token at each position."""
        return self.recording.logits[0].float().log_softmax(dim=-1)

    def _repr_html_(self) -> str | None:
        """Return an attention map for notebooks."""
        return self.recording._repr_html_()


def look(
    translator: Translator,
    source: str,
    target: str | None = None,
    ablated: Sequence[Head] = (),
) -> RecordedPair:
    """Record a source with a target, the model's own translation if none is given."""
    if not source.strip():
        raise DataError("the text is empty; give a sentence to inspect")
    translator = without(translator, ablated)
    check_length(translator, source, target)
    if target is None:
        target = translator.translate([source])[0]
    recording, pair = translator.record(source, target)
    if not recording.logits.isfinite().all():
        raise BundleError(
            "the model computes values that are not finite; restore it or train again"
        )
    weights = {
        kind: [record.weights[0].float().cpu() for record in records]
        for kind, records in records_of(recording).items()
    }
    return RecordedPair(source, target, tuple(ablated), pair, recording, weights)


def without(translator: Translator, heads: Sequence[Head]) -> Translator:
    """Return a translator whose model has some heads ablated."""
    if not heads:
        return translator
    bundle = translator.bundle
    return Translator(replace(bundle, model=ablate(bundle.model, heads)), translator.words)


def check_length(translator: Translator, source: str, target: str | None = None) -> None:
    """Raise an error if a sentence is too long to be inspected."""
    task = translator.bundle.task
    longest = min(LONGEST, task.max_length - 1)
    check_text(source)
    n_source = len(task.source.encode(source))
    if n_source > longest:
        raise DataError(
            f"the sentence has {n_source:,} tokens, and this model can be inspected with up to "
            f"{longest}: take a part of it"
        )
    if target is not None:
        check_text(target)
        n_target = len(task.target.encode(target))
        if n_target > longest + MORE:
            raise DataError(
                f"the translation has {n_target:,} tokens, and this model can be inspected with up "
                f"to {longest + MORE}: take a shorter one"
            )


def layers_of(recorded: RecordedPair, kind: str) -> list[Float[Tensor, "H T S"]]:
    """Return the attention weights of a kind; raise an error if the model has none."""
    if not recorded.weights[kind]:
        has = [name for name in NAMES if recorded.weights[name]]
        advice = f"use --what {has[0]}" if has else "write a page instead: --out look.html"
        raise ConfigError(f"the model has no {NAMES[kind]} that could be drawn; {advice}")
    return recorded.weights[kind]


def sharpest(layers: list[Float[Tensor, "H T S"]]) -> int:
    """Return the layer whose attention has the lowest entropy."""
    return min(range(len(layers)), key=lambda layer: entropy(layers[layer].mean(dim=0)))


class Candidate(NamedTuple):
    """A token that might have come next."""

    token: str
    log_prob: float

    @property
    def probability(self) -> float:
        """Return the probability at temperature 1."""
        return math.exp(self.log_prob)


def candidates(translator: Translator, recorded: RecordedPair, n: int) -> list[list[Candidate]]:
    """List the n most probable tokens at each position of the target."""
    best = recorded.log_probs.topk(min(n, recorded.log_probs.shape[1]), dim=-1)
    tokens = translator.bundle.task.target.tokens
    return [
        [Candidate(*pair) for pair in zip(tokens(ids), values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
