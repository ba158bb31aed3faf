"""Files through an engine: translate a stream of lines, and score a run on a test set."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
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
    n_best: int = 1,
    prefix: str = "",
    options: dict[str, Any] | None = None,
    done: Callable[[int], None] = lambda n: None,
) -> Iterator[tuple[str, list[Translated]]]:
    """Translate a stream of lines; yields each with its translations when they are finished.

    `done` is called earlier, after every batch, with the number of lines finished since.
    """
    pending: deque[str] = deque()

    def texts() -> Iterator[tuple[str, str]]:
        for line in lines:
            pending.append(line)
            yield line, prefix

    for found in translator.stream(texts(), n_best=n_best, done=done, **(options or {})):
        yield pending.popleft(), found


def evaluate_files(
    run: str,
    source: str,
    target: str,
    options: dict[str, Any],
    device: str,
    reporter: Reporter,
) -> dict[str, Any]:
    """Score a run on two aligned files and add the result to its score card."""
    translator = load(run, device)
    sources, references = read_aligned(source, target)
    if not sources:
        raise DataError(f"{source} and {target} are empty: there is nothing to translate")
    if (Path(run) / SCORE_CARD).exists():
        read_score_card(Path(run))  # a damaged one is reported before the work, not after it
    with reporter.bar("translating", len(sources)) as advance:
        scores = translator.evaluate(sources, references, done=lambda n: advance(n, ""), **options)
    decoding = {**translator.bundle.recipe.decoding.model_dump(), **options}
    # A file name may hold bytes that are not UTF-8, which JSON has no way to write.
    names = [path.encode(errors="backslashreplace").decode() for path in (source, target)]
    scored = {**scores.to_dict(), "test": names, "decoding": decoding}
    card = update_score_card(Path(run), lambda card: _with_scores(card, scored))
    other_pairs = ("start", "evaluations")
    about = {key: value for key, value in card.items() if key not in other_pairs}
    return {**about, **scored}


def _with_scores(card: dict[str, Any], scored: dict[str, Any]) -> dict[str, Any]:
    """Add scores beside those of the run's own test set, or in place of none."""
    if "bleu" not in card:
        return {**card, **scored}
    given = scored["test"], scored["decoding"]
    others = [
        one
        for one in card.get("evaluations", [])
        if (one.get("test"), one.get("decoding")) != given
    ]
    return {**card, "evaluations": [*others, scored]}
