"""Checkpoints are selected by the loss or by the metric of the task, in its own direction."""

import os
import signal

import pytest

from attendo.config import load_recipe
from attendo.tasks import TASKS
from attendo.training.complete import Interrupted
from attendo.training.learner import Validation, Validator
from attendo.training.selection import FEW, is_by_metric
from attendo.training.state import StateFolder
from small_runs import AfterSteps, assert_same_run, small_run

pytestmark = pytest.mark.usefixtures("unchecked")

BY_METRIC = {"training.select": "metric", "training.average": 2}


@pytest.fixture
def scripted(monkeypatch):
    """Replace the results of validations by those of two lists."""

    def follow(losses: list[float], scores: list[float]) -> None:
        for name, values in (("loss", iter(losses)), ("score", iter(scores))):
            monkeypatch.setattr(
                Validator, name, lambda self, model, records=None, it=values: next(it)
            )

    return follow


def test_the_metric_selects_and_the_loss_decides_between_equals(tmp_path, scripted):
    # Validations at steps 4, 8, 12, 16 and 18; then the candidates: last, best, average.
    losses, scores = [1.0, 3.0, 2.0, 2.5, 4.0], [7.0, 9.0, 9.0, 9.0, 8.0]
    scripted([*losses, 4.0, 2.0, 5.0], [*scores, 8.0, 9.0, 8.5])
    card = small_run(tmp_path, {**BY_METRIC, "training.steps": 18})
    assert (card["checkpoint"], card["selected_by"]) == ("step 12", "bleu")
    progress = StateFolder(tmp_path / "state").progress()
    assert (progress.best_step, progress.best_loss, progress.best_metric) == (12, 2.0, 9.0)
    assert progress.stale == 2


def test_an_average_can_win_by_the_metric(tmp_path, scripted):
    scripted([1.0, 2.0, 3.0, 3.0, 1.0, 9.0], [5.0, 4.0, 3.0, 3.0, 5.0, 6.0])
    assert small_run(tmp_path, BY_METRIC)["checkpoint"] == "average of the last 2 validations"


def test_a_resumed_run_selects_the_same(tmp_path):
    small_run(tmp_path / "whole", BY_METRIC)
    stop = AfterSteps(6, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Interrupted):
        small_run(tmp_path / "split", BY_METRIC, reporter=stop)
    small_run(tmp_path / "split", BY_METRIC, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    assert StateFolder(tmp_path / "split" / "state").progress().best_metric is not None


@pytest.mark.parametrize("name", ["translation", "classification", "language-model"])
def test_the_rank_follows_the_direction_of_the_metric(name):
    validator = Validator(TASKS[name], None, None, [], None, None, by_metric=True)
    worse, better = Validation(1.0, 10.0), Validation(2.0, 20.0)
    if not TASKS[name].metric.higher_is_better:
        worse, better = Validation(1.0, 20.0), Validation(2.0, 10.0)
    assert validator.rank(better) < validator.rank(worse) < validator.rank(Validation(0.5))


def test_auto_selects_by_the_metric_where_records_are_few_and_else_by_loss():
    config, translation = load_recipe("small").training, TASKS["translation"].metric
    assert is_by_metric(config, translation, FEW)
    assert is_by_metric(config, TASKS["classification"].metric, FEW)
    assert not is_by_metric(config, translation, FEW + 1)
    assert not is_by_metric(config, translation, 1, has_learned=True)
    assert not is_by_metric(config, TASKS["language-model"].metric, 1)
    unmeasured = config.model_copy(update={"validation_bleu": 0})
    assert not is_by_metric(unmeasured, translation, 1)
    chosen = config.model_copy(update={"select": "metric"})
    assert is_by_metric(chosen, TASKS["language-model"].metric, FEW + 1, has_learned=True)
    assert not is_by_metric(config.model_copy(update={"select": "loss"}), translation, 1)
