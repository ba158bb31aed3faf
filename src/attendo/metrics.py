"""The quality of translations: BLEU and chrF by sacrebleu, with its signature.

sacrebleu is imported when something is measured, since translating does not need it.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from attendo.errors import DataError


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a test set; BLEU and chrF are between 0 and 100, higher is better.

    A notebook displays them as a table.

    >>> model = attendo.load("runs/demo")
    >>> scores = model.evaluate(["The dog sleeps."], ["Der Hund schläft."])
    >>> scores.sentences
    1
    """

    bleu: float
    """BLEU, case-sensitive."""
    bleu_interval: tuple[float, float] | None
    """95 % confidence interval by bootstrap resampling of the sentences."""
    bleu_lowercase: float
    """BLEU of the lowercased texts."""
    chrf: float
    """chrF, the F-score of character n-grams."""
    signature: str
    """sacrebleu's description of how BLEU was computed, needed to compare scores."""
    sentences: int
    """Number of sentences."""

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return to_html(describe_scores(self.to_dict()))


def describe_scores(scores: Mapping[str, Any]) -> dict[str, str]:
    """Return scores by name, as text for people."""
    low, high = scores["bleu_interval"] or (scores["bleu"], scores["bleu"])
    return {
        "BLEU": f"{scores['bleu']:.2f}  (95 % confidence: {low:.2f} to {high:.2f})",
        "chrF": f"{scores['chrf']:.2f}",
        "sentences": f"{scores['sentences']:,}",
        "signature": str(scores["signature"]),
    }


def to_html(values: Mapping[str, Any]) -> str:
    """Return named values as an HTML table, for notebooks."""
    rows = (
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
        for name, value in values.items()
    )
    return f"<table>{''.join(rows)}</table>"


def score(
    hypotheses: Sequence[str], references: Sequence[str], *, n_bootstrap: int = 1000
) -> Scores:
    """Score translations against one reference each.

    Raises:
        DataError: There is nothing to score.
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
    """Return BLEU alone, without a confidence interval."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(lowercase=lowercase)
    return float(metric.corpus_score(hypotheses, [references]).score)


def sentence_bleu(hypothesis: str, reference: str) -> float:
    """Return BLEU of one sentence: smoothed, and of n-grams no longer than the sentence."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(effective_order=True)
    return float(metric.sentence_score(hypothesis, [reference]).score)
