"""The report of a comparison: its text, part by part, from the numbers alone, and its files."""

from collections.abc import Iterator
from datetime import datetime
from difflib import SequenceMatcher
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import attendo
from attendo.errors import command_line
from attendo.files import write_json, write_text
from attendo.lab.compare.findings import Findings
from attendo.lab.compare.plan import RUNS
from attendo.lab.compare.plots import draw_breakdown, draw_curves, draw_measures, same_tokens
from attendo.lab.compare.significance import LEVEL, RESAMPLES, Quality
from attendo.lab.compare.summary import summarise
from attendo.lab.compare.tables import main_table, sequence_table, significance_table
from attendo.lab.report.document import (
    Bullets,
    Code,
    Document,
    Example,
    Examples,
    Heading,
    Paragraph,
    Part,
    Pictures,
    Word,
    counted,
    listed,
    sized,
    timed,
)
from attendo.lab.report.html import to_html
from attendo.lab.report.markdown import PLOTS, to_markdown
from attendo.tasks import TASKS

MOST = 6
"""Sentences that are shown."""

PAGE = "report.html"


def write_report(findings: Findings, command: str, folder: Path) -> Path:
    """Write report.html, report.md with its plots, and report.json; returns the page."""
    machine = findings.systems[0].machine
    versions = {
        "attendo": attendo.__version__,
        "torch": machine["torch"],
        "Python": machine["python"],
        "sacrebleu": version("sacrebleu"),
    }
    making = Making(command, versions, datetime.now().astimezone(), str(folder))
    document = compose(findings, making)
    (folder / PLOTS).mkdir(exist_ok=True)
    for old in (folder / PLOTS).glob("*.svg"):  # of an earlier report
        old.unlink()
    for plot in document.plots:
        write_text(folder / PLOTS / f"{plot.name}.svg", plot.svg)
    write_text(folder / "report.md", to_markdown(document))
    write_text(folder / PAGE, to_html(document))
    made = {"command": command, "versions": versions, "date": making.date.isoformat()}
    write_json(folder / "report.json", {**made, **findings.to_dict()})
    return folder / PAGE


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


class Making(NamedTuple):
    """How a report came about."""

    command: str
    versions: dict[str, str]
    date: datetime
    folder: str


FAIR = {
    "steps": ["Each was trained for the number of steps in its recipe."],
    "tokens": [
        "Each had the same training budget in target tokens: steps times training.batch_tokens, "
        "padding included. A slower system took more time. Every schedule was scaled to its number "
        "of steps: the warm-up keeps its share, the learning rate its maximum.",
    ],
    "seconds": [
        "Each was trained for the same time and stopped by the clock. A faster system was trained "
        "on more text in that time. Learning rate and validations follow the used share of the "
        "time, so that every schedule is complete. Other work on the same machine would distort "
        "such a comparison.",
    ],
}
"""What is fair about each kind of budget, and what is not."""


SIZED = (
    "Models were made wider or narrower to have nearly the same number "
    "of parameters; layers, heads and learning rates are those of the recipes."
)


def compose(findings: Findings, making: Making) -> Document:
    """Write the report."""
    n_systems, corpus = len(findings.systems), findings.corpus
    return Document(
        title=f"Comparison of {n_systems} {TASKS[findings.systems[0].recipe.task].models}",
        subtitle=(
            f"{listed(findings.names)}, trained on {counted(corpus.training_pairs)} "
            f"{_records(findings)} of "
            f"{corpus.name} with {_budget(findings)}, and tested on {corpus.test_pairs:,} "
            f"{'sentences' if findings.is_translation else 'others'}."
        ),
        parts=[
            Heading("Summary"),
            Bullets(summarise(findings)),
            main_table(findings),
            *_quality_and_cost(findings),
            *_learning(findings),
            *(_translations(findings) if findings.is_translation else ()),
            *_making(findings, making),
        ],
    )


def _quality_and_cost(findings: Findings) -> Iterator[Part]:
    yield Heading("Quality, speed and cost")
    yield Pictures("One bar per system, in the order of the table.", draw_measures(findings))
    if findings.is_translation:
        yield significance_table(findings)


def _translations(findings: Findings) -> Iterator[Part]:
    yield from _lengths(findings)
    yield from _distances(findings)
    yield from _sequences(findings)
    yield from _examples(findings)


def _records(findings: Findings) -> str:
    return "pairs" if findings.is_translation else "examples"


def _learning(findings: Findings) -> Iterator[Part]:
    plots = draw_curves(findings)
    if not plots:
        return
    yield Heading("Learning curves")
    caption = f"Loss and {findings.metric.title} on the validation {_records(findings)}."
    if same_tokens(findings):
        training = findings.systems[0].training
        caption += f" A step is about {training.tokens / training.steps:,.0f} target tokens."
    if len({system.recipe.tokenizer for system in findings.systems}) > 1:
        caption += (
            " The systems have different vocabularies, so their losses per token are not "
            f"comparable; their {findings.metric.title} is."
        )
    yield Pictures(caption, plots, is_wide=True)


def _lengths(findings: Findings) -> Iterator[Part]:
    if "length" not in findings.breakdowns:
        return
    lengths = findings.breakdowns["length"]
    yield Heading("Quality by sentence length")
    yield Pictures(
        f"chrF by the length of the source, in groups of {_range(lengths.counts)} sentences. "
        "One plot per system, with the others in grey; shaded: the 95 % interval.",
        draw_breakdown(findings, lengths, "source words", "chrF"),
    )


def _distances(findings: Findings) -> Iterator[Part]:
    yield Heading("Long-distance dependencies")
    if not findings.corpus.is_builtin:
        yield Paragraph("Not measured: dependencies are known for the built-in corpus only.")
        return
    if "pronoun" in findings.breakdowns:
        pronoun = findings.breakdowns["pronoun"]
        yield Pictures(
            "“It” is er, sie or es in German, depending on the gender of its noun. Percentage of "
            "translations with the correct pronoun, by the number of words between the noun and "
            f"“it” ({_range(pronoun.counts)} cases per group). Dotted: the most frequent of the "
            "three in every case.",
            draw_breakdown(findings, pronoun, "words between noun and “it”", "correct pronouns"),
        )
    if "verb" in findings.breakdowns:
        verb = findings.breakdowns["verb"]
        yield Pictures(
            "Many German verbs have two parts, and the second is at the end of the sentence: Der "
            "Hund steht heute auf. Percentage of translations that end with the correct part, by "
            f"the number of words between the two ({_range(verb.counts)} cases per group).",
            draw_breakdown(findings, verb, "words between the parts", "correct verb parts"),
        )
    if not {"pronoun", "verb"} & findings.breakdowns.keys():
        yield Paragraph("Not measured: the test sentences have too few of them.")


def _sequences(findings: Findings) -> Iterator[Part]:
    if table := sequence_table(findings):
        yield Heading("Sequential operations")
        yield Paragraph(
            "Operations that need the result of the one before cannot be computed in parallel, on "
            "any hardware. In decoding every family is sequential, since each token depends on the "
            "one before; in encoding and training they differ."
        )
        yield table


def _examples(findings: Findings) -> Iterator[Part]:
    if chosen := choose_examples(findings):
        yield Heading("Example translations")
        yield Examples(
            "The test sentences on which the systems differ most, by sentence chrF. Marked: words "
            "that differ from the reference.",
            chosen,
        )


def _making(findings: Findings, making: Making) -> Iterator[Part]:
    yield Heading("Method")
    yield Paragraph(_fairness(findings))
    yield Bullets([*_methods(findings), *_limits(findings)])
    machine = findings.systems[0].machine
    versions = ", ".join(f"{name} {version}" for name, version in making.versions.items())
    yield Paragraph(
        f"Machine: {machine['hardware']}; {versions}. Report of {making.date:%Y-%m-%d %H:%M}."
    )
    yield Bullets([f"{one.name}: {one.model}. {one.description}" for one in findings.systems])
    runs = [f"{making.folder}/{RUNS}/{name}" for name in findings.names]
    lines = [
        making.command,
        *_uses(findings, runs),
    ]
    yield Code("\n".join(line for line in lines if line))


def _uses(findings: Findings, runs: list[str]) -> list[str]:
    if not findings.is_translation:
        return []
    return [
        command_line("translate", runs[0], findings.systems[0].sources[0]),
        command_line("serve", *runs),
    ]


def _fairness(findings: Findings) -> str:
    """Say what is the same for all and what is not."""
    words = [f"All systems have the same training, validation and test {_records(findings)}."]
    if _is_same_stream(findings):
        words.append("All were trained on the same batches in the same order.")
    if findings.is_same_budget or findings.budget.kind == "steps":
        words += FAIR[findings.budget.kind]
    if findings.is_same_budget and findings.budget.kind == "steps":
        words.append("Steps times training.batch_tokens is the same for all.")
    if findings.budget.n_parameters:
        words.append(SIZED)
    counts = [one.n_parameters for one in findings.systems]
    sizes = dict.fromkeys((counted(min(counts)), counted(max(counts))))
    words.append(f"The models have {' to '.join(sizes)} parameters.")
    took = listed([f"{one.name} {timed(one.training.seconds)}" for one in findings.systems])
    return " ".join(
        [*words, f"Training time: {took}, without validations, saving and compilation."]
    )


def _budget(findings: Findings) -> str:
    if findings.budget.kind == "steps" and findings.is_same_budget:
        n_tokens = findings.systems[0].training.padded_tokens
        return str(findings.budget._replace(kind="tokens", amount=n_tokens))
    return str(findings.budget)


def _is_same_stream(findings: Findings) -> bool:
    recipes = [system.recipe for system in findings.systems]
    streams = {
        (one.training.seed, one.training.batch_tokens, one.data.layout, one.tokenizer)
        for one in recipes
    }
    return len(streams) == 1


def _methods(findings: Findings) -> Iterator[str]:
    first = findings.systems[0]
    if first.quality is not None:
        yield from _translation_methods(first.quality)
    search = first.decoding.settings
    how = "beam " + str(search["beam"]) if search["strategy"] == "beam" else search["strategy"]
    if len({_search(one.decoding.settings) for one in findings.systems}) > 1:
        how = "the search of each recipe"
    how = f"{how}, " if findings.is_translation else ""
    yield (
        "Training speed: median of the log, in target tokens without padding. Decoding speed: all "
        f"test {_records(findings)}, {how}batches of {search['batch_size']}, after a warm-up."
    )
    if len({one.recipe.tokenizer for one in findings.systems}) > 1:
        yield (
            "The systems have different vocabularies, so that their training speeds in tokens are "
            "not quite comparable."
        )
    yield _memory(findings)
    yield f"Energy: seconds of training times power; {first.energy.how}."


def _translation_methods(quality: Quality) -> Iterator[str]:
    yield (
        f"BLEU and chrF: sacrebleu, {quality.scores.signature}; intervals of 95 % by "
        f"bootstrap. “Exact”: translations that are identical to the reference."
    )
    yield (
        f"Significance: sacrebleu's paired bootstrap ({RESAMPLES:,} resamples or more), "
        f"two-sided, p-values corrected for the number of comparisons (Holm); significant below "
        f"{LEVEL}. Two systems that have learned nothing are not tested."
    )
    yield (
        "Learned nothing: the translations of a system depend on their sources if their chrF is "
        "significantly higher than that of the same translations exchanged among sentences of "
        "about the same length. Otherwise the system has learned nothing."
    )


def _search(settings: dict[str, object]) -> tuple[object, ...]:
    return settings["strategy"], settings["beam"]


def _memory(findings: Findings) -> str:
    if findings.systems[0].machine["device"] == "cuda":
        return "Memory: peak memory of all tensors on the GPU in training."
    before = [one.memory.before_bytes or 0 for one in findings.systems]
    return (
        "Memory: peak memory of the training process, one per system. Up to "
        f"{sized(max(before))} of it were in use before the first step: Python, PyTorch and the "
        "model."
    )


def _limits(findings: Findings) -> Iterator[str]:
    yield (
        "Limits: every system was trained once. Another random seed would give a somewhat "
        "different score, which the significance test does not include. The recipes were not "
        "tuned; other settings might suit a system better. Speeds are those of one run on this "
        "machine."
    )
    pairs = {one.training.pairs for one in findings.systems}
    if len(pairs) > 1:
        yield (
            "The systems have different vocabularies, so that they do not drop the same pairs as "
            f"too long: {listed([f'{n:,}' for n in sorted(pairs)])} pairs were kept."
        )


def _range(counts: list[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])
