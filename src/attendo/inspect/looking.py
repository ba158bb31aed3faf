"""One look: a pair of sentences, read with everything kept."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from attendo.engines import Translator
from attendo.engines.pytorch import check_text
from attendo.errors import ConfigError, DataError
from attendo.inspect.heads import NAMES, Head, entropy, records_of
from attendo.inspect.silence import silence
from attendo.models import Recording
from attendo.tasks import Reading

LONGEST = 400
"""Most tokens of a source: a matrix of more has nothing to show any more."""

MORE = 50
"""How many more tokens a translation may have."""


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
    check_length(translator, source, target)
    if target is None:
        target = translator.translate([source])[0]
    recording, reading = translator.record(source, target)
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


def check_length(translator: Translator, source: str, target: str | None = None) -> None:
    """Refuse what the model cannot read at once: longer texts are translated in pieces."""
    task = translator.bundle.task
    longest = min(LONGEST, task.max_length - 1)
    check_text(source)
    n_source = len(task.source.encode(source))
    if n_source > longest:
        raise DataError(
            f"the text has {n_source:,} tokens, and up to {longest} can be looked at with this "
            "model: take a part of it"
        )
    if target is not None:
        check_text(target)
        n_target = len(task.target.encode(target))
        if n_target > longest + MORE:
            raise DataError(
                f"the translation has {n_target:,} tokens, and up to {longest + MORE} can be "
                "looked at with this model: take a shorter one"
            )


def layers_of(looked: Looked, kind: str) -> list[Float[Tensor, "H T S"]]:
    """Give the weights of a kind of attention, if the model has it."""
    if not looked.weights[kind]:
        raise ConfigError(f"this model has no {NAMES[kind]}")
    return looked.weights[kind]


def sharpest(layers: list[Float[Tensor, "H T S"]]) -> int:
    """Find the layer whose tokens look at the fewest places."""
    return min(range(len(layers)), key=lambda layer: entropy(layers[layer].mean(dim=0)))


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
