"""Translations that tell systems apart, with the words marked that are not the reference's."""

from difflib import SequenceMatcher

from attendo.compare.findings import Findings
from attendo.compare.report.document import Example, Word

MOST = 6
"""Sentences that are shown."""


def choose_examples(findings: Findings) -> list[Example]:
    """Choose the sentences on which systems differ most; a third of them not won by the best."""
    from sacrebleu.metrics.chrf import CHRF

    metric, systems = CHRF(), findings.systems
    best = systems[0]
    won: list[tuple[float, int]] = []
    lost: list[tuple[float, int]] = []
    for number, reference in enumerate(best.references):
        scores = [
            metric.sentence_score(system.translations[number], [reference]).score
            for system in systems
        ]
        spread = max(scores) - min(scores)
        if spread > 0:
            (won if scores[0] == max(scores) else lost).append((-spread, number))
    few = sorted(lost)[: MOST // 3]
    chosen = [*sorted(won)[: MOST - len(few)], *few]
    return [_example(findings, number) for _, number in chosen]


def _example(findings: Findings, number: int) -> Example:
    reference = findings.systems[0].references[number]
    return Example(
        findings.systems[0].sources[number],
        reference,
        [
            (system.name, mark(system.translations[number], reference))
            for system in findings.systems
        ],
    )


def mark(translation: str, reference: str) -> list[Word]:
    """Mark the words of a translation that the reference does not have in this order."""
    words, right = translation.split(), reference.split()
    is_right = [False] * len(words)
    for block in SequenceMatcher(None, words, right, autojunk=False).get_matching_blocks():
        for place in range(block.a, block.a + block.size):
            is_right[place] = True
    return [Word(word, known) for word, known in zip(words, is_right, strict=True)]
