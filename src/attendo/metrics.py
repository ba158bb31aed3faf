"""The quality of texts: BLEU and chrF by sacrebleu, with its signature, and word error rate.

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


@dataclass(frozen=True, slots=True)
class WordErrors:
    """How many words of transcripts are wrong; lower is better."""

    word_error_rate: float
    """Words that are replaced, left out or inserted, in percent of the words of the references."""
    correct: float
    """Transcripts without an error, in percent."""
    errors: int
    """Number of wrong words."""
    words: int
    """Number of words of the references."""
    recordings: int
    """Number of transcripts."""

    def to_dict(self) -> dict[str, Any]:
        """Return the scores by name."""
        return asdict(self)


def count_word_errors(hypotheses: Sequence[str], references: Sequence[str]) -> WordErrors:
    """Compare transcripts with one reference each; words are separated by white space.

    Raises:
        DataError: There is nothing to score.
    """
    pairs = [
        (one.split(), other.split()) for one, other in zip(hypotheses, references, strict=True)
    ]
    errors = [edit_distance(hypothesis, reference) for hypothesis, reference in pairs]
    n_words = sum(len(reference) for _, reference in pairs)
    if not n_words:
        raise DataError("no words to score: give at least one text that is not empty")
    return WordErrors(
        word_error_rate=round(100 * sum(errors) / n_words, 2),
        correct=round(100 * errors.count(0) / len(errors), 2),
        errors=sum(errors),
        words=n_words,
        recordings=len(pairs),
    )


def edit_distance(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Return how many words have to be replaced, left out or inserted (Levenshtein 1966)."""
    row = list(range(len(reference) + 1))
    for word in hypothesis:
        before, row[0] = row[0], row[0] + 1
        for place, expected in enumerate(reference, 1):
            replaced = before + (word != expected)
            before, row[place] = row[place], min(replaced, row[place] + 1, row[place - 1] + 1)
    return row[-1]
