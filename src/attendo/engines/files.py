"""Whole files through an engine: a stream of lines, and a test set."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from attendo.bundle import SCORE_CARD, read_score_card, update_score_card
from attendo.data.readers import read_aligned
from attendo.engines.pytorch import Translator, load
from attendo.errors import DataError
from attendo.reporter import Reporter
from attendo.tasks import Translated


def translate_lines(
    translator: Translator,
    lines: Iterable[str],
    *,
    chunk: int,
    n_best: int = 1,
    prefix: str = "",
    options: dict[str, Any] | None = None,
    done: Callable[[int], None] = lambda n: None,
) -> Iterator[tuple[str, list[Translated]]]:
    """Translate a stream, `chunk` lines at a time; yields each line with its translations.

    `done` is told earlier, after every batch, how many lines have been translated since.
    """
    iterator = iter(lines)
    while texts := list(islice(iterator, chunk)):
        prefixes = [prefix] * len(texts) if prefix else []
        found = translator.translations(
            texts, n_best=n_best, prefixes=prefixes, done=done, **(options or {})
        )
        yield from zip(texts, found, strict=True)


def evaluate_files(
    run: str,
    source: str,
    target: str,
    options: dict[str, Any],
    device: str,
    reporter: Reporter,
) -> dict[str, Any]:
    """Score a run on two aligned files and put the result down in its score card."""
    translator = load(run, device)
    sources, references = read_aligned(source, target)
    if not sources:
        raise DataError(f"{source} and {target} are empty: there is nothing to translate")
    if (Path(run) / SCORE_CARD).exists():
        read_score_card(Path(run))  # a damaged one is reported before the work, not after it
    with reporter.bar("translating", len(sources)) as advance:
        scores = translator.evaluate(sources, references, done=lambda n: advance(n, ""), **options)
    decoding = {**translator.bundle.recipe.decoding.model_dump(), **options}
    scored = {**scores.to_dict(), "test": [source, target], "decoding": decoding}
    card = update_score_card(Path(run), lambda card: _with_scores(card, scored))
    other_pairs = ("start", "evaluations")
    about = {key: value for key, value in card.items() if key not in other_pairs}
    return {**about, **scored}


def _with_scores(card: dict[str, Any], scored: dict[str, Any]) -> dict[str, Any]:
    """Put scores down beside those of the run's own test set, or in place of none."""
    if "bleu" not in card:
        return {**card, **scored}
    given = scored["test"], scored["decoding"]
    others = [
        one
        for one in card.get("evaluations", [])
        if (one.get("test"), one.get("decoding")) != given
    ]
    return {**card, "evaluations": [*others, scored]}
