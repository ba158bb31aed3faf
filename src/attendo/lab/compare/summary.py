"""The summary of a report: sentences computed from the numbers."""

from collections.abc import Callable, Iterator

from attendo.lab.compare.findings import UNEVEN, Breakdown, Findings
from attendo.lab.compare.measure import Measured
from attendo.lab.compare.significance import FEWEST
from attendo.lab.report.document import counted, listed, points, timed, times

WEAK = 25.0
"""BLEU below which translations are of no use."""

CLOSE = 1.1
"""Ratio below which two speeds are called the same."""

LATE = 1.15
"""Ratio of budgeted and real time from which on the difference is pointed out."""


def summarise(findings: Findings) -> list[str]:
    """Say which system is best and how certain that is, which is fast, where quality drops."""
    if not findings.is_translation:
        return [*_ranking(findings), *_speeds(findings), *_fairness(findings)]
    best = findings.systems[0].score
    details = (*_long_sentences(findings), *_far_words(findings))
    return [
        *([] if best >= WEAK else [_too_early(best)]),
        *_untrained(findings),
        *_winner(findings),
        *_speeds(findings),
        *(details if best >= WEAK else ()),
        *_fairness(findings),
    ]


def _ranking(findings: Findings) -> Iterator[str]:
    """Name the best system and the others in their order."""
    best, *others = findings.systems
    metric = findings.metric
    if all(one.score == best.score for one in others):
        yield f"All systems have the same {metric.title}, {best.score:.2f}."
        return
    yield (
        f"{best.name} has the best {metric.title}, {best.score:.2f}, before "
        f"{listed([f'{one.name} ({one.score:.2f})' for one in others])}. "
        f"{'Higher' if metric.higher_is_better else 'Lower'} is better; significance is not tested."
    )


def _winner(findings: Findings) -> Iterator[str]:
    """Describe the best and the worst system, and those that do not differ significantly."""
    if len(findings.untrained) == len(findings.systems):
        return
    best, second, *_ = findings.systems
    score, other = best.score, second.score
    verdicts = {one.name: findings.verdict(best.name, one.name) for one in findings.systems[1:]}
    equals = [one for one in findings.systems[1:] if not verdicts[one.name].is_significant]
    if equals:
        yield (
            f"{best.name} has the highest score, {score:.1f} BLEU, but the difference from "
            f"{listed(_scores(equals))} is not significant."
        )
    else:
        verdict = verdicts[second.name]
        yield (
            f"{best.name} {'is best' if score >= WEAK else 'has the highest score'}: {score:.1f} "
            f"BLEU, {points(verdict.difference)} more than {second.name} ({other:.1f}). "
            "The difference is significant."
        )
    if len(findings.systems) > 2:
        yield _last(findings)


def _last(findings: Findings) -> str:
    """Describe the system with the lowest score, and those that do not differ from it."""
    last = findings.systems[-1]
    equals = [
        one
        for one in findings.systems[1:-1]
        if not findings.verdict(one.name, last.name).is_significant
    ]
    if not equals:
        return f"{last.name} has the lowest score, {last.score:.1f} BLEU."
    return (
        f"The lowest scores are those of {listed(_scores([*equals, last]))}; they do not differ "
        "significantly from the last."
    )


def _scores(systems: list[Measured]) -> list[str]:
    return [f"{one.name} ({one.score:.1f})" for one in systems]


def _too_early(best: float) -> str:
    return (
        f"No system has learned to translate well: the highest score is {best:.1f} BLEU. The order "
        "may change with a larger budget."
    )


def _untrained(findings: Findings) -> Iterator[str]:
    """Describe the systems that have learned nothing."""
    names = findings.untrained
    if names:
        does = "has" if len(names) == 1 else "have"
        more = "" if len(names) == 1 else " Differences between them are not tested."
        yield (
            f"{listed(names)} {does} learned nothing: the translations do not depend on their "
            f"sources (see Method).{more}"
        )


def _speeds(findings: Findings) -> Iterator[str]:
    speeds: tuple[tuple[str, str, Callable[[Measured], float]], ...] = (
        ("Training", "target tokens", lambda system: system.training.tokens_per_second),
        ("Decoding", "sentences", lambda system: system.decoding.records_per_second),
    )
    for when, what, speed in speeds:
        ranked = sorted(findings.systems, key=speed, reverse=True)
        fastest, slowest = ranked[0], ranked[-1]
        ratio = speed(fastest) / max(1e-9, speed(slowest))
        if ratio < CLOSE:
            yield f"{when}: all are about as fast, {counted(speed(fastest))} {what} per second."
        else:
            yield (
                f"{when}: {fastest.name} is the fastest with {counted(speed(fastest))} {what} per "
                f"second, {times(ratio)} as many as {slowest.name}, the slowest."
            )


def _long_sentences(findings: Findings) -> Iterator[str]:
    lengths = findings.breakdowns.get("length")
    if lengths is None:
        return
    # A system that fails at short sentences cannot get worse.
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
            f"None of the systems that can translate short sentences is clearly worse on long "
            f"ones: {where}, the 95 % intervals overlap."
        )
        return
    first, last = lengths.scores[most][0], lengths.scores[most][-1]
    words = f"{where}, its chrF changes from {first:.0f} to {last:.0f}"
    if most == least:
        yield f"{most} is worse on long sentences: {words}."
        return
    yield (
        f"Of the systems that can translate short sentences, {most} loses most on long ones: "
        f"{words}; that of {least} changes from {lengths.scores[least][0]:.0f} to "
        f"{lengths.scores[least][-1]:.0f}."
    )


def _is_apart(breakdown: Breakdown, name: str) -> bool:
    """Return whether a system is worse in the last group than in the first, significantly."""
    intervals = breakdown.intervals[name]
    return intervals[0][0] > intervals[-1][1]


def _far_words(findings: Findings) -> Iterator[str]:
    what = {
        "pronoun": "“it” is {} words after its noun",
        "verb": "the two parts of a German verb are {} words apart",
    }
    for key, words in what.items():
        breakdown = findings.breakdowns.get(key)
        if breakdown is None:
            continue
        far = {name: scores[-1] for name, scores in breakdown.scores.items()}
        best, worst = max(far, key=far.__getitem__), min(far, key=far.__getitem__)
        where, lowest = words.format(breakdown.groups[-1]), breakdown.intervals[best][-1][0]
        if breakdown.baseline and lowest <= breakdown.baseline[-1]:
            yield (
                f"Where {where}, no system is clearly better than the most frequent pronoun in "
                f"every case ({breakdown.baseline[-1]:.0f} % correct); "
                f"{best} has {far[best]:.0f} %."
            )
        elif lowest > breakdown.intervals[worst][-1][1]:  # else there are too few
            yield (
                f"Where {where}, {best} has {far[best]:.0f} % of {breakdown.counts[-1]} correct "
                f"and {worst} {far[worst]:.0f} %."
            )


def _off_time(findings: Findings) -> list[float]:
    """List the training times, if one of them is far from the budget."""
    took = [system.training.seconds for system in findings.systems]
    planned = findings.budget.amount
    is_off = any(max(seconds, planned) > LATE * min(seconds, planned) for seconds in took)
    return took if is_off else []


def _fairness(findings: Findings) -> Iterator[str]:
    if findings.is_translation and findings.corpus.test_pairs < FEWEST:
        yield (
            f"The test set has {findings.corpus.test_pairs} sentences, which is too few for "
            f"significance tests and intervals: use {FEWEST} or more."
        )
    if not findings.is_same_budget:
        spent = [f"{one.name} {counted(one.training.padded_tokens)}" for one in findings.systems]
        yield (
            f"The systems did not have the same training budget, in target tokens: {listed(spent)}."
        )
    if findings.budget.kind == "seconds" and (took := _off_time(findings)):
        yield (
            f"Training took {timed(min(took))} to {timed(max(took))} instead of "
            f"{timed(findings.budget.amount)}, so the systems did not have the same time: a step "
            "is long compared with the budget, or a training stopped early (training.patience)."
        )
    if findings.size_ratio > UNEVEN:
        sizes = sorted(findings.systems, key=lambda system: system.n_parameters)
        yield (
            f"The models differ in size: {sizes[-1].name} has {counted(sizes[-1].n_parameters)} "
            f"parameters, {times(findings.size_ratio)} as many as {sizes[0].name} "
            f"({counted(sizes[0].n_parameters)})."
        )
    for name, reason in findings.failed.items():
        yield f"{name} is not in this report because its training failed: {reason}"
