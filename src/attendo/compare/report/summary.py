"""The report's first lines: what the numbers say, in sentences, and nothing that they do not."""

from collections.abc import Callable, Iterator

from attendo.compare.findings import UNEVEN, Breakdown, Findings
from attendo.compare.measure import Measured
from attendo.compare.report.wording import chance, counted, listed, points, timed, times
from attendo.compare.significance import FEWEST

WEAK = 25.0
"""BLEU below which nobody could read the translations with profit."""

CLOSE = 1.1
"""Ratio below which two speeds are called the same."""

LATE = 1.15
"""Ratio of planned and real time from which on the time is said not to have been kept."""


def summarise(findings: Findings) -> list[str]:
    """Say who won and how sure that is, who is fast, who falls behind where."""
    best = findings.systems[0].quality.scores.bleu
    details = (*_long_sentences(findings), *_far_words(findings))
    return [
        *([] if best >= WEAK else [_too_early(best)]),
        *_winner(findings),
        *_speeds(findings),
        *(details if best >= WEAK else ()),
        *_fairness(findings),
    ]


def _winner(findings: Findings) -> Iterator[str]:
    best, second, *_ = findings.systems
    score, other = best.quality.scores.bleu, second.quality.scores.bleu
    verdicts = {one.name: findings.verdict(best.name, one.name) for one in findings.systems[1:]}
    equals = [one for one in findings.systems[1:] if not verdicts[one.name].is_significant]
    if equals:
        told = [
            f"{one.name} ({one.quality.scores.bleu:.1f}, {chance(verdicts[one.name].p_of_all)})"
            for one in equals
        ]
        yield (
            f"{best.name} has the highest score, {score:.1f} BLEU, but the test cannot tell it "
            f"from {listed(told)}; call it a draw."
        )
    else:
        verdict = verdicts[second.name]
        yield (
            f"{best.name} {'translates best' if score >= WEAK else 'is ahead'}: {score:.1f} BLEU, "
            f"{points(verdict.difference)} more than {second.name} ({other:.1f}). "
            f"The difference is significant ({chance(verdict.p_of_all)})."
        )
    if len(findings.systems) > 2:
        yield _last(findings)


def _last(findings: Findings) -> str:
    """Name the system with the lowest score, and all that the test cannot tell from it."""
    last = findings.systems[-1]
    equals = [
        one
        for one in findings.systems[1:-1]
        if not findings.verdict(one.name, last.name).is_significant
    ]
    if not equals:
        return f"Last comes {last.name}, with {last.quality.scores.bleu:.1f} BLEU."
    scores = [f"{one.name} ({one.quality.scores.bleu:.1f})" for one in (*equals, last)]
    return f"The lowest BLEU is that of {listed(scores)}, which the test cannot tell apart."


def _too_early(best: float) -> str:
    return (
        f"No system has learned to translate: {best:.1f} BLEU is too little to be of use. The "
        "order says who begins to learn sooner, and may change with a larger budget."
    )


def _speeds(findings: Findings) -> Iterator[str]:
    speeds: tuple[tuple[str, str, Callable[[Measured], float]], ...] = (
        ("In training", "target tokens", lambda system: system.training.tokens_per_second),
        ("In translating", "sentences", lambda system: system.decoding.sentences_per_second),
    )
    for when, what, speed in speeds:
        ranked = sorted(findings.systems, key=speed, reverse=True)
        fastest, slowest = ranked[0], ranked[-1]
        ratio = speed(fastest) / max(1e-9, speed(slowest))
        if ratio < CLOSE:
            yield f"{when} all are about as fast: {counted(speed(fastest))} {what} a second."
        else:
            yield (
                f"{when} {fastest.name} is the fastest: {counted(speed(fastest))} {what} "
                f"a second, {times(ratio)} as many as {slowest.name}, the slowest."
            )


def _long_sentences(findings: Findings) -> Iterator[str]:
    lengths = findings.breakdowns.get("length")
    if lengths is None:
        return
    # Who fails at short sentences has nothing to lose.
    able = max(scores[0] for scores in lengths.scores.values()) / 2
    falls = {
        name: scores[0] - scores[-1] for name, scores in lengths.scores.items() if scores[0] >= able
    }
    most, least = max(falls, key=falls.__getitem__), min(falls, key=falls.__getitem__)
    where = (
        f"from the shortest sentences ({lengths.groups[0]} words) to the longest "
        f"({lengths.groups[-1]})"
    )
    sure = [name for name in falls if _is_apart(lengths, name)]
    if not sure:
        yield (
            f"Of those that can translate short sentences, none is clearly worse on long ones: "
            f"{where}, none falls beyond its intervals."
        )
        return
    first, last = lengths.scores[most][0], lengths.scores[most][-1]
    words = f"{where} it falls from {first:.0f} to {last:.0f} chrF"
    if most == least:
        yield f"Long sentences are harder for {most}: {words}."
        return
    yield (
        f"Of those that can translate short sentences, long ones cost {most} most: {words}; "
        f"{least} goes from {lengths.scores[least][0]:.0f} to {lengths.scores[least][-1]:.0f}."
    )


def _is_apart(breakdown: Breakdown, name: str) -> bool:
    """Tell whether a system is worse in the last group than in the first, beyond its intervals."""
    intervals = breakdown.intervals[name]
    return intervals[0][0] > intervals[-1][1]


def _far_words(findings: Findings) -> Iterator[str]:
    what = {
        "pronoun": "“it” stands {} words after its noun",
        "verb": "the two parts of a German verb are {} words apart",
    }
    for key, words in what.items():
        breakdown = findings.breakdowns.get(key)
        if breakdown is None:
            continue
        far = {name: scores[-1] for name, scores in breakdown.scores.items()}
        best, worst = max(far, key=far.__getitem__), min(far, key=far.__getitem__)
        where, lowest = words.format(breakdown.groups[-1]), breakdown.intervals[best][-1][0]
        if breakdown.guesses and lowest <= breakdown.guesses[-1]:
            yield (
                f"Where {where}, no system is clearly better than always giving the most frequent "
                f"answer ({breakdown.guesses[-1]:.0f} % right); {best} has {far[best]:.0f} %."
            )
        elif lowest > breakdown.intervals[worst][-1][1]:  # else there are too few to tell
            yield (
                f"Where {where}, {best} gets {far[best]:.0f} % of {breakdown.counts[-1]} right "
                f"and {worst} {far[worst]:.0f} %."
            )


def _off_time(findings: Findings) -> list[float]:
    """List how long everyone learned, if one of them was far from what was planned."""
    took = [system.training.seconds for system in findings.systems]
    planned = findings.budget.amount
    is_off = any(max(seconds, planned) > LATE * min(seconds, planned) for seconds in took)
    return took if is_off else []


def _fairness(findings: Findings) -> Iterator[str]:
    if findings.corpus.test_pairs < FEWEST:
        yield (
            f"The test has {findings.corpus.test_pairs} sentences, which is too few to tell "
            f"systems apart or to give intervals a meaning: {FEWEST} would be a beginning."
        )
    if not findings.is_same_budget:
        spent = [f"{one.name} {counted(one.training.places)}" for one in findings.systems]
        yield (
            "The systems did not have the same budget; they learned from so many places for "
            f"target tokens: {listed(spent)}."
        )
    if findings.budget.kind == "seconds" and (took := _off_time(findings)):
        yield (
            f"The time was not kept: learning took {timed(min(took))} to {timed(max(took))} "
            f"instead of {timed(findings.budget.amount)}, so the systems did not have the same. "
            "Was there other work on the machine? A budget of tokens does not depend on it."
        )
    if findings.weight_ratio > UNEVEN:
        sizes = sorted(findings.systems, key=lambda system: system.n_weights)
        yield (
            f"The models are not of one size: {sizes[-1].name} has {counted(sizes[-1].n_weights)} "
            f"weights, {times(findings.weight_ratio)} as many as {sizes[0].name} "
            f"({counted(sizes[0].n_weights)})."
        )
    for name, reason in findings.failed.items():
        yield f"{name} is not in this report, it could not be trained: {reason}"
