"""One look: a pair of sentences, read with everything kept."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attendo.engines import Translator
from attendo.errors import DataError
from attendo.inspect.heads import Head, records_of
from attendo.inspect.silence import silence
from attendo.models import Recording
from attendo.tasks import Reading

LONGEST = 400
"""Most tokens of either side: a matrix of more has nothing to show any more."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A pair that has been read by a model, perhaps without some of its heads."""

    source: str
    target: str
    silenced: tuple[Head, ...]
    reading: Reading
    recording: Recording
    weights: dict[str, list[Float[Tensor, "H T S"]]]
    """By kind and layer."""

    @property
    def target_inputs(self) -> list[str]:
        """What the decoder saw: column s of its self-attention is token s of these."""
        return ["<s>", *self.reading.target_tokens[:-1]]

    @property
    def log_probs(self) -> Float[Tensor, "T V"]:
        """What the model expected at each place, as log-probabilities."""
        return self.recording.logits[0].float().log_softmax(dim=-1)


def look(
    translator: Translator,
    source: str,
    target: str | None = None,
    silenced: Sequence[Head] = (),
) -> Looked:
    """Read a source and a target, the model's own translation if none is given."""
    if not source.strip():
        raise DataError("there is nothing to look at: the text is empty")
    translator = without(translator, silenced)
    _check_length(translator, source)
    if target is None:
        target = translator.translate([source])[0]
    recording, reading = translator.record(source, target)
    if len(reading.target_tokens) > LONGEST:
        raise DataError(f"the translation has more than {LONGEST} tokens; look at a shorter one")
    weights = {
        kind: [record.weights[0].float().cpu() for record in records]
        for kind, records in records_of(recording).items()
    }
    return Looked(source, target, tuple(silenced), reading, recording, weights)


def without(translator: Translator, heads: Sequence[Head]) -> Translator:
    """Give a translator whose model lacks some heads."""
    if not heads:
        return translator
    bundle = translator.bundle
    return Translator(replace(bundle, model=silence(bundle.model, heads)))


def _check_length(translator: Translator, source: str) -> None:
    n_tokens = len(translator.bundle.task.source.encode(source))
    if n_tokens > LONGEST:
        raise DataError(
            f"the text has {n_tokens:,} tokens; up to {LONGEST} can be looked at: take a part of it"
        )


class Candidate(NamedTuple):
    """A token that might have come next."""

    token: str
    probability: float


def candidates(translator: Translator, looked: Looked, n: int) -> list[list[Candidate]]:
    """List the n most probable tokens at each place of the target."""
    best = looked.log_probs.exp().topk(min(n, looked.log_probs.shape[1]), dim=-1)
    pieces = translator.bundle.task.target.pieces
    return [
        [Candidate(*pair) for pair in zip(pieces(ids), values, strict=True)]
        for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
