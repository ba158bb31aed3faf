"""From a recipe to a run folder: prepare, train, choose the best checkpoint, score it."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attendo.bundle import (
    PARAMETERS,
    RECIPE,
    SCORE_CARD,
    WORDS,
    check_finite,
    check_parameters,
    load_bundle,
    load_run_recipe,
    load_task,
    parameters_file,
    read_score_card,
    read_tensors,
    read_words,
    save_parameters,
    save_task,
    update_score_card,
    write_words,
)
from attendo.config import (
    DecodingConfig,
    FinetuningConfig,
    Recipe,
    given_settings,
    load_recipe,
    make_recipe,
    write_recipe,
)
from attendo.conversions import scores_of
from attendo.data.readers import Record
from attendo.data.texts import Texts, open_texts
from attendo.errors import AttendoError, BundleError, ConfigError, command_line
from attendo.files import alone_in, clear_leftovers, one_at_a_time, write_text
from attendo.models.outline import shapes_only
from attendo.nn.lora import merge_lora
from attendo.reporter import Reporter
from attendo.tasks import TASKS, Task
from attendo.training.adapt import Start, mean_tokens, start_of
from attendo.training.auto import Choice, choose_adaptation, choose_finetuning, choose_settings
from attendo.training.finetuning import rate_scales, set_trained
from attendo.training.kinds import check_kinds, check_tokenizers
from attendo.training.learner import Learner, Validator, evaluating, without_tiny_numbers
from attendo.training.log import Listener, Log, TensorBoard, draw_curve
from attendo.training.plan import check_memory
from attendo.training.prepare import (
    Prepared,
    make_task,
    open_prepared,
    prepare,
    sentences_per_source,
    set_sentences,
)
from attendo.training.selection import MEASURED, choose_checkpoint, is_by_metric
from attendo.training.state import StateFolder
from attendo.training.trainer import Trainer, catch_interrupts

KEPT = (
    "task", "start", "data", "tokenizer", "masking", "noise", "parsing", "image", "audio",
    "augmentation", "model", "finetuning", "training.seed", "training.optimizer", "training.ema",
)  # fmt: skip
"""What a saved state depends on, so that a resumed run cannot change it."""


SCRATCH = "scratch"
"""Folder in a run folder: the same model, trained from new parameters for comparison."""

SAME_STEPS = {"steps", "batch_tokens", "warmup_steps", "validate_every", "save_every"}
"""Settings of [training] that it has in common with the run that has a start."""


class Interrupted(Exception):  # noqa: N818 -- not an error
    """The training was stopped by the user; everything is saved."""


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
        where = _Where(folder, device, reporter or Reporter(), meter or nullcontext())
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


class _Where(NamedTuple):
    """Where a run is trained and who follows it."""

    folder: Path
    device: torch.device
    reporter: Reporter
    meter: AbstractContextManager[object]


def _train(
    name: str,
    overrides: Mapping[str, Any],
    resume: bool,
    where: _Where,
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
        texts = _open_texts(recipe)
        recipe, task = _begin(recipe, texts, start, folder, device, reporter)
        if compare_scratch:
            _begin_from_scratch(whole, recipe, texts, where)
        return _continue(recipe, task, texts, where)


def _begin_from_scratch(whole: Recipe, recipe: Recipe, texts: Texts, where: _Where) -> None:
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
        reporter.say(f"starts from the vocabulary and the body of {start.folder}, with a new head")
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


def _continue(recipe: Recipe, task: Task, texts: Texts | None, where: _Where) -> dict[str, Any]:
    """Do what is left to do: encode, train, score."""
    data = _prepared(recipe, task, texts, where.folder / "state" / "data", where.reporter)
    _save_words(recipe, where.folder)
    return _learn(recipe, task, data, where)


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
        for reason, count in report.dropped.items():
            reporter.say(f"left out {count:,} records: {reason}")
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


def _learn(recipe: Recipe, task: Task, data: Prepared, where: _Where) -> dict[str, Any]:
    """Train to the end, choose the checkpoint, and score it."""
    folder, device, reporter, meter = where
    trainer = _trainer(recipe, task, data, folder, device)
    if trainer.is_done and _is_complete(folder, recipe, task, trainer.progress.step, reporter):
        reporter.say(f"the run in {folder} is complete")
        return read_score_card(folder)
    model = trainer.learner.model
    n_trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    with shapes_only():  # without low-rank matrices
        n_parameters = sum(one.numel() for one in task.build(recipe.model).parameters())
    trained = f" ({n_trained:,} are trained)" if recipe.finetuning.is_partial else ""
    reporter.say(f"model: {n_parameters:,} parameters{trained}, on {hardware(device)}")
    with meter:
        _run(trainer, folder, reporter)
    chosen = choose_checkpoint(trainer, data.valid_texts, reporter)
    has_continued = trainer.states.start() is not None
    merge_lora(model)
    save_parameters(folder, model, task)
    card: dict[str, Any] = {
        "task": task.name,
        **_test(trainer, data.test_texts, recipe.decoding, reporter),
        "weights": chosen.name,
        "selected_by": task.metric.name if trainer.validator.by_metric else "loss",
        "parameters": n_parameters,
        "steps": trainer.progress.step,
        "training_seconds": round(trainer.progress.seconds, 1),
        "training_pairs": data.train.size,
        "seed": recipe.training.seed,
        "hardware": hardware(device),
        "threads": torch.get_num_threads(),  # with another number, sums are rounded differently
        "torch": torch.__version__,
    }
    if recipe.finetuning.is_partial:
        card["trained_parameters"] = n_trained
    if has_continued:
        compared = _before_and_after(trainer, data.test_texts, recipe, reporter)
        card["start"] = {**compared, **chosen.against_start}
    elif recipe.start is not None:
        card["start"] = {"run": recipe.start}
    card |= scores_of(folder)  # of the same parameters
    return update_score_card(folder, lambda old: {**_evaluations(old, card["steps"]), **card})


def _evaluations(card: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return the results of `evaluate` if they are about the same parameters."""
    is_same = card.get("steps") == steps and "evaluations" in card
    return {"evaluations": card["evaluations"]} if is_same else {}


def _is_complete(folder: Path, recipe: Recipe, task: Task, step: int, reporter: Reporter) -> bool:
    """Return whether model and score card exist, are undamaged and of this step.

    A run that was resumed with more steps still has those of its former end.
    """
    try:
        card = read_score_card(folder)
    except BundleError as error:
        if (folder / SCORE_CARD).exists():
            reporter.say(f"scoring again: {error}")
            (folder / SCORE_CARD).unlink()
        return False
    try:
        check_parameters(folder / PARAMETERS, recipe, task)
        check_finite(read_tensors(folder / PARAMETERS), folder / PARAMETERS)
    except BundleError as error:
        reporter.say(f"rebuilding {PARAMETERS} from {folder / 'state'}: {error}")
        return False
    return task.metric.name in card and card.get("steps") == step


def _trainer(
    recipe: Recipe, task: Task, data: Prepared, folder: Path, device: torch.device
) -> Trainer:
    """Build model, learner and trainer, and restore the saved state."""
    config = recipe.training
    if config.deterministic:
        # Without this cuBLAS refuses to be repeatable; it is read when the GPU is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(config.deterministic)
    states = StateFolder(folder / "state")

    def set_what_is_trained(model: Any) -> None:
        set_trained(model, task.body(model), recipe.finetuning)

    if states.parameters is not None:
        check_parameters(states.parameters, recipe, task, set_what_is_trained)
    torch.manual_seed(config.seed)
    model = task.build(recipe.model).to(device)
    has_learned = False
    if states.parameters is None and (start := start_of(recipe)):
        start.load_parameters(model, task)
        has_learned = start.is_continued_by(task)
    set_what_is_trained(model)
    scales = rate_scales(model, task.body(model), recipe.finetuning.layer_decay)
    learner = Learner(model, task.loss, config, recipe.model.d_model, scales)
    layout = task.layout(recipe.data, config.batch_tokens)
    by_metric = is_by_metric(recipe, task.metric, data.train.size)
    n_scored = max(config.validation_bleu, MEASURED if by_metric else 0)
    validator = Validator(
        task, data.valid, layout, data.valid_texts[:n_scored], device, recipe.decoding, by_metric
    )
    noisy = task.noisy(layout, recipe.noise)
    return Trainer(learner, validator, data.train, noisy, states, has_learned=has_learned)


def _run(trainer: Trainer, folder: Path, reporter: Reporter) -> None:
    """Train with the log open and signals caught."""
    from_step = -1 if trainer.states.parameters is None else trainer.progress.step
    log = Log(folder / "log.jsonl", from_step=from_step)
    listeners: list[Listener] = [log]
    if trainer.config.tensorboard:
        listeners.append(TensorBoard(folder / "tensorboard", from_step=from_step))
    try:
        with catch_interrupts() as interrupt:
            trainer.run(interrupt, reporter, listeners)
    finally:
        for listener in listeners:
            listener.close()
    draw_curve(log.entries, folder / "curve.png")
    if interrupt.is_requested:
        raise Interrupted(f"stopped and saved at step {trainer.progress.step:,}")


def _test(
    trainer: Trainer, pairs: list[Record], options: DecodingConfig, reporter: Reporter
) -> dict[str, Any]:
    """Score the chosen checkpoint on the test pairs."""
    model = trainer.learner.model
    with evaluating(model), reporter.bar("scoring", len(pairs)) as advance:
        scores = trainer.validator.task.evaluate(
            model, pairs, options, trainer.learner.device, done=lambda n: advance(n, "")
        )
    return {**scores.to_dict(), "decoding": options.model_dump()}


def _before_and_after(
    trainer: Trainer, pairs: list[Record], recipe: Recipe, reporter: Reporter
) -> dict[str, Any]:
    """Score the start on these pairs, and both it and the model on its own test pairs.

    Leaves the model with the parameters of the start.
    """
    scores: dict[str, Any] = {"run": recipe.start}
    metric = trainer.validator.task.metric.name
    try:
        start = start_of(recipe)
        assert start, "called for runs with a start only"
        data = start.prepared()
        own = (data.test_texts, start.recipe.decoding) if data else None
        if own:
            scores["own_after"] = _test(trainer, *own, reporter)[metric]
        start.load_parameters(trainer.learner.model, trainer.validator.task)
        scores["before"] = _test(trainer, pairs, recipe.decoding, reporter)[metric]
        if own:
            scores["own_before"] = _test(trainer, *own, reporter)[metric]
    except AttendoError as error:
        reporter.say(f"no comparison with the start: {error}")
    return scores


def hardware(device: torch.device) -> str:
    """Describe the hardware of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} {platform.machine()} CPU cores"
