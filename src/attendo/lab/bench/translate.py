"""Translation speed: text to text, with greedy and beam search, in batches of several sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from attendo.bundle import Bundle
from attendo.data.readers import read_lines
from attendo.engines import Translator, load
from attendo.errors import ConfigError
from attendo.lab.bench.results import Report, Row, settings_of, settled_recipe
from attendo.lab.bench.sentences import MEAN_LENGTH, draw_sentences, numbered_task
from attendo.lab.clock import describe, spread, timed
from attendo.models import Seq2Seq
from attendo.reporter import Reporter

BATCH_SIZES = (1, 8, 64)

FORCED = {"max_extra": 1, "max_loops": 0}
"""Settings that, together with `never_end`, fix the length of an untrained model's output."""

FORCED_NOTE = (
    "untrained model on generated sentences: every output is one token longer than its source; "
    "loop detection is off"
)


def never_end(model: Seq2Seq, eos: int) -> None:
    """Make </s> impossible by a bias, so that the search decides the length of the output."""
    output = model.output
    bias = output.weight.new_zeros(output.out_features)
    if output.bias is not None:
        bias += output.bias.detach()
    bias[eos] = -torch.inf
    output.bias = nn.Parameter(bias, requires_grad=False)


@dataclass(frozen=True, slots=True)
class Subject:
    """A translator and the texts that it translates."""

    translator: Translator
    texts: list[str]
    options: dict[str, Any]
    """How to search, whatever the strategy."""
    notes: list[str]

    def count_tokens(self, translations: list[str]) -> int:
        """Count the tokens of all translations, without the ends of sentences."""
        encoded = self.translator.bundle.task.target.encode_batch(translations)
        return sum(map(len, encoded))


def bench_translate(
    name: str,
    overrides: dict[str, Any],
    device: torch.device,
    *,
    input: str | None = None,
    sentences: int | None = None,
    mean_length: float = MEAN_LENGTH,
    beam: int | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    rounds: int = 3,
    reporter: Reporter,
) -> Report:
    """Measure a run on a text, or an untrained model of a recipe on generated sentences."""
    if Path(name).is_dir():
        subject = _trained(name, overrides, device, input, sentences)
    elif input:
        raise ConfigError(
            f"--input {input!r}: the recipe {name!r} has no trained model to translate it; "
            "give the folder of a run"
        )
    else:
        subject = fresh(name, overrides, device, sentences or max(batch_sizes), mean_length)
    texts, recipe = subject.texts, subject.translator.bundle.recipe
    beam = beam or recipe.decoding.beam
    rows = list(_measure_all(subject, beam, batch_sizes, rounds, reporter))
    measured = {"sentences": len(texts), "rounds": rounds, "input": input, "beam": beam}
    settings = settings_of(name, recipe, **measured, options=subject.options)
    return Report("translate", describe(device), settings, rows, subject.notes)


def _trained(
    name: str,
    overrides: dict[str, Any],
    device: torch.device,
    input: str | None,
    sentences: int | None,
) -> Subject:
    for key in overrides:
        if not key.startswith("decoding."):
            raise ConfigError(f"--set {key}: only [decoding] of a run can be changed")
    options = {key.removeprefix("decoding."): value for key, value in overrides.items()}
    if not input:
        raise ConfigError(f"the run {name!r} needs text to translate: give --input FILE")
    translator = load(name, str(device))
    texts = [line for line in read_lines(input) if line.strip()][:sentences]
    if not texts:
        raise ConfigError(f"--input {input!r} has no text in it")
    return Subject(translator, texts, options, [])


def fresh(
    name: str,
    overrides: dict[str, Any],
    device: torch.device,
    sentences: int,
    mean_length: float = MEAN_LENGTH,
) -> Subject:
    """Build an untrained model whose outputs are as long as the search allows."""
    recipe = settled_recipe(name, overrides)
    torch.manual_seed(recipe.training.seed)
    task = numbered_task(recipe)
    model = task.build(recipe.model).to(device).eval()
    never_end(model, task.target.specials.eos)
    drawn = draw_sentences(sentences, recipe, mean_length, recipe.training.seed)
    translator = Translator(Bundle(recipe, task, model))
    return Subject(translator, drawn.source_texts(), FORCED, [FORCED_NOTE])


def _measure_all(
    subject: Subject, beam: int, batch_sizes: Sequence[int], rounds: int, reporter: Reporter
) -> Iterator[Row]:
    """Measure every search with every batch size for which there are enough sentences."""
    n_texts = len(subject.texts)
    fitting = [size for size in batch_sizes if size <= n_texts] or [n_texts]
    if len(fitting) < len(batch_sizes):
        subject.notes.append(f"larger batches are left out: there are only {n_texts} sentences")
    searches: dict[str, dict[str, Any]] = {
        "greedy": {"strategy": "greedy"},
        f"beam {beam}": {"strategy": "beam", "beam": beam},
    }
    with reporter.bar("translating", len(searches) * len(fitting)) as advance:
        for search, strategy in searches.items():
            for size in fitting:
                options = {**subject.options, **strategy, "batch_size": size}
                yield {"search": search, **measure(subject, options, rounds)}
                advance(1, "")


def measure(subject: Subject, options: dict[str, Any], rounds: int) -> Row:
    """Translate all texts several times, and a batch of them before the clock starts."""
    translator, texts, size = subject.translator, subject.texts, options["batch_size"]
    translator.translate(texts[:size], **options)
    results = [
        timed(lambda: translator.translate(texts, **options), translator.device)
        for _ in range(rounds)
    ]
    n_tokens = subject.count_tokens(results[0][0])
    return figures(size, len(texts), n_tokens, [seconds for _, seconds in results])


def figures(batch_size: int, n_sentences: int, n_tokens: int, seconds: Sequence[float]) -> Row:
    """Sum up rounds over the same sentences."""
    n_batches = -(-n_sentences // batch_size)
    middle = median(seconds)
    return {
        "batch_size": batch_size,
        "sentences_per_second": n_sentences / middle,
        **spread("tokens_per_second", [n_tokens / one for one in seconds]),
        "milliseconds_per_batch": 1000 * middle / n_batches,
    }
