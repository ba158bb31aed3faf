"""Choosing the checkpoint that a run ends with: the last, the best one, or an average.

They are compared on the validation records, by loss or by the metric of the task. The loss is
cheap and hardly depends on chance. The metric is what counts: where records are few, the loss rises
long before translations or labels become worse, and the checkpoint with the lowest loss is too
early.
"""

from typing import Any, NamedTuple

from attendo.bundle import parameters_of, put_tensors
from attendo.config import TrainingConfig
from attendo.data.readers import Record
from attendo.reporter import Reporter
from attendo.tasks.base import Metric
from attendo.training.learner import Validation
from attendo.training.state import Tensors
from attendo.training.trainer import Trainer

MEASURED = 1000
"""Most validation records on which checkpoints are compared by the metric."""

FEW = 20_000
"""Most training records with which `auto` selects by the metric."""


def is_by_metric(
    config: TrainingConfig, metric: Metric, n_train: int, *, has_learned: bool = False
) -> bool:
    """Return whether checkpoints are selected by the metric.

    With `auto` that is where it is worth its time: few training records, and a metric that does not
    follow from the loss. A run that continues another one is compared with it by both.
    """
    if config.select != "auto":
        return config.select == "metric"
    is_worth_it = n_train <= FEW and not metric.is_loss and not has_learned
    return is_worth_it and config.validation_bleu > 0


class Chosen(NamedTuple):
    """The checkpoint that a run ends with."""

    name: str
    against_start: dict[str, Any]
    """For the score card: how it compares with the start on the validation records."""


def choose_checkpoint(trainer: Trainer, records: list[Record], reporter: Reporter) -> Chosen:
    """Load the checkpoint that is best on the validation records into the model."""
    candidates = _candidates(trainer)
    if trainer.states.has_start:
        candidates["start"] = trainer.states.start()
    found = {name: _measure(trainer, name, tensors) for name, tensors in candidates.items()}
    against_start: dict[str, Any] = {}
    if not trainer.states.has_start:
        best = min(found, key=lambda name: trainer.validator.rank(found[name]))
    else:
        some = records[:MEASURED]
        best, against_start = _compare_with_start(trainer, candidates, found, some, reporter)
    put_tensors(parameters_of(trainer.learner.model), candidates[best], best)
    reporter.say(f"checkpoint: {best}, with {trainer.validator.describe(found[best])}")
    return Chosen(best, against_start)


def _candidates(trainer: Trainer) -> dict[str, Tensors]:
    """Collect the checkpoints to choose from: last, best, averages."""
    progress, states, learner = trainer.progress, trainer.states, trainer.learner
    last = {name: tensor.clone() for name, tensor in parameters_of(learner.model).items()}
    candidates = {f"step {progress.step}": last}
    if progress.has_best and progress.best_step:
        candidates[f"step {progress.best_step}"] = states.best(progress.best_step)
    if len(progress.snapshots) > 1:
        name = f"average of the last {len(progress.snapshots)} validations"
        # Frozen parameters stay as they are, without the rounding of a mean.
        frozen = {
            one: last[one]
            for one, parameter in learner.model.named_parameters()
            if not parameter.requires_grad
        }
        candidates[name] = {**states.average(progress.snapshots), **frozen}
    if learner.ema:
        candidates["moving average"] = dict(learner.ema)
    return candidates


def _measure(trainer: Trainer, name: str, tensors: Tensors) -> Validation:
    model, validator = trainer.learner.model, trainer.validator
    put_tensors(parameters_of(model), tensors, name)
    value = validator.score(model) if validator.by_metric else None
    return Validation(validator.loss(model), value)


def _compare_with_start(
    trainer: Trainer,
    candidates: dict[str, Tensors],
    found: dict[str, Validation],
    records: list[Record],
    reporter: Reporter,
) -> tuple[str, dict[str, Any]]:
    """Choose the best checkpoint whose metric is not worse than that of the start.

    A lower loss alone is not enough: a model can assign the references more probability and still
    translate worse.
    """
    model, validator = trainer.learner.model, trainer.validator
    metric, rank = validator.task.metric, validator.rank

    def score(name: str) -> float:
        put_tensors(parameters_of(model), candidates[name], name)
        return round(validator.score(model, records), 2)

    better = [name for name in found if rank(found[name]) < rank(found["start"])]
    scores = {"start": score("start")}
    for name in sorted(better, key=lambda name: rank(found[name])):
        scores[name] = score(name)
        if not metric.is_better(scores["start"], scores[name]):
            break
        reporter.say(
            f"{name} has a lower validation loss than the start, {found[name].loss:.3f} instead of "
            f"{found['start'].loss:.3f}, but a worse {metric.title}, {scores[name]:.2f} instead of "
            f"{scores['start']:.2f}"
        )
    else:
        reporter.say("the new records did not help: the parameters of the start are kept")
        name = "start"
    return name, {
        "kept": name == "start",
        "valid_loss_before": round(found["start"].loss, 4),
        "valid_loss": round(found[name].loss, 4),
        f"valid_{metric.name}_before": scores["start"],
        f"valid_{metric.name}": scores[name],
    }
