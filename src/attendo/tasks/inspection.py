"""What a task returns for inspection: one text as a model reads it, and all that it computes."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from torch import Tensor

from attendo.data.batches import Batch
from attendo.decoding import NOT_FINITE
from attendo.errors import BundleError, ConfigError, DataError
from attendo.models import Recording
from attendo.nn.grid import Grid
from attendo.specials import IGNORE
from attendo.text import iterate_sentences

LONGEST = 400
"""Most tokens of a text: a larger matrix could not be read."""


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A text, or a pair of texts, as the input of a model, alone in its grids."""

    inputs: Mapping[str, Grid]
    """What the model reads, by name; a decoder reads the tokens before the one to predict."""
    labels: Int[Tensor, " T"]
    """What it is to predict; IGNORE where there is nothing to predict."""
    source_tokens: list[str]
    """The tokens that an encoder reads; empty for a model without one."""
    target_tokens: list[str]
    """The tokens that a decoder predicts: row t of its attention is for predicting token t."""

    @property
    def source(self) -> Grid:
        """Input of the encoder of a pair."""
        return self.inputs["source"]

    @property
    def target(self) -> Grid:
        """Input of the decoder of a pair."""
        return self.inputs["target"]

    @property
    def batch(self) -> Batch:
        """The same, for the loss of a task."""
        n_labels = int((self.labels != IGNORE).sum())
        return Batch(self.inputs, self.labels[None], n_labels, (0,))

    def __repr__(self) -> str:
        """Name the tokens: the tensors say the same."""
        return (
            f"TokenizedText(source_tokens={self.source_tokens}, target_tokens={self.target_tokens})"
        )


class Picture(NamedTuple):
    """What a model reads that is no text: an image, or the spectrogram of a recording."""

    pixels: UInt8[np.ndarray, "..."]
    """(H, W), or (H, W, 3)."""
    rows: int
    columns: int
    """Positions from top to bottom, and from left to right."""
    n_before: int = 0
    """Positions before those of the picture: the class token."""


class Inspection(NamedTuple):
    """What a model computed for one text."""

    source: str
    """What an encoder reads; empty for a model without one."""
    target: str
    """What a decoder predicts, or the predicted label."""
    tokenized: TokenizedText
    recording: Recording
    """Its logits are those of the positions that have a label."""
    names: Callable[[Sequence[int]], list[str]]
    """Names the outputs of the model: tokens, or labels."""
    summary: str
    """The result for people, in one or a few lines."""
    picture: Picture | None = None
    """What an encoder reads, if it is no text."""


def check_length(what: str, n_tokens: int, longest: int, advice: str) -> None:
    """Refuse a text that is too long for a model, or to be inspected."""
    if n_tokens > longest:
        raise DataError(
            f"the {what} has {n_tokens:,} tokens, and this model can be inspected with up to "
            f"{longest}: {advice}"
        )


def first_sentence(text: str) -> str:
    """Return the first sentence of a text; it ends at the end of its line at the latest."""
    return next((one.text for one in iterate_sentences(text) if one.text), "")


def first_sentences(text: str, check: Callable[[str], None]) -> str:
    """Return as many sentences from the start of a text as `check` accepts, but at least one."""
    text = text.strip()
    sizes = (len(part) for one in iterate_sentences(text) for part in (one.text, one.gap))
    ends = list(accumulate(sizes))[::2]  # those of the sentences, without their gaps
    n_accepted = bisect_left(ends, 1, key=lambda end: not _accepts(check, text[:end]))
    return text[: ends[max(n_accepted - 1, 0)]] if ends else ""


def _accepts(check: Callable[[str], None], text: str) -> bool:
    try:
        check(text)
    except DataError:
        return False
    return True


def refuse_target(task: str, target: str | None) -> None:
    """Refuse a target where the model has none."""
    if target is not None:
        raise ConfigError(
            f"a target ({target!r:.40}) was given, but this run was trained for the task {task!r}, "
            "which has only one text; leave out --target"
        )


def check_finite(recording: Recording) -> None:
    """Refuse what a damaged model computes."""
    if not recording.logits.isfinite().all():
        raise BundleError(NOT_FINITE)
