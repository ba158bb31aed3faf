"""Files through an engine: score a run on a test set."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
from attendo.errors import ConfigError, DataError
from attendo.reporter import Reporter
from attendo.runs import PARAMETERS, SCORE_CARD, load_run_recipe, read_score_card, update_score_card
from attendo.tasks import TASKS, Translation
from attendo.text.noise import NOISES, add_noise

Advance = Callable[[int], None]

OTHER_SCORES = ("start", "scratch", "distillation", "evaluations")
"""Parts of a score card that are not about the test set that is evaluated."""

CIRCUMSTANCES = ("test", "decoding", "precision", "noise")
"""What distinguishes two evaluations of a run."""


@dataclass(frozen=True)
class Evaluation:
    """How a run is scored."""

    options: dict[str, Any] = field(default_factory=dict)
    """Keys of the recipe's [decoding] section."""
    device: str = "auto"
    engine: str = "auto"
    """As for `load_translator`."""
    precision: str | None = None
    """As for `load_translator`; by default float32, which measures the model itself, or what there
    is where only a conversion is."""
    noise: str | None = None
    """A kind of noise (`attendo.text.noise.NOISES`), by which pairs are changed before."""


def evaluate_files(
    run: Path, paths: Sequence[str], how: Evaluation, reporter: Reporter
) -> dict[str, Any]:
    """Score a run on a test set and add the result to its score card.

    Args:
        run: The folder.
        paths: A file with all columns of the task, or two aligned files: sentences to translate
            and their references.
        how: Options of the evaluation.
        reporter: Shows progress.
    """
    # Loading or converting a model takes a while: mistakes are reported before.
    recipe = load_run_recipe(run)
    task = choose(TASKS, recipe.task, "task")
    check_search(run, 1, how.options)
    if how.noise is not None:
        choose(NOISES, how.noise, "--noise")
    if (run / SCORE_CARD).exists():
        read_score_card(run)
    is_translation = issubclass(task, Translation)
    if len(paths) > 1 or how.noise is not None:
        check_task(task, Translation)
    if not is_translation and (how.engine, how.precision) != ("auto", None):
        raise ConfigError(
            f"--engine and --precision are for translations; runs of the task {task.name!r} are "
            "scored with PyTorch, in float32"
        )
    records = _read(task.record_type, paths, reporter)
    evaluate = _translate if is_translation else _run_task
    with reporter.bar("evaluating", len(records)) as advance:
        scores = evaluate(run, records, how, reporter, lambda n: advance(n, ""))
    # A file name may hold bytes that are not UTF-8, which JSON has no way to write.
    names = [path.encode(errors="backslashreplace").decode() for path in paths]
    decoding = change_decoding(recipe.decoding, how.options)
    scored = {**scores, "test": names, "decoding": decoding.model_dump()}
    card = update_score_card(run, lambda card: _with_scores(card, scored, task.metric.name))
    about = {key: value for key, value in card.items() if key not in OTHER_SCORES}
    return {**about, "task": task.name, **scored}


def _read(record: type[Record], paths: Sequence[str], reporter: Reporter) -> list[Record]:
    """Read a test set; of two aligned files no line is left out."""
    if len(paths) > 1:
        aligned = read_aligned(*paths)
        if not aligned[0]:
            raise DataError(f"{' and '.join(paths)} are empty: there is nothing to translate")
        return list(map(Pair, *aligned))
    (path,) = paths
    found = tuple(find_texts([path])) if record is Document else (path,)
    report = ReadReport()
    records = list(read_records(RecordFiles(files=found, record=record), report))
    for reason, count in report.dropped.items():
        reporter.say(f"left out {count:,} of {report.lines:,} lines of {path}: {reason}")
    return records


def _translate(
    run: Path, pairs: list[Pair], how: Evaluation, reporter: Reporter, done: Advance
) -> dict[str, Any]:
    own = "float32" if (run / PARAMETERS).exists() else "auto"
    translator = load_translator(
        run,
        engine=how.engine,
        precision=how.precision or own,
        device=how.device,
        reporter=reporter,
    )
    add_to_card(run, reporter)  # older versions did not
    changed = _with_noise(pairs, how.noise)
    scores = translator.evaluate(*zip(*changed, strict=True), done=done, **how.options).to_dict()
    precision = translator.precision_of(**how.options)
    return {
        **scores,
        **({} if precision == "float32" else {"precision": precision}),
        **({} if how.noise is None else {"noise": how.noise}),
    }


def _run_task(
    run: Path, records: list[Record], how: Evaluation, reporter: Reporter, done: Advance
) -> dict[str, Any]:
    bundle = load_bundle(run, find_device(how.device))
    where = next(bundle.model.parameters()).device
    decoding = change_decoding(bundle.recipe.decoding, how.options)
    scores: dict[str, Any] = bundle.task.evaluate(
        bundle.model, records, decoding, where, done=done
    ).to_dict()
    return scores


def _with_noise(records: list[Record], kind: str | None) -> list[Record]:
    """Return pairs with noise, the same each time."""
    if kind is None:
        return records
    chance = random.Random(0)
    return [Pair(*add_noise(kind, tuple(record), chance)) for record in records]


def _with_scores(card: dict[str, Any], scored: dict[str, Any], metric: str) -> dict[str, Any]:
    """Add scores beside those of the run's own test set, or in place of none.

    Scores of changed pairs (--noise) are always beside them.
    """
    if "noise" not in scored and (metric not in card or "noise" in card):
        return {key: value for key, value in card.items() if key not in CIRCUMSTANCES} | scored
    others = [
        one
        for one in card.get("evaluations", [])
        if any(one.get(key) != scored.get(key) for key in CIRCUMSTANCES)
    ]
    return {**card, "evaluations": [*others, scored]}
