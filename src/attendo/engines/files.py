"""Files through an engine: translate a stream of lines, and score a run on a test set."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attendo.bundle import (
    SCORE_CARD,
    Bundle,
    find_device,
    load_bundle,
    read_score_card,
    update_score_card,
)
from attendo.config import change_decoding
from attendo.data.folders import find_texts
from attendo.data.readers import (
    Document,
    Pair,
    ReadReport,
    Record,
    RecordFiles,
    read_aligned,
    read_records,
)
from attendo.engines.pytorch import check_task
from attendo.errors import DataError
from attendo.reporter import Reporter
from attendo.tasks import Translated, Translation
from attendo.text import add_noise


@runtime_checkable
class Streaming(Protocol):
    """What translates a stream of texts: an engine, or several."""

    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations when finished."""
        ...


def translate_lines(
    translator: Streaming,
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
    noise: str | None = None,
) -> dict[str, Any]:
    """Score a translation run on two aligned files and add the result to its score card.

    With the name of a noise (`attendo.text.NOISES`), the pairs are changed before.
    """
    bundle = load_bundle(Path(run), find_device(device))
    check_task(bundle.task, Translation)
    sources, references = read_aligned(source, target)
    if not sources:
        raise DataError(f"{source} and {target} are empty: there is nothing to translate")
    records = _with_noise(list(map(Pair, sources, references)), noise)
    return _evaluate(bundle, Path(run), records, [source, target], options, reporter, noise)


def evaluate_records(
    run: str,
    path: str,
    options: dict[str, Any],
    device: str,
    reporter: Reporter,
    noise: str | None = None,
) -> dict[str, Any]:
    """Score a run on a file with all columns of its task and add the result to its score card."""
    bundle = load_bundle(Path(run), find_device(device))
    record = bundle.task.record_type
    paths = find_texts([path]) if record is Document else (path,)
    files = RecordFiles(files=paths, record=record)
    if noise is not None:
        check_task(bundle.task, Translation)
    records = _with_noise(list(read_records(files, ReadReport())), noise)
    return _evaluate(bundle, Path(run), records, [path], options, reporter, noise)


def _with_noise(records: list[Record], kind: str | None) -> list[Record]:
    """Return pairs with noise, the same each time."""
    if kind is None:
        return records
    chance = random.Random(0)
    return [Pair(*add_noise(kind, tuple(record), chance)) for record in records]


def _evaluate(
    bundle: Bundle,
    run: Path,
    records: list[Record],
    paths: list[str],
    options: dict[str, Any],
    reporter: Reporter,
    noise: str | None = None,
) -> dict[str, Any]:
    if (run / SCORE_CARD).exists():
        read_score_card(run)  # a damaged one is reported before the work, not after it
    decoding = change_decoding(bundle.recipe.decoding, options)
    where = next(bundle.model.parameters()).device
    with reporter.bar("evaluating", len(records)) as advance:
        scores = bundle.task.evaluate(
            bundle.model, records, decoding, where, done=lambda n: advance(n, "")
        )
    # A file name may hold bytes that are not UTF-8, which JSON has no way to write.
    names = [path.encode(errors="backslashreplace").decode() for path in paths]
    scored = {**scores.to_dict(), "test": names, "decoding": decoding.model_dump()}
    if noise is not None:
        scored["noise"] = noise
    metric = bundle.task.metric.name
    card = update_score_card(run, lambda card: _with_scores(card, scored, metric))
    other_records = ("start", "evaluations")
    about = {key: value for key, value in card.items() if key not in other_records}
    return {**about, "task": bundle.task.name, **scored}


def _with_scores(card: dict[str, Any], scored: dict[str, Any], metric: str) -> dict[str, Any]:
    """Add scores beside those of the run's own test set, or in place of none."""
    if metric not in card:
        return {**card, **scored}
    about = ("test", "decoding", "noise")
    given = [scored.get(key) for key in about]
    others = [
        one for one in card.get("evaluations", []) if [one.get(key) for key in about] != given
    ]
    return {**card, "evaluations": [*others, scored]}
