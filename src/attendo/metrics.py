"""How good translations are: BLEU and chrF by sacrebleu, with its signature.

sacrebleu is imported when something is measured, for those who translate do not need it.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from attendo.errors import DataError


@dataclass(frozen=True, slots=True)
class Scores:
    """Corpus scores; both metrics run from 0 to 100, higher is better."""

    bleu: float
    bleu_interval: tuple[float, float] | None
    """95 % confidence interval by bootstrap resampling of the sentences."""
    bleu_lowercase: float
    chrf: float
    signature: str
    """How BLEU was computed: without it the number means little."""
    sentences: int

    def to_dict(self) -> dict[str, Any]:
        """Give the scores as plain values."""
        return asdict(self)


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, n_bootstrap: int = 1000
) -> Scores:
    """Compare translations with one reference each.

    Raises:
        DataError: there is nothing to compare.
    """
    if not references:
        raise DataError("no sentences to score: give at least one pair")
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metric = BLEU()
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=max(1, n_bootstrap))
    half = result._ci if n_bootstrap > 1 else None
    return Scores(
        bleu=round(result.score, 2),
        bleu_interval=None
        if half is None
        else (round(result._mean - half, 2), round(result._mean + half, 2)),
        bleu_lowercase=round(bleu(hypotheses, references, lowercase=True), 2),
        chrf=round(CHRF().corpus_score(hypotheses, [references]).score, 2),
        signature=str(metric.get_signature()),
        sentences=len(references),
    )


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Compute BLEU alone, quickly."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=lowercase)
    return float(metric.corpus_score(hypotheses, [references]).score)
