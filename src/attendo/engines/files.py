"""Files through an engine: score a run on a test set."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attendo.bundle import find_device, load_bundle
from attendo.config import change_decoding, choose
from attendo.conversions import add_to_card
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
from attendo.engines.loading import check_search, load_translator
from attendo.engines.pytorch import check_task
from attendo.errors import DataError
from attendo.reporter import Reporter
from attendo.runs import PARAMETERS, SCORE_CARD, load_run_recipe, read_score_card, update_score_card
from attendo.tasks import TASKS, Translation
from attendo.text.noise import add_noise

Advance = Callable[[int], None]


def evaluate_files(
    run: str,
    source: str,
    target: str,
    options: dict[str, Any],
    device: str,
    reporter: Reporter,
    *,
    engine: str = "auto",
    precision: str | None = None,
    noise: str | None = None,
) -> dict[str, Any]:
    """Score a translation run on two aligned files and add the result to its score card.

    Args:
        run: The folder.
        source: The sentences to translate.
        target: Their references.
        options: Keys of the recipe's [decoding] section.
        device: As for `load_translator`.
        reporter: Shows progress.
        engine: As for `load_translator`.
        precision: As for `load_translator`; by default float32, which measures the model itself,
            or what there is where only a conversion is.
        noise: A kind of noise (`attendo.text.noise.NOISES`), by which the pairs are changed before.
    """
    # A conversion takes a while: mistakes are reported before.
    check_task(choose(TASKS, load_run_recipe(Path(run)).task, "task"), Translation)
    check_search(run, 1, options)
    _check_card(Path(run))
    sources, references = read_aligned(source, target)
    if not sources:
        raise DataError(f"{source} and {target} are empty: there is nothing to translate")
    precision = precision or ("float32" if (Path(run) / PARAMETERS).exists() else "auto")
    translator = load_translator(
        run, engine=engine, precision=precision, device=device, reporter=reporter
    )
    add_to_card(Path(run), reporter)  # older versions did not
    pairs = _with_noise(list(map(Pair, sources, references)), noise)

    def evaluate(done: Advance) -> dict[str, Any]:
        scores = translator.evaluate(*zip(*pairs, strict=True), done=done, **options).to_dict()
        how = {"precision": "int8"} if translator.precision == "int8" else {}
        return {**scores, **how, **_noted(noise)}

    return _add_to_card(Path(run), [source, target], options, evaluate, len(sources), reporter)


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
    where = next(bundle.model.parameters()).device

    def evaluate(done: Advance) -> dict[str, Any]:
        decoding = change_decoding(bundle.recipe.decoding, options)
        scores = bundle.task.evaluate(bundle.model, records, decoding, where, done=done)
        return {**scores.to_dict(), **_noted(noise)}

    return _add_to_card(Path(run), [path], options, evaluate, len(records), reporter)


def _with_noise(records: list[Record], kind: str | None) -> list[Record]:
    """Return pairs with noise, the same each time."""
    if kind is None:
        return records
    chance = random.Random(0)
    return [Pair(*add_noise(kind, tuple(record), chance)) for record in records]


def _noted(noise: str | None) -> dict[str, str]:
    return {} if noise is None else {"noise": noise}


def _add_to_card(
    run: Path,
    paths: list[str],
    options: dict[str, Any],
    evaluate: Callable[[Advance], dict[str, Any]],
    count: int,
    reporter: Reporter,
) -> dict[str, Any]:
    """Evaluate `count` records and add the scores to the score card of a run."""
    _check_card(run)
    recipe = load_run_recipe(run)
    decoding = change_decoding(recipe.decoding, options)
    with reporter.bar("evaluating", count) as advance:
        scores = evaluate(lambda n: advance(n, ""))
    # A file name may hold bytes that are not UTF-8, which JSON has no way to write.
    names = [path.encode(errors="backslashreplace").decode() for path in paths]
    scored = {**scores, "test": names, "decoding": decoding.model_dump()}
    metric = TASKS[recipe.task].metric.name
    card = update_score_card(run, lambda card: _with_scores(card, scored, metric))
    other_records = ("start", "evaluations")
    about = {key: value for key, value in card.items() if key not in other_records}
    return {**about, "task": recipe.task, **scored}


def _check_card(run: Path) -> None:
    """Report a damaged score card before the work, not after it."""
    if (run / SCORE_CARD).exists():
        read_score_card(run)


def _with_scores(card: dict[str, Any], scored: dict[str, Any], metric: str) -> dict[str, Any]:
    """Add scores beside those of the run's own test set, or in place of none."""
    if metric not in card:
        return {**card, **scored}
    keys = ("test", "decoding", "precision", "noise")
    others = [
        one
        for one in card.get("evaluations", [])
        if any(one.get(key) != scored.get(key) for key in keys)
    ]
    return {**card, "evaluations": [*others, scored]}
