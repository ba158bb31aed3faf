"""What the report says, part by part, from the numbers alone."""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from attendo.compare.findings import Findings
from attendo.compare.report.document import (
    Bullets,
    Code,
    Document,
    Examples,
    Heading,
    Paragraph,
    Part,
    Pictures,
)
from attendo.compare.report.examples import choose_examples
from attendo.compare.report.plots import draw_breakdown, draw_curves, draw_measures, same_tokens
from attendo.compare.report.summary import summarise
from attendo.compare.report.tables import main_table, sequence_table, significance_table
from attendo.compare.report.wording import counted, listed, sized, timed
from attendo.compare.significance import LEVEL, RESAMPLES


class Making(NamedTuple):
    """How a report came about."""

    command: str
    versions: dict[str, str]
    date: datetime
    folder: str


FITTED = (
    "Every schedule was fitted to its steps: the warm-up keeps its share of them, the learning "
    "rate its highest value."
)
FAIR = {
    "steps": ["Each took the number of steps that its recipe says."],
    "tokens": [
        "Each had the same number of places for target tokens: steps times "
        "training.batch_tokens. A slower system took more time for them.",
        FITTED,
    ],
    "seconds": [
        "Each had the same time: how long a step takes was measured first, with the real model "
        "and the real batches, and so many steps were planned as fit in. A faster system has seen "
        "more text in that time. Other work on the same machine would disturb such a comparison.",
        FITTED,
    ],
}
"""What is fair about each kind of budget, and what is not."""


SIZED = (
    "Models were made wider or narrower to have nearly the same number "
    "of weights; layers, heads and learning rates are still those of their recipes."
)


def compose(findings: Findings, making: Making) -> Document:
    """Write the report."""
    n_systems, corpus = len(findings.systems), findings.corpus
    return Document(
        title=f"{n_systems} ways to translate, compared",
        subtitle=(
            f"{listed(findings.names)}, trained on {counted(corpus.training_pairs)} pairs of "
            f"{corpus.name} with {_budget(findings)}, and tested on {corpus.test_pairs:,} "
            "sentences."
        ),
        parts=[
            Heading("In short"),
            Bullets(summarise(findings)),
            main_table(findings),
            *_quality_and_cost(findings),
            *_learning(findings),
            *_lengths(findings),
            *_distances(findings),
            *_sequences(findings),
            *_examples(findings),
            *_making(findings, making),
        ],
    )


def _quality_and_cost(findings: Findings) -> Iterator[Part]:
    yield Heading("Quality, speed and cost")
    yield Pictures("One bar a system, the same order everywhere.", draw_measures(findings))
    yield significance_table(findings)


def _learning(findings: Findings) -> Iterator[Part]:
    plots = draw_curves(findings)
    if not plots:
        return
    yield Heading("How they learned")
    caption = "Loss and BLEU on the validation pairs against what had been spent until then."
    if same_tokens(findings):
        training = findings.systems[0].training
        caption += f" A step is about {training.tokens / training.steps:,.0f} target tokens."
    if len({system.recipe.tokenizer for system in findings.systems}) > 1:
        caption += (
            " The systems cut text into different tokens, so their losses a token are not on one "
            "scale; their BLEU is."
        )
    yield Pictures(caption, plots, is_wide=True)


def _lengths(findings: Findings) -> Iterator[Part]:
    if "length" not in findings.breakdowns:
        return
    lengths = findings.breakdowns["length"]
    yield Heading("Short and long sentences")
    yield Pictures(
        f"chrF by the length of the source, in groups of {_range(lengths.counts)} sentences. "
        "A picture for every system; in grey the others; shaded the 95 % interval.",
        draw_breakdown(findings, lengths, "source words", "chrF"),
    )


def _distances(findings: Findings) -> Iterator[Part]:
    yield Heading("Words that depend on words far off")
    if not findings.corpus.is_builtin:
        yield Paragraph(
            "Left out: which words depend on which is known of the built-in corpus only."
        )
        return
    if "pronoun" in findings.breakdowns:
        pronoun = findings.breakdowns["pronoun"]
        yield Pictures(
            "“It” is er, sie or es in German, as the gender of its noun demands. Share of "
            "translations, in per cent, that have the right one, by the number of words between "
            f"the noun and “it” ({_range(pronoun.counts)} cases a group). Dotted: what one would "
            "get by always saying the most frequent of the three.",
            draw_breakdown(findings, pronoun, "words between noun and “it”", "right pronouns"),
        )
    if "verb" in findings.breakdowns:
        verb = findings.breakdowns["verb"]
        yield Pictures(
            "Many German verbs have two parts, and the second closes the sentence: Der Hund steht "
            "heute auf. Share of translations, in per cent, that end with the right one, by the "
            f"number of words between the two ({_range(verb.counts)} cases a group).",
            draw_breakdown(findings, verb, "words between the parts", "right verb ends"),
        )
    if not {"pronoun", "verb"} & findings.breakdowns.keys():
        yield Paragraph("Left out: the test sentences have too few of them.")


def _sequences(findings: Findings) -> Iterator[Part]:
    if table := sequence_table(findings):
        yield Heading("What must wait for what")
        yield Paragraph(
            "A machine that can do any amount of work at once is still held up by steps that need "
            "the result of the step before. In writing, every family waits for its own last word; "
            "in reading and learning they differ."
        )
        yield table


def _examples(findings: Findings) -> Iterator[Part]:
    if chosen := choose_examples(findings):
        yield Heading("Translations that tell them apart")
        yield Examples(
            "The test sentences on which the systems differ most, chosen by sentence chrF. Marked: "
            "words that the reference does not have there.",
            chosen,
        )


def _making(findings: Findings, making: Making) -> Iterator[Part]:
    yield Heading("How this was made")
    yield Paragraph(_fairness(findings))
    yield Bullets([*_methods(findings), *_limits(findings)])
    machine = findings.systems[0].machine
    versions = ", ".join(f"{name} {version}" for name, version in making.versions.items())
    yield Paragraph(
        f"Machine: {machine['hardware']}; {versions}. Report written {making.date:%Y-%m-%d %H:%M}."
    )
    yield Bullets([f"{one.name}: {one.model}. {one.description}" for one in findings.systems])
    name = findings.names[0]
    lines = [
        making.command,
        f"attendo translate {making.folder}/runs/{name} 'some text'",
        f"attendo serve {making.folder}/runs/*",
    ]
    yield Code("\n".join(line for line in lines if line))


def _fairness(findings: Findings) -> str:
    """Say what is the same for all and what is not."""
    words = ["All systems read the same training, validation and test pairs."]
    if _is_same_stream(findings):
        words.append("All saw the same batches in the same order, each as far as it came.")
    if findings.is_same_budget or findings.budget.kind == "steps":
        words += FAIR[findings.budget.kind]
    if findings.is_same_budget and findings.budget.kind == "steps":
        words.append("Steps times training.batch_tokens is the same for all.")
    if findings.budget.n_weights:
        words.append(SIZED)
    counts = [one.n_weights for one in findings.systems]
    sizes = dict.fromkeys((counted(min(counts)), counted(max(counts))))
    words.append(f"The models have {' to '.join(sizes)} weights.")
    took = listed([f"{one.name} {timed(one.training.seconds)}" for one in findings.systems])
    return " ".join(
        [*words, f"Learning took: {took}; validations are not counted, nor is the start."]
    )


def _budget(findings: Findings) -> str:
    if findings.budget.kind == "steps" and findings.is_same_budget:
        places = findings.systems[0].training.places
        return str(findings.budget._replace(kind="tokens", amount=places))
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
    yield (
        f"BLEU and chrF: sacrebleu, {first.quality.scores.signature}; intervals of 95 % by "
        f"bootstrap. “All right”: translations that are the reference, word for word."
    )
    yield (
        f"Significance: sacrebleu's paired bootstrap ({RESAMPLES:,} draws or more), two-sided, "
        f"corrected for the number of pairs of systems (Holm); significant below {LEVEL}."
    )
    search = first.decoding.settings
    how = "beam " + str(search["beam"]) if search["strategy"] == "beam" else search["strategy"]
    if len({_search(one.decoding.settings) for one in findings.systems}) > 1:
        how = "each recipe's own search"
    yield (
        "Speed in training: the median of the log, in target tokens without padding. Speed in "
        f"translating: all test sentences, {how}, {search['batch_size']} at a time, after a "
        "warm-up."
    )
    if len({one.recipe.tokenizer for one in findings.systems}) > 1:
        yield (
            "The systems cut text into different tokens, so that their tokens a second in training "
            "are not quite on one scale."
        )
    yield _memory(findings)
    yield f"Energy: seconds of learning times watts; {first.energy.how}."


def _search(settings: dict[str, object]) -> tuple[object, ...]:
    return settings["strategy"], settings["beam"]


def _memory(findings: Findings) -> str:
    if findings.systems[0].machine["device"] == "cuda":
        return "Memory: the most that tensors took on the GPU at a time, in training."
    before = [one.memory.before_bytes or 0 for one in findings.systems]
    return (
        "Memory: the most that the process of the training took at a time; each system had its "
        f"own. Up to {sized(max(before))} of it were taken before the first step, by Python, "
        "PyTorch and the model."
    )


def _limits(findings: Findings) -> Iterator[str]:
    yield (
        "What this cannot say: every system was trained once, and another seed would give a "
        "somewhat different score, which the test of significance does not know. Each recipe was "
        "taken as it is; other settings might suit a system better. Speeds are those of one run "
        "on this machine."
    )
    pairs = {one.training.pairs for one in findings.systems}
    if len(pairs) > 1:
        yield (
            "The systems cut text into different tokens, so that not quite the same pairs were "
            f"too long for them: {listed([f'{n:,}' for n in sorted(pairs)])} pairs were left."
        )


def _range(counts: list[int]) -> str:
    return f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else str(counts[0])
