"""From prepared data to a score card: train to the end, choose the checkpoint, score it."""

import os
import platform
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from attendo.bundle import (
    PARAMETERS,
    SCORE_CARD,
    check_finite,
    check_parameters,
    read_score_card,
    read_tensors,
    save_parameters,
    update_score_card,
)
from attendo.config import DecodingConfig, Recipe
from attendo.conversions import scores_of
from attendo.data.readers import Record
from attendo.errors import AttendoError, BundleError
from attendo.models.outline import shapes_only
from attendo.nn.lora import merge_lora
from attendo.reporter import Reporter
from attendo.tasks import Task
from attendo.training.adapt import start_of
from attendo.training.finetuning import rate_scales, set_trained
from attendo.training.learner import Learner, Validator, evaluating
from attendo.training.log import Listener, Log, TensorBoard, draw_curve
from attendo.training.prepare import Prepared
from attendo.training.selection import MEASURED, choose_checkpoint, is_by_metric
from attendo.training.state import StateFolder
from attendo.training.trainer import Trainer, catch_interrupts


class Interrupted(Exception):  # noqa: N818 -- not an error
    """The training was stopped by the user; everything is saved."""


class Where(NamedTuple):
    """Where a run is trained and who follows it."""

    folder: Path
    device: torch.device
    reporter: Reporter
    meter: AbstractContextManager[object]


def complete_run(recipe: Recipe, task: Task, data: Prepared, where: Where) -> dict[str, Any]:
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
    has_continued = trainer.states.has_start
    merge_lora(model)
    save_parameters(folder, model, task)
    card: dict[str, Any] = {
        "task": task.name,
        **_test(trainer, data.test_texts, recipe.decoding, reporter),
        "checkpoint": chosen.name,
        "selected_by": task.metric.name if trainer.validator.by_metric else "loss",
        "parameters": n_parameters,
        **({"trained_parameters": n_trained} if recipe.finetuning.is_partial else {}),
        "training_pairs": data.n_train,
        **_circumstances(trainer),
        **scores_of(folder),  # of the same parameters
    }
    if has_continued:
        compared = _before_and_after(trainer, data.test_texts, recipe, reporter)
        card["start"] = {**compared, **chosen.against_start}
    elif recipe.start is not None:
        card["start"] = {"run": recipe.start}
    return update_score_card(folder, lambda old: {**_evaluations(old, card["steps"]), **card})


def _circumstances(trainer: Trainer) -> dict[str, Any]:
    """Return how long a run was trained, and on what."""
    return {
        "steps": trainer.progress.step,
        "training_seconds": round(trainer.progress.seconds, 1),
        "seed": trainer.config.seed,
        "hardware": hardware(trainer.learner.device),
        "threads": torch.get_num_threads(),  # with another number, sums are rounded differently
        "torch": torch.__version__,
    }


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
    has_learned = states.has_start
    if states.parameters is None and (start := start_of(recipe)):
        start.load_parameters(model, task)
        has_learned = start.is_continued_by(task)
    set_what_is_trained(model)
    scales = rate_scales(model, task.body(model), recipe.finetuning)
    learner = Learner(model, task.loss, config, recipe.model.d_model, scales)
    layout = task.layout(recipe.data, config.batch_tokens)
    by_metric = is_by_metric(config, task.metric, data.train.size, has_learned=has_learned)
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
