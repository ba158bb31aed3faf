"""From a recipe to a run folder: begin a run or resume one, prepare its data, and complete it."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from attendo.bundle import (
    RECIPE,
    WORDS,
    load_bundle,
    load_run_recipe,
    load_task,
    parameters_file,
    read_score_card,
    read_words,
    save_task,
    update_score_card,
    write_words,
)
from attendo.config import (
    FinetuningConfig,
    Recipe,
    given_settings,
    load_recipe,
    make_recipe,
    write_recipe,
)
from attendo.data.texts import Texts, open_texts
from attendo.errors import ConfigError, command_line
from attendo.files import alone_in, clear_leftovers, one_at_a_time, write_text
from attendo.models.outline import shapes_only
from attendo.reporter import Reporter
from attendo.tasks import TASKS, Task
from attendo.training.adapt import Start, mean_tokens, start_of
from attendo.training.auto import Choice, choose_adaptation, choose_finetuning, choose_settings
from attendo.training.complete import Where, complete_run
from attendo.training.finetuning import set_trained
from attendo.training.kinds import check_kinds, check_tokenizers
from attendo.training.learner import without_tiny_numbers
from attendo.training.plan import check_memory
from attendo.training.prepare import (
    Prepared,
    make_task,
    open_prepared,
    prepare,
    sentences_per_source,
    set_sentences,
)

KEPT = (
    "task", "start", "data", "tokenizer", "masking", "noise", "parsing", "image", "audio",
    "augmentation", "model", "finetuning", "training.seed", "training.batch_tokens",
    "training.optimizer", "training.ema",
)  # fmt: skip
"""What a saved state depends on, so that a resumed run cannot change it."""


SCRATCH = "scratch"
"""Folder in a run folder: the same model, trained from new parameters for comparison."""

SAME_STEPS = {"steps", "batch_tokens", "warmup_steps", "validate_every", "save_every"}
"""Settings of [training] that it has in common with the run that has a start."""


def train_run(
    name: str,
    overrides: Mapping[str, Any],
    folder: Path,
    device: torch.device,
    *,
    resume: bool = False,
    compare_scratch: bool = False,
    reporter: Reporter | None = None,
    meter: AbstractContextManager[object] | None = None,
) -> dict[str, Any]:
    """Train a recipe, named or by path and with overrides, into a folder; return the score card.

    Args:
        name: A preset or the path of a recipe.
        overrides: Settings that replace those of the recipe.
        folder: The run folder.
        device: Where to train.
        resume: Whether to continue the run in the folder.
        compare_scratch: Whether to train the same model from new parameters, too, into the folder
            `scratch` of the run folder, and to compare both. A resumed run does what it began with.
        reporter: Receives messages and progress.
        meter: Entered before the first step and left after the last, for measurements.

    Raises:
        AttendoError: Recipe, data or folder is invalid; the message names what is wrong.
        Interrupted: SIGINT, SIGTERM or SIGHUP came; the state is saved for `resume`.
    """
    if overrides.get("start"):  # so that the run can be resumed from anywhere
        overrides = {**overrides, "start": str(Path(overrides["start"]).resolve())}
    with without_tiny_numbers(device):
        where = Where(folder, device, reporter or Reporter(), meter or nullcontext())
        card = _train(name, overrides, resume, where, compare_scratch=compare_scratch)
        if not (folder / SCRATCH / RECIPE).exists():
            return card
        where = where._replace(folder=folder / SCRATCH, meter=nullcontext())
        where.reporter.say(f"the same model from new parameters, for comparison: {where.folder}")
        return _compare_with_scratch(folder, _train("auto", {}, True, where))


def _compare_with_scratch(folder: Path, other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the metric of the same model, trained from new parameters, to the score card of a run."""
    metric = TASKS[other["task"]].metric.name

    def change(card: dict[str, Any]) -> dict[str, Any]:
        scratch = {
            "run": str(folder / SCRATCH),
            metric: other[metric],
            "difference": round(card[metric] - other[metric], 4),
            **{key: other[key] for key in ("steps", "training_seconds")},
        }
        return {**card, SCRATCH: scratch}

    return update_score_card(folder, change)


def _train(
    name: str,
    overrides: Mapping[str, Any],
    resume: bool,
    where: Where,
    *,
    compare_scratch: bool = False,
) -> dict[str, Any]:
    folder, device, reporter, _ = where
    if (folder / RECIPE).exists() and (resume or _is_begun(folder)):
        if not resume:
            raise ConfigError(
                f"{str(folder)!r} already holds a run; "
                "continue it with --resume, or give another --out"
            )
        _check_name(name, folder)
        if compare_scratch and not (folder / SCRATCH / RECIPE).exists():
            raise ConfigError(
                f"{str(folder)!r} was started without --compare-scratch; leave it out to continue, "
                "or start a new run with another --out"
            )
        if parameters_file(folder) and not (folder / "state").exists():
            load_bundle(folder, device)  # nothing could rebuild a damaged one
            reporter.say(f"{folder} is complete; without its state/ it cannot be trained further")
            return read_score_card(folder)
        with _alone(folder):
            recipe, task = _reopen(folder, overrides)
            return _continue(recipe, task, None, where)
    whole = recipe = _named(load_recipe(name, overrides), name)
    if resume and not recipe.data.model_fields_set:
        raise ConfigError(
            f"{str(folder)!r} holds no run to continue; check --out, or give the data for a new run"
        )
    if start := start_of(recipe):
        recipe = start.hand_over(recipe, given_settings(name, overrides))
        start.check()  # now, not after the encoding
    elif compare_scratch or recipe.finetuning != FinetuningConfig():
        given = "--compare-scratch" if compare_scratch else "[finetuning]"
        raise ConfigError(f"{given} is for training that starts from another run: give --from")
    check_kinds(recipe)
    check_tokenizers(recipe.tokenizer)
    check_memory(recipe, device)
    with _alone(folder):
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)  # of a start that failed
        texts = _open_texts(recipe)
        recipe, task = _begin(recipe, texts, start, folder, device, reporter)
        if compare_scratch:
            _begin_from_scratch(whole, recipe, texts, where)
        return _continue(recipe, task, texts, where)


def _begin_from_scratch(whole: Recipe, recipe: Recipe, texts: Texts, where: Where) -> None:
    """Write what a run needs that has the same model, data and steps, but no start.

    Optimizer and learning rate are those of the whole recipe, before a start has changed it: they
    are for new parameters, and a start needs a lower rate.
    """
    values = whole.model_dump(exclude={"start", "finetuning"}, exclude_unset=True, mode="json")
    same = {"task", "data", "tokenizer", "masking", "noise", "parsing", "image", "audio", "model"}
    values |= recipe.model_dump(include=same, mode="json")
    steps = recipe.training.model_dump(include=SAME_STEPS, mode="json")
    values["training"] = values.get("training", {}) | steps
    folder = where.folder / SCRATCH
    folder.mkdir(parents=True, exist_ok=True)
    _begin(make_recipe(values), texts, None, folder, where.device, Reporter())


def _named(recipe: Recipe, name: str) -> Recipe:
    """Add the name that a recipe was given by; the recipe of a run has one already."""
    return recipe.model_copy(update={"name": recipe.name or Path(name).stem})


def _check_name(name: str, folder: Path) -> None:
    """Raise an error if a run is continued by the name of another recipe, except `auto`."""
    own = load_run_recipe(folder).name  # older runs have none
    given = _named(load_recipe(name), name).name
    if own and given not in (own, "auto"):
        raise ConfigError(
            f"{str(folder)!r} holds a run of another recipe, {own!r}, not of {name!r}; "
            "leave RECIPE out to continue it, or give another --out"
        )


def _is_begun(folder: Path) -> bool:
    """Return whether a run has saved anything; one that failed early may be started again."""
    return parameters_file(folder) is not None or (folder / "state" / "data").exists()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Create the folders of a run and keep other trainings out of it."""
    try:
        (folder / "state").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {str(folder)!r}: {error.strerror}") from None
    # The lock of the run folder itself is for updates of the score card, also by `evaluate`.
    with alone_in(folder / "state"):
        with one_at_a_time(folder):
            clear_leftovers(folder)
        clear_leftovers(folder / "state")
        yield


def _reopen(folder: Path, overrides: Mapping[str, Any]) -> tuple[Recipe, Task]:
    """Reopen a run; what its saved state depends on must not change."""
    recipe, task = load_task(folder)
    changed = load_run_recipe(folder, overrides)
    for kept in KEPT:
        if attrgetter(kept)(recipe) != attrgetter(kept)(changed):
            raise ConfigError(
                f"{str(folder)!r} was started with other settings in [{kept}], and a resumed run "
                "keeps them; leave those options out, or start a new run with another --out"
            )
    check_kinds(changed)
    if changed != recipe:
        write_text(folder / RECIPE, write_recipe(changed))
    return changed, task


def _begin(
    recipe: Recipe,
    texts: Texts,
    start: Start | None,
    folder: Path,
    device: torch.device,
    reporter: Reporter,
) -> tuple[Recipe, Task]:
    """Determine the settings and the vocabularies of a new run."""
    reporter.say(
        f"data: {texts.n_train:,} training, {len(texts.valid):,} validation, "
        f"{len(texts.test):,} test records"
    )
    for reason, count in texts.report.dropped.items():
        reporter.say(f"dropped {count:,} lines: {reason}")
    _say_what_is_trained_on(texts, reporter)
    choices: list[Choice] = []
    task = None
    if start:
        task = make_task(recipe, texts, _continued(start, recipe, texts))
        recipe, choices = _choose_from(start, recipe, task, texts, reporter)
    elif recipe.auto:
        recipe, choices = choose_settings(recipe, texts, device)
    if choices:
        reporter.say("chosen for this data and hardware:")
    for choice in choices:
        reporter.say(f"  {choice.key} = {choice.value}  ({choice.reason})")
    if recipe.task == "translation":
        recipe = set_sentences(recipe, lambda: sentences_per_source(texts))
    task = task or make_task(recipe, texts)
    save_task(folder, recipe, task)
    return recipe, task


def _continued(start: Start, recipe: Recipe, texts: Texts) -> Path | None:
    """Return the folder of a start of the same task and labels, whose head is trained further."""
    return start.folder if start.covers(recipe.task, texts) else None


def _choose_from(
    start: Start, recipe: Recipe, task: Task, texts: Texts, reporter: Reporter
) -> tuple[Recipe, list[Choice]]:
    """Choose the settings of a run with a start, and report what it takes over."""
    with shapes_only():  # what does not fit is reported now, not after the encoding
        model = task.build(recipe.model)
        start.check_body(task, model)
        set_trained(model, task.body(model), recipe.finetuning)
    length = mean_tokens(task, recipe, texts)
    if start.is_continued_by(task):
        reporter.say(f"starts from the vocabulary and the parameters of {start.folder}")
        reason = "" if start.prepared() else ": they were in its state/, which is missing"
        reporter.say(f"mixes in {texts.n_remembered:,} of its training pairs{reason}")
        if not recipe.finetuning.lora_rank:
            return choose_adaptation(recipe, start.recipe, texts.n_train, length)
    else:
        part, new = ("encoder", "decoder") if start.is_encoder_of(task) else ("body", "head")
        reporter.say(
            f"starts from the vocabulary and the {part} of {start.folder}, with a new {new}"
        )
    return choose_finetuning(recipe, texts.n_train, length)


def _say_what_is_trained_on(texts: Texts, reporter: Reporter) -> None:
    for name, n_known, pairs in (
        ("validation", texts.n_known_valid, texts.valid),
        ("test", texts.n_known_test, texts.test),
    ):
        if n_known:
            reporter.say(
                f"{name} sources that are also in the training data: {n_known:,} of "
                f"{len(pairs):,}; scores will be too high ('{command_line('check')}' shows them)"
            )


def _continue(recipe: Recipe, task: Task, texts: Texts | None, where: Where) -> dict[str, Any]:
    """Do what is left to do: encode, train, score."""
    data = _prepared(recipe, task, texts, where.folder / "state" / "data", where.reporter)
    _save_words(recipe, where.folder)
    return complete_run(recipe, task, data, where)


def _open_texts(recipe: Recipe) -> Texts:
    """Open the pairs of a run, with those of its start."""
    task = TASKS[recipe.task]
    texts = open_texts(recipe.data, task.record_type, task.convert)
    start = start_of(recipe)
    if start and start.covers(recipe.task, texts):
        return start.mix(texts, recipe.data.remember)
    return texts


def _prepared(
    recipe: Recipe, task: Task, texts: Texts | None, folder: Path, reporter: Reporter
) -> Prepared:
    """Encode the data, unless that has been done before."""
    if not folder.exists():
        texts = texts or _open_texts(recipe)
        with reporter.bar("encoding", texts.n_train) as advance:
            report = prepare(texts, task, recipe, folder, lambda n: advance(n, ""))
        for message in report.messages():
            reporter.say(message)
    return open_prepared(folder, task, recipe)


def _save_words(recipe: Recipe, folder: Path) -> None:
    """Write the source words that the model learns from, with those of the run it begins with."""
    if (folder / WORDS).exists():
        return
    words = read_words(folder / "state" / "data")
    if recipe.start is not None:
        before = read_words(Path(recipe.start))
        words = words | before if before else frozenset()
    if words:
        write_words(folder, sorted(words))
