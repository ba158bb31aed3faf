"""What training promises: the right mean, the right weights, the right moment to stop."""

import json
import math
import re
import shutil
import tomllib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import attendo
from attendo.bundle import parameters_of, read_tensors
from attendo.config import TrainingConfig, load_recipe
from attendo.data.batches import Batch, Position, stream
from attendo.data.builtin import sentences
from attendo.data.packing import pad_grid
from attendo.data.prefetch import upload
from attendo.data.readers import ReadReport
from attendo.data.texts import Texts, open_texts
from attendo.errors import AttendoError, ConfigError, TrainingError
from attendo.losses import Loss
from attendo.models import build_model
from attendo.nn.attention import ATTENTIONS
from attendo.nn.feedforward import FEED_FORWARDS
from attendo.nn.layers import NORMS
from attendo.nn.positions import POSITIONS
from attendo.reporter import Console, Reporter
from attendo.specials import IGNORE
from attendo.tasks import Translation
from attendo.training.auto import choose_settings
from attendo.training.learner import Learner, Validator, without_tiny_numbers
from attendo.training.log import read_log
from attendo.training.optimization import (
    OPTIMIZERS,
    SCHEDULES,
    Muon,
    build_optimizers,
    orthogonalised,
)
from attendo.training.run import train_run
from small_runs import (
    CPU,
    SETTINGS,
    Workshop,
    assert_same_run,
    command,
    open_workshop,
    same_tensors,
    small_recipe,
    small_run,
    start,
    timeless_log,
)

STEADY = {"training.precision": "fp32", "model.p_drop": 0.0}
"""Without dropout, so that a loss can be computed twice."""


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> Workshop:
    return open_workshop(small_recipe(), tmp_path_factory.mktemp("workshop") / "data")


def batches(workshop: Workshop, **changes: Any) -> Iterator[Batch]:
    recipe = small_recipe(changes)
    layout = workshop.task.layout(recipe.data, recipe.training.batch_tokens)
    return (batch for _, batch in stream(workshop.data.train, layout, 1, Position()))


# -- one update ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("accumulate", [2, 3, 100])
def test_accumulated_parts_give_the_weights_of_one_big_batch(workshop, layout, accumulate):
    changes = {
        **STEADY,
        "data.layout": layout,
        "training.optimizer": "adam",
        # Adam turns gradients near zero, where rounding decides the sign, into whole steps.
        "training.epsilon": 1e-3,
        "training.schedule": "constant",
        "training.learning_rate": 1e-2,
    }
    whole = workshop.learner(small_recipe(changes))
    parts = workshop.learner(small_recipe({**changes, "training.accumulate": accumulate}))
    counts = set()
    for step, batch in enumerate(islice(batches(workshop, **{"data.layout": layout}), 4), start=1):
        counts |= {int((part.labels != IGNORE).sum()) for part in batch.split(accumulate)}
        losses = [learner.update(batch, step) for learner in (whole, parts)]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)
    assert len(counts) > 1, "equal parts would hide a mean that is taken twice"
    others = parameters_of(parts.model)
    for name, weight in parameters_of(whole.model).items():
        torch.testing.assert_close(weight, others[name], rtol=0, atol=1e-6)


def test_without_dropout_two_readings_teach_what_one_does(workshop):
    learners = [
        workshop.learner(small_recipe({**STEADY, "training.r_drop": weight}))
        for weight in (0.0, 2.0)
    ]
    for step, batch in enumerate(islice(batches(workshop), 4), start=1):
        losses = [learner.update(batch, step) for learner in learners]
        torch.testing.assert_close(*losses, rtol=1e-5, atol=1e-5)


def test_with_dropout_two_readings_must_agree(workshop):
    batch = next(batches(workshop))
    losses = []
    for weight in (1e-6, 1.0):
        learner = workshop.learner(small_recipe({"model.p_drop": 0.3, "training.r_drop": weight}))
        losses.append(float(learner.update(batch, 1)))
    assert losses[1] > losses[0] + 1, "the same random numbers, and the distance on top"


def test_the_moving_average_follows_its_formula(workshop):
    learner = workshop.learner(small_recipe({"training.ema": 0.75}))
    expected = {name: weight.double() for name, weight in parameters_of(learner.model).items()}
    for step, batch in enumerate(islice(batches(workshop), 5), start=1):
        learner.update(batch, step)
        for name, weight in parameters_of(learner.model).items():
            expected[name] = 0.75 * expected[name] + 0.25 * weight.double()
    for name, average in learner.ema.items():
        torch.testing.assert_close(average.double(), expected[name], rtol=1e-5, atol=1e-6)
        assert not torch.equal(average, parameters_of(learner.model)[name])


@pytest.mark.parametrize("limit", [0.01, 0.0])
def test_clipping_limits_the_norm_of_the_gradient(workshop, monkeypatch, limit):
    learner = workshop.learner(small_recipe({"training.clip_norm": limit}))
    norms: list[float] = []

    def note() -> None:
        gradients = [parameter.grad for parameter in learner.model.parameters()]
        norms.append(float(torch.stack([gradient.norm() for gradient in gradients]).norm()))

    monkeypatch.setattr(learner.optimizers[0], "step", note)
    learner.update(next(batches(workshop)), 1)
    assert norms[0] == pytest.approx(limit, rel=1e-3) if limit else norms[0] > 0.1


def test_bf16_gives_nearly_the_loss_of_fp32(workshop):
    precise = workshop.learner(small_recipe({**STEADY, "training.precision": "fp32"}))
    rough = workshop.learner(small_recipe({**STEADY, "training.precision": "bf16"}))
    for step, batch in enumerate(islice(batches(workshop), 6), start=1):
        losses = [float(learner.update(batch, step)) for learner in (precise, rough)]
        assert losses[0] != losses[1], "bf16 did nothing"
        assert losses[1] == pytest.approx(losses[0], rel=0.01)  # bf16 has 8 bits
    assert {weight.dtype for weight in parameters_of(rough.model).values()} == {torch.float32}


# -- what is reported ----------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch) -> list[tuple[float, int, int]]:
    """Of everything that has been learned from: loss, labels, and labels of its whole batch."""
    measured: list[tuple[float, int, int]] = []
    measure = Translation.loss

    def noting(self: Translation, model: Any, batch: Batch, *weights: float) -> Loss:
        loss = measure(self, model, batch, *weights)
        if model.training:
            measured.append((float(loss.total.detach()), int(loss.n_labels), batch.n_labels))
        return loss

    monkeypatch.setattr(Translation, "loss", noting)
    return measured


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_reported_loss_is_the_mean_over_all_tokens_since_the_last_report(
    tmp_path, seen, accumulate
):
    small_run(tmp_path, {"data.layout": "padded", "training.accumulate": accumulate})
    reported = [entry["loss"] for entry in read_log(tmp_path / "log.jsonl") if "loss" in entry]
    updates = [[seen[0]]]
    for part in seen[1:]:  # a batch with few rows has fewer parts than requested
        is_whole = sum(count for _, count, _ in updates[-1]) == updates[-1][0][2]
        updates.append([part]) if is_whole else updates[-1].append(part)
    assert 12 * accumulate - 2 <= len(seen) <= 12 * accumulate
    assert len(reported) == len(updates) / 3 == 4
    for number, loss in enumerate(reported):
        parts = [part for update in updates[3 * number : 3 * number + 3] for part in update]
        totals, counts, _ = zip(*parts, strict=True)
        assert loss == round(sum(totals) / sum(counts), 4)
    assert len({count for _, count, _ in seen}) > 1, "equal batches would hide a mean of means"


def test_the_loss_is_smoothed_in_training_and_plain_in_validation(workshop):
    recipe = small_recipe({**STEADY, "training.label_smoothing": 0.3})
    learner = workshop.learner(recipe)
    batch = next(batches(workshop))
    inputs = batch.inputs
    hidden = learner.model.decode(inputs["target"], learner.model.encode(inputs["source"]))
    log_probs = learner.model.logits(hidden).log_softmax(-1)[batch.labels != IGNORE]
    right = log_probs.gather(1, batch.labels[batch.labels != IGNORE][:, None])
    expected = -(0.7 * right.sum() + 0.3 * log_probs.mean(1).sum())
    torch.testing.assert_close(learner.update(batch, 1), expected.detach(), rtol=1e-5, atol=1e-3)


def test_the_validation_loss_is_the_mean_log_probability_of_a_token(workshop, tmp_path):
    trainer = workshop.trainer(small_recipe(), tmp_path)
    model, task, pairs = trainer.learner.model, workshop.task, workshop.data.valid_texts
    found = trainer.validator.loss(model)
    assert model.training, "validation has to leave dropout as it was"
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    total = -sum(task.score(model.eval(), sources, targets, CPU))
    n_tokens = sum(len(task.target.encode(target)) + 1 for target in targets)
    assert found == pytest.approx(total / n_tokens, rel=1e-5)


def test_the_log_has_a_line_for_every_report_and_every_validation(tmp_path):
    small_run(tmp_path, {"training.steps": 14, "training.validation_bleu": 3})
    lines = (tmp_path / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    reports = [entry for entry in entries if "loss" in entry]
    validations = [entry for entry in entries if "valid_loss" in entry]
    assert [entry["step"] for entry in reports] == [3, 6, 9, 12, 14]
    assert [entry["step"] for entry in validations] == [4, 8, 12, 14]
    assert [entry["step"] for entry in entries] == sorted(entry["step"] for entry in entries)
    for entry in reports:
        assert {"learning_rate", "epoch", "tokens_per_second", "seconds"} <= entry.keys()
        assert entry["tokens_per_second"] > 0
    assert all(0 <= entry["valid_bleu"] <= 100 for entry in validations)


def test_tensorboard_files_hold_what_the_log_holds(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    small_run(tmp_path / "without")
    assert not (tmp_path / "without" / "tensorboard").exists()
    small_run(tmp_path / "with", {"training.tensorboard": True})
    events = EventAccumulator(str(tmp_path / "with" / "tensorboard"))
    events.Reload()
    log = read_log(tmp_path / "with" / "log.jsonl")
    for name in ("loss", "valid_loss", "learning_rate"):
        written = [(event.step, event.value) for event in events.Scalars(name)]
        assert written == [
            (entry["step"], pytest.approx(entry[name])) for entry in log if name in entry
        ]


def test_tensorboard_forgets_steps_that_are_done_again(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from attendo.training.log import TensorBoard

    for from_step, last in ((0, 8), (5, 9)):
        board = TensorBoard(tmp_path, from_step=from_step)
        for step in range(from_step + 1, last + 1):
            board.add({"step": step, "loss": float(step)})
        board.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("loss")] == list(range(1, 10))


class Listening(Reporter):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


def test_messages_go_to_standard_error_only(capsys):
    console = Console()
    console.say("a message [with] brackets")
    with console.bar("working", 3) as advance:
        advance(1, "")
        advance(0, "a remark")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "a message [with] brackets" in captured.err


def test_a_remark_stays_beside_the_bar_until_the_next_one(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    console = Console()
    with console.bar("working", 9) as advance:
        advance(1, "loss 4.5")
        advance(1, "")
    last = capsys.readouterr().err.split("\r")
    drawn = [line for line in last if "2/9" in line]
    assert drawn
    assert all("loss 4.5" in line for line in drawn)


def test_without_a_terminal_a_line_says_from_time_to_time_how_far_it_is(monkeypatch, capsys):
    with Console().bar("working", 2000, done=10) as advance:
        advance(1, "a remark")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("attendo.reporter.PAUSE", 0.0)
    with Console().bar("working", 2000, done=10) as advance:
        advance(990, "")
        advance(500, "a remark")
        advance(500, "")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["working: 1,000 of 2,000", "working: 1,500 of 2,000, a remark"]


def test_the_silent_reporter_is_silent(capsys):
    Reporter().say("nothing")
    with Reporter().bar("working", 3) as advance:
        advance(1, "remark")
    assert capsys.readouterr() == ("", "")


# -- when a training ends ------------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch):
    """Replace the results of validations by those of a list."""

    def follow(losses: list[float]) -> None:
        script = iter(losses)
        monkeypatch.setattr(Validator, "loss", lambda self, model: next(script))

    return follow


def test_training_stops_when_patience_runs_out_and_keeps_best_and_last(tmp_path, scripted):
    scripted([3.0, 2.0, 2.5, 2.0, 2.1, 9.0, 1.0, 9.0])  # three validations without a better loss
    card = small_run(tmp_path, {"training.steps": 1000, "training.patience": 3})
    assert card["steps"] == 4 * 5
    state = tmp_path / "state"
    assert [path.name for path in state.glob("step-*")] == ["step-00000020"]
    assert [path.name for path in state.glob("best-*")] == ["best-00000008.safetensors"]
    progress = json.loads((state / "step-00000020" / "progress.json").read_text())
    assert (progress["best_loss"], progress["best_step"], progress["stale"]) == (2.0, 8, 3)
    best = read_tensors(state / "best-00000008.safetensors")
    assert same_tensors(best, read_tensors(state / "weights-00000008.safetensors"))
    last = read_tensors(state / "step-00000020" / "weights.safetensors")
    assert same_tensors(last, read_tensors(state / "weights-00000020.safetensors"))
    # Candidates: last, best, average; the script makes the second one win.
    assert card["checkpoint"] == "step 8"
    assert same_tensors(best, read_tensors(tmp_path / "model.safetensors"))


def test_more_patience_lets_a_stopped_run_go_on(tmp_path, scripted):
    scripted([1.0, *[2.0] * 100])
    impatient = {"training.steps": 24, "training.patience": 2}
    assert small_run(tmp_path, impatient)["steps"] == 12
    patient = {"training.steps": 24, "training.patience": 0}
    assert small_run(tmp_path, patient, resume=True)["steps"] == 24


def test_only_what_averaging_needs_is_kept(tmp_path):
    small_run(tmp_path, {"training.steps": 24, "training.average": 3})
    kept = sorted(path.name for path in (tmp_path / "state").glob("weights-*"))
    assert kept == [f"weights-{step:08d}.safetensors" for step in (16, 20, 24)]
    assert len(list((tmp_path / "state").glob("best-*"))) == 1


@pytest.mark.parametrize(
    ("winner", "name"),
    enumerate(["step 12", "step 8", "average of the last 2 validations", "moving average"]),
)
def test_the_weights_with_the_lowest_validation_loss_are_chosen(tmp_path, scripted, winner, name):
    final = [5.0] * 4
    final[winner] = 4.0
    scripted([3.0, 2.0, 2.5, *final])
    card = small_run(tmp_path, {"training.ema": 0.9, "training.average": 2})
    assert card["checkpoint"] == name
    state = tmp_path / "state"
    snapshots = [read_tensors(state / f"weights-{step:08d}.safetensors") for step in (8, 12)]
    candidates = [
        read_tensors(state / "step-00000012" / "weights.safetensors"),
        read_tensors(state / "best-00000008.safetensors"),
        {key: (snapshots[0][key] + snapshots[1][key]) / 2 for key in snapshots[0]},
        read_tensors(state / "step-00000012" / "ema.safetensors"),
    ]
    chosen = read_tensors(tmp_path / "model.safetensors")
    assert [same_tensors(chosen, weights) for weights in candidates] == [
        number == winner for number in range(4)
    ]


# -- when a training breaks ----------------------------------------------------------------------


@pytest.fixture
def breaking(monkeypatch):
    """Let one training batch go wrong; returns the batches that were learned from."""

    def at_step(number: int, spoil) -> list[Batch]:
        learned: list[Batch] = []
        measure, update = Translation.loss, Learner.update

        def updated(self: Learner, batch: Batch, step: int) -> Tensor:
            learned.append(batch)
            return update(self, batch, step)

        def measured(self: Translation, model: Any, batch: Batch, *weights: float) -> Loss:
            loss = measure(self, model, batch, *weights)
            is_spoiled = model.training and len(learned) == number
            return spoil(loss, model) if is_spoiled else loss

        monkeypatch.setattr(Learner, "update", updated)
        monkeypatch.setattr(Translation, "loss", measured)
        return learned

    return at_step


def with_loss(value: float):
    return lambda loss, model: loss._replace(total=loss.total * value)


def with_broken_gradient(loss: Loss, model: nn.Module) -> Loss:
    """Keep the value; the slope of a square root at zero is infinite."""
    zero = sum(parameter.sum() for parameter in model.parameters()) * 0
    return loss._replace(total=loss.total + zero.sqrt())


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (with_loss(math.nan), "the loss of step 7 is nan"),
        (with_loss(math.inf), "the loss of step 7 is inf"),
        (with_broken_gradient, "step 7 has made parameters that are not finite"),
    ],
    ids=["nan", "inf", "gradient"],
)
def test_a_broken_step_is_named_with_its_sentences_and_never_saved(
    tmp_path, breaking, layout, spoil, message
):
    every = {"training.log_every": 7, "training.validate_every": 7, "training.save_every": 3}
    changes = {**every, "data.layout": layout, "training.clip_norm": 0.0}
    learned = breaking(7, spoil)
    with pytest.raises(TrainingError) as caught:
        small_run(tmp_path, changes)
    path = tmp_path / "broken-batch-7.jsonl"
    assert str(caught.value).startswith(f"{message}; its batch is in {path}. ")
    texts = list(open_texts(small_recipe(changes).data).train())
    expected = [texts[number]._asdict() for number in learned[6].records]
    written = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert sorted(written, key=str) == sorted(expected, key=str)
    assert [state.name for state in (tmp_path / "state").glob("step-*")] == ["step-00000006"]
    for file in (tmp_path / "state").rglob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in read_tensors(file).values()), file
    assert all("valid_loss" not in entry for entry in read_log(tmp_path / "log.jsonl"))


def test_a_broken_step_is_found_although_the_report_comes_much_later(tmp_path, breaking):
    breaking(2, with_loss(math.nan))
    every = {f"training.{name}_every": 10 for name in ("log", "validate", "save")}
    with pytest.raises(TrainingError, match="the loss of step 2 is nan"):
        small_run(tmp_path, every)
    assert not list((tmp_path / "state").glob("step-*"))


def test_a_broken_run_goes_on_from_before_the_break(tmp_path, breaking, monkeypatch):
    breaking(7, with_loss(math.nan))
    with pytest.raises(TrainingError):
        small_run(tmp_path / "broken")
    monkeypatch.undo()
    small_run(tmp_path / "broken", resume=True)
    small_run(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_a_reckless_learning_rate_stops_with_advice_and_saves_nothing_broken(tmp_path):
    reckless = {
        "training.learning_rate": 1e6,
        "training.weight_decay": 1e3,
        "training.schedule": "constant",
        "training.optimizer": "adamw",
        "training.warmup_steps": 0,
        "training.save_every": 1,
        "training.log_every": 1,
    }
    with pytest.raises(TrainingError, match=r"lowering training\.learning_rate"):
        small_run(tmp_path, reckless)
    saved = [read_tensors(path) for path in (tmp_path / "state").rglob("weights.safetensors")]
    assert all(weight.isfinite().all() for state in saved for weight in state.values())


# -- schedules -----------------------------------------------------------------------------------


@given(
    kind=st.sampled_from(sorted(SCHEDULES)),
    steps=st.integers(1, 10**6),
    warmup=st.integers(0, 10**6),
    step=st.integers(1, 2 * 10**6),
    d_model=st.integers(2, 8192),
)
def test_every_schedule_is_finite_and_never_negative(kind, steps, warmup, step, d_model):
    config = TrainingConfig(steps=steps, warmup_steps=warmup)
    factor = SCHEDULES[kind](step, config, d_model)
    assert math.isfinite(factor)
    assert factor >= 0
    if step <= steps:
        assert factor > 0, "a step that changes nothing"


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("warmup", [1, 7, 60])
def test_every_schedule_rises_to_its_peak_at_the_end_of_the_warm_up(kind, warmup):
    config = TrainingConfig(steps=100, warmup_steps=warmup)
    factors = [SCHEDULES[kind](step, config, 64) for step in range(1, 101)]
    rise = factors[:warmup]
    assert rise == sorted(rise)
    assert max(factors) == pytest.approx(factors[warmup - 1])
    assert rise == pytest.approx([step / warmup * rise[-1] for step in range(1, warmup + 1)])
    assert factors[warmup - 1 :] == sorted(factors[warmup - 1 :], reverse=True)


def test_the_paper_schedule_is_equation_3():
    config = TrainingConfig(steps=100_000, warmup_steps=4000)
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert SCHEDULES["paper"](step, config, 512) == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_cosine_and_linear_end_near_zero(kind):
    config = TrainingConfig(steps=1000, warmup_steps=100)
    assert 0 < SCHEDULES[kind](1000, config, 64) < 0.002
    assert SCHEDULES[kind](550, config, 64) == pytest.approx(0.5, abs=0.002)


def test_the_learning_rate_is_the_factor_times_the_setting(workshop):
    recipe = small_recipe({"training.learning_rate": 0.5, "training.schedule": "linear"})
    learner = workshop.learner(recipe)
    learner.update(next(batches(workshop)), 5)
    expected = 0.5 * SCHEDULES["linear"](5, recipe.training, 16)
    rates = {group["lr"] for optimizer in learner.optimizers for group in optimizer.param_groups}
    assert rates == {expected}


# -- optimizers ----------------------------------------------------------------------------------


KINDS = [
    *({"attention": kind} for kind in ATTENTIONS),
    *({"positions": kind} for kind in POSITIONS),
    *({"feed_forward": kind} for kind in FEED_FORWARDS),
    *({"norm": kind} for kind in NORMS),
    *({"tied": kind} for kind in ("all", "output", "none")),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kinds", KINDS, ids=str)
def test_every_weight_belongs_to_exactly_one_optimizer(optimizer, kinds):
    recipe = small_recipe({f"model.{key}": value for key, value in kinds.items()})
    model = build_model(recipe.model, 41, 41)
    optimizers = build_optimizers(model, TrainingConfig(optimizer=optimizer))
    owned = [
        id(parameter)
        for one in optimizers
        for group in one.param_groups
        for parameter in group["params"]
    ]
    assert len(owned) == len(set(owned))
    learned = (parameter for parameter in model.parameters() if parameter.requires_grad)
    assert set(owned) == {id(parameter) for parameter in learned}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_weight_decay_shrinks_matrices_and_nothing_else(optimizer):
    model = build_model(small_recipe().model, 41, 41)
    config = TrainingConfig(optimizer=optimizer, weight_decay=0.5, learning_rate=0.1)
    before = {name: weight.clone() for name, weight in parameters_of(model).items()}
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for one in build_optimizers(model, config):
        one.step()
    for name, weight in parameters_of(model).items():
        is_decayed = weight.ndim > 1 and optimizer != "adam"  # the paper's has no decay
        factor = 0.95 if is_decayed else 1.0
        torch.testing.assert_close(weight, factor * before[name], msg=name)


def test_muon_for_many_matrices_is_muon_for_each():
    shapes = [(6, 6)] * 3 + [(10, 6)] * 2 + [(6, 10)]
    ours = [nn.Parameter(torch.randn(*shape)) for shape in shapes]
    theirs = [nn.Parameter(weight.detach().clone()) for weight in ours]
    optimizers = (
        Muon(ours, lr=torch.tensor(0.01), weight_decay=0.1),
        torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    )
    for _ in range(4):
        for left, right in zip(ours, theirs, strict=True):
            left.grad = torch.randn_like(left)
            right.grad = left.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-4)  # rounding of bf16


def test_every_direction_of_an_orthogonalised_matrix_is_about_as_large():
    matrices = torch.randn(3, 20, 30)
    for wide_or_tall in (matrices, matrices.mT):
        found = orthogonalised(wide_or_tall)
        assert found.shape == wide_or_tall.shape
        values = torch.linalg.svdvals(found.float())
        assert values.min() > 0.5
        assert values.max() < 1.3


WORDS = 10
"""Different words of the copy task."""


def copy_batch(workshop: Workshop, chance: torch.Generator) -> Batch:
    """Make sentences whose translation is themselves."""
    specials = workshop.task.target.specials
    rows = torch.randint(10, 10 + WORDS, (16, 5), generator=chance).tolist()
    labels = torch.tensor([[*row, specials.eos] for row in rows])
    source = pad_grid([[*row, specials.eos] for row in rows], specials.pad)
    target = pad_grid([[specials.bos, *row] for row in rows], specials.pad)
    return Batch({"source": source, "target": target}, labels, labels.numel(), ())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_learns_to_copy(workshop, optimizer):
    changes = {
        **STEADY,
        "model.d_model": 32,
        "training.optimizer": optimizer,
        "training.learning_rate": 0.01,
        "training.schedule": "constant",
        "training.label_smoothing": 0.0,
    }
    learner = workshop.learner(small_recipe(changes))
    chance = torch.Generator().manual_seed(1)
    losses = []
    for step in range(1, 101):
        batch = copy_batch(workshop, chance)
        losses.append(float(learner.update(batch, step)) / batch.n_labels)
    assert losses[0] > math.log(WORDS)  # worse than guessing among the right ones
    assert sum(losses[-5:]) / 5 < 0.5 * math.log(WORDS)


# -- the same again ------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(tmp_path):
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        torch.manual_seed(len(name))  # what happened before must not matter
        small_run(tmp_path / name, {"model.p_drop": 0.1, "training.seed": seed})
    first, again, other = (
        read_tensors(tmp_path / name / "model.safetensors") for name in ("first", "again", "other")
    )
    assert same_tensors(first, again)
    assert timeless_log(tmp_path / "first") == timeless_log(tmp_path / "again")
    assert not any(torch.equal(first[name], other[name]) for name in first if first[name].ndim > 1)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_training_has_nearly_the_same_losses(tmp_path):
    # In processes of their own: the checks of shapes that tests switch on cannot be compiled.
    changes = {**STEADY, "training.steps": 6}
    processes = [
        start(command(tmp_path / name, {**changes, "training.compile": is_compiled}))
        for name, is_compiled in (("plain", False), ("compiled", True))
    ]
    for process in processes:
        _, messages = process.communicate(timeout=300)
        assert process.returncode == 0, messages
    plain, compiled = (
        [entry.get("loss", entry.get("valid_loss")) for entry in timeless_log(tmp_path / name)]
        for name in ("plain", "compiled")
    )
    assert compiled == pytest.approx(plain, abs=2e-3)


def test_numbers_that_are_nearly_nothing_are_nothing_in_a_training_and_only_there():
    smallest = torch.full((3,), 1e-38)
    with without_tiny_numbers(CPU):
        assert (smallest * 0.01 == 0).all()
    assert (smallest * 0.01 != 0).all()


# -- on a GPU --------------------------------------------------------------------------------------

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@needs_gpu
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("r_drop", [0.0, 1.0])
def test_the_recorded_step_learns_what_the_plain_step_learns(workshop, optimizer, r_drop):
    changes = {
        **STEADY,
        "training.optimizer": optimizer,
        "training.r_drop": r_drop,
        "training.ema": 0.9,
        "training.accumulate": 2,
    }
    losses = []
    for is_compiled in (False, True):
        learner = workshop.learner(
            small_recipe({**changes, "training.compile": is_compiled}), "cuda"
        )
        some = islice(batches(workshop), 12)
        losses.append([float(learner.update(batch, n)) for n, batch in enumerate(some, start=1)])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


FAST = {
    "model.d_model": 64,
    "model.norm_order": "post",
    "training.precision": "bf16",
    "training.label_smoothing": 0.1,
}
"""A model for which all kernels are made."""


@needs_gpu
def test_the_kernels_learn_what_the_plain_code_learns(workshop):
    changes = {**STEADY, **FAST, "training.compile": False}
    learners = [workshop.learner(small_recipe(changes), "cuda") for _ in range(2)]
    for stack in (learners[1].model.encoder, learners[1].model.decoder):
        stack.faster = None
    for step, batch in enumerate(islice(batches(workshop), 8), start=1):
        faster = float(learners[0].update(batch, step))
        assert float(learners[1].update(batch, step)) == pytest.approx(faster, rel=5e-3)


@needs_gpu
def test_every_play_of_a_recorded_step_drops_other_places(workshop):
    changes = {**FAST, "model.p_drop": 0.5, "training.learning_rate": 1e-12}
    learner = workshop.learner(small_recipe(changes), "cuda")
    batch = next(batches(workshop))
    losses = [float(learner.update(batch, step)) for step in range(1, 9)]
    assert len(set(losses)) == len(losses)


@needs_gpu
@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_a_run_on_a_gpu_can_be_stopped_and_resumed(tmp_path, layout):
    steady = {**STEADY, "training.schedule": "constant", "training.deterministic": True}
    changes = {**steady, **FAST, "data.layout": layout}
    small_run(tmp_path / "whole", changes, device="cuda")
    small_run(tmp_path / "parts", {**changes, "training.steps": 5}, device="cuda")
    small_run(tmp_path / "parts", changes, resume=True, device="cuda")
    left, right = (timeless_log(tmp_path / name)[-1] for name in ("whole", "parts"))
    assert right["valid_loss"] == pytest.approx(left["valid_loss"], rel=1e-2)


@needs_gpu
def test_the_deterministic_switch_makes_trainings_on_a_gpu_the_same(tmp_path):
    for name in ("first", "again"):
        changes = {
            "training.deterministic": True,
            "model.p_drop": 0.1,
            "training.optimizer": "muon",
        }
        small_run(tmp_path / name, changes, device="cuda")
    first, again = (
        read_tensors(tmp_path / name / "model.safetensors") for name in ("first", "again")
    )
    assert same_tensors(first, again)


@needs_gpu
def test_uploaded_batches_are_the_same_and_in_order(workshop):
    pairs = islice(batches(workshop), 5)
    numbered = [(Position(0, number), batch) for number, batch in enumerate(pairs)]
    for (position, batch), (expected, original) in zip(
        upload(iter(numbered), GPU), numbered, strict=True
    ):
        assert position == expected
        for left, right in zip(batch.tensors(), original.tensors(), strict=True):
            assert left.is_cuda
            assert torch.equal(left.cpu(), right)


# -- the recipe auto -----------------------------------------------------------------------------


def texts_of(n_pairs: int, characters: float = 60.0) -> Texts:
    return Texts(lambda: iter(()), [], [], n_pairs, characters, ReadReport())


GPU = torch.device("cuda")
SIZES = (1_000, 30_000, 500_000, 3_000_000)


@pytest.mark.parametrize("device", [CPU, GPU])
@pytest.mark.parametrize("n_pairs", SIZES)
@pytest.mark.parametrize("characters", [1.0, 60.0, 2000.0])
def test_auto_chooses_everything_with_a_reason(n_pairs, device, characters):
    recipe, choices = choose_settings(load_recipe("auto"), texts_of(n_pairs, characters), device)
    assert not recipe.auto
    assert all(choice.reason.strip() for choice in choices)
    made = {choice.key: choice.value for choice in choices}
    assert len(made) == len(choices)
    assert len({choice.key.split(".")[0] for choice in choices}) == 4
    for key, value in made.items():
        section, name = key.split(".")
        assert getattr(getattr(recipe, section), name) == value
    training = recipe.training
    assert training.warmup_steps < training.steps
    assert training.validate_every <= training.steps
    assert recipe.data.max_length <= training.batch_tokens


@pytest.mark.parametrize("device", [CPU, GPU])
def test_auto_gives_more_data_a_larger_vocabulary_and_less_dropout(device):
    recipes = [choose_settings(load_recipe("auto"), texts_of(n), device)[0] for n in SIZES]
    sizes = [recipe.tokenizer.vocabulary for recipe in recipes]
    assert sizes == sorted(set(sizes))
    dropout = [recipe.model.p_drop for recipe in recipes]
    assert dropout == sorted(dropout, reverse=True)
    assert dropout[0] > dropout[-1]
    widths = [recipe.model.d_model for recipe in recipes]
    assert widths == sorted(widths)
    assert widths[0] < widths[-1]


@pytest.mark.parametrize("device", [CPU, GPU])
def test_auto_makes_no_batch_that_is_larger_than_a_small_corpus(device):
    small = choose_settings(load_recipe("auto"), texts_of(100), device)[0].training
    tokens = 100 * 60 / 4
    assert tokens < small.batch_tokens < 2 * tokens
    assert choose_settings(load_recipe("auto"), texts_of(2), device)[0].training.batch_tokens == 512
    large = choose_settings(load_recipe("auto"), texts_of(10_000), device)[0].training
    assert large.batch_tokens >= 4096


def test_auto_asks_less_of_a_cpu_than_of_a_gpu():
    for n_pairs in SIZES:
        on_cpu, on_gpu = (
            choose_settings(load_recipe("auto"), texts_of(n_pairs), device)[0]
            for device in (CPU, GPU)
        )
        assert on_cpu.training.batch_tokens < on_gpu.training.batch_tokens
        assert on_cpu.model.d_model <= on_gpu.model.d_model
    assert on_cpu.model.d_model < on_gpu.model.d_model


def test_auto_keeps_what_the_person_has_set():
    given = {
        "model.d_model": 64,
        "model.p_drop": 0.0,
        "tokenizer.vocabulary": 777,
        "training.optimizer": "adam",
        "training.batch_tokens": 1000,
        "decoding.beam": 7,
    }
    before = load_recipe("auto", given)
    recipe, choices = choose_settings(before, texts_of(30_000), CPU)
    for key, value in given.items():
        section, name = key.split(".")
        assert getattr(getattr(recipe, section), name) == value
    assert not {choice.key for choice in choices} & given.keys()


def test_auto_follows_what_the_person_has_set():
    few = load_recipe("auto", {"training.steps": 200, "training.schedule": "paper"})
    training = choose_settings(few, texts_of(500_000), GPU)[0].training
    assert training.warmup_steps == 20, "a tenth of the steps there are"
    assert training.validate_every <= 200
    assert training.learning_rate == 1.0, "a factor on the paper's formula"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("files")
    pairs = list(islice(sentences(seed=5), 200))
    for name, lines in (
        ("a.en", [pair.source for pair in pairs]),
        ("a.de", [pair.target for pair in pairs]),
    ):
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(folder / "a.en"), str(folder / "a.de")


TINY = {
    "tokenizer.vocabulary": 400,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "training.steps": 5,
    "training.batch_tokens": 512,
    "decoding.max_extra": 1,
}


def test_auto_turns_two_text_files_into_a_whole_run(tmp_path, files, capsys):
    source, target = files
    translator = attendo.train(
        "auto", out=tmp_path / "run", source=source, target=target, settings=TINY, device="cpu"
    )
    for name in (
        "recipe.toml",
        "tokenizer.json",
        "model.safetensors",
        "scorecard.json",
        "log.jsonl",
        "curve.png",
        "state",
    ):
        assert (tmp_path / "run" / name).exists(), name
    recipe = tomllib.loads((tmp_path / "run" / "recipe.toml").read_text())
    assert recipe["auto"] is False
    assert recipe["data"]["source"] == [source]
    for key, value in TINY.items():
        section, name = key.split(".")
        assert recipe[section][name] == value
    complete = load_recipe(str(tmp_path / "run" / "recipe.toml")).model_dump(mode="json")
    for section in ("data", "tokenizer", "model", "training", "decoding"):
        missing = {key for key, value in complete[section].items() if value is not None}
        assert not missing - recipe[section].keys()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "chosen for this data and hardware:" in captured.err
    assert "training.optimizer = muon  (" in captured.err
    assert "training.steps" not in captured.err, "the person has chosen that"
    assert isinstance(translator.translate(["The dog sleeps."])[0], str)


def test_a_test_with_sentences_that_are_trained_on_is_not_kept_secret(tmp_path, files, capsys):
    settings = {
        **{key: value for key, value in SETTINGS.items() if key != "data.builtin"},
        "training.steps": 1,
        **dict(zip(("data.source", "data.target"), files, strict=True)),
        **dict(zip(("data.test_source", "data.test_target"), files, strict=True)),
    }
    train_run("tiny", settings, tmp_path / "run", CPU, reporter=Console())
    said = capsys.readouterr().err
    ((kind, known, total),) = re.findall(r"(\w+) sources that .*: (\d+) of (\d+);", said)
    assert kind == "test", "what is split off for validation is not trained on"
    assert 0 < int(known) < int(total), "and what is tested may be what was split off"


def test_the_command_prints_its_result_and_nothing_else_to_standard_output(tmp_path):
    process = start([*command(tmp_path, {"training.steps": 4}), "--json"])
    output, messages = process.communicate(timeout=60)
    assert process.returncode == 0, messages
    card = json.loads(output)
    assert card["steps"] == 4
    assert {"bleu", "chrf", "signature", "sentences"} <= card.keys()
    assert "validation loss" in messages
    assert json.loads((tmp_path / "scorecard.json").read_text()) == card


# -- mistakes ------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match=r"cannot make the folder .*file/run"):
        small_run(tmp_path / "file" / "run")


def test_validation_pairs_that_are_all_too_long_are_refused(tmp_path):
    (tmp_path / "long.tsv").write_text(f"{'a dog ' * 200}\t{'ein Hund ' * 200}\n", encoding="utf-8")
    changes = {"data.builtin": 0, "data.valid_pairs": [str(tmp_path / "long.tsv")]}
    pairs = "".join(f"{one.source}\t{one.target}\n" for one in islice(sentences(seed=1), 60))
    (tmp_path / "train.tsv").write_text(pairs, encoding="utf-8")
    changes["data.pairs"] = [str(tmp_path / "train.tsv")]
    with pytest.raises(AttendoError, match="no validation record can be used: 1 longer than"):
        small_run(tmp_path / "run", changes)


def test_pairs_that_are_all_too_long_are_counted(tmp_path):
    with pytest.raises(AttendoError, match=r"no training record is left: [\d,]+ longer than"):
        small_run(tmp_path, {"data.max_length": 5})
    assert not (tmp_path / "state" / "data").exists()
