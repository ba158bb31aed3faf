"""A training that was stopped, in whatever way, ends as if it never had been."""

import errno
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import (
    AfterSteps,
    Workshop,
    assert_same_run,
    command,
    open_workshop,
    small_recipe,
    small_run,
    start,
    timeless,
    timeless_log,
)

from attendo.bundle import read_tensors
from attendo.config import Recipe
from attendo.errors import AttendoError, ConfigError
from attendo.reporter import Reporter
from attendo.training.interrupt import Interrupt
from attendo.training.log import Log, read_log
from attendo.training.optimizers import OPTIMIZERS
from attendo.training.run import Interrupted

EVERYTHING: dict[str, Any] = {
    "tokenizer.dropout": 0.1,
    "model.p_drop": 0.1,
    "training.ema": 0.9,
    "training.average": 2,
}
"""Settings with which all that can be restored has to be."""


# -- any split of the steps, in one process ------------------------------------------------------


@pytest.fixture(scope="module", params=[0.0, 0.1], ids=["bpe", "bpe-dropout"])
def workshop(request, tmp_path_factory) -> tuple[Workshop, float]:
    recipe = small_recipe({"tokenizer.dropout": request.param})
    return open_workshop(recipe, tmp_path_factory.mktemp("workshop") / "data"), request.param


def train_in_pieces(workshop: Workshop, recipe: Recipe, folder: Path, pieces: list[int]) -> None:
    """Train with a new trainer for each piece, stopped in the middle of its last step."""
    for n_steps in [*pieces, recipe.training.steps + 1]:
        trainer = workshop.trainer(recipe, folder)
        if trainer.is_done:
            break
        interrupt = Interrupt()
        log = Log(folder / "log.jsonl", from_step=trainer.progress.step)
        reporter = AfterSteps(n_steps, lambda it=interrupt: setattr(it, "is_asked", True))
        trainer.run(interrupt, reporter, [log])
        log.close()
    assert trainer.progress.step == recipe.training.steps


@pytest.mark.parametrize(
    ("optimizer", "layout", "accumulate"),
    product(OPTIMIZERS, ["packed", "padded"], [1, 3]),
)
def test_any_split_of_the_steps_gives_the_same_training(
    workshop, tmp_path, optimizer, layout, accumulate
):
    made, dropout = workshop
    recipe = small_recipe(
        {
            **EVERYTHING,
            "tokenizer.dropout": dropout,
            "data.layout": layout,
            "training.optimizer": optimizer,
            "training.accumulate": accumulate,
        }
    )
    train_in_pieces(made, recipe, tmp_path / "whole", [])
    for name, pieces in (("single", [1] * 12), ("uneven", [2, 5, 1, 3])):
        train_in_pieces(made, recipe, tmp_path / name, pieces)
        assert_same_run(tmp_path / "whole", tmp_path / name)


def test_resuming_goes_through_epochs(workshop, tmp_path):
    made, dropout = workshop
    steps = {"training.steps": 60, "training.save_every": 7, "tokenizer.dropout": dropout}
    recipe = small_recipe({**EVERYTHING, **steps})
    train_in_pieces(made, recipe, tmp_path / "whole", [])
    train_in_pieces(made, recipe, tmp_path / "split", [13, 29, 8])
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    assert timeless_log(tmp_path / "whole")[-2]["epoch"] >= 2


# -- whole runs ----------------------------------------------------------------------------------


def interrupted_after(n_steps: int, *signals: signal.Signals) -> Reporter:
    """Send real signals to this process in the middle of a step."""
    return AfterSteps(n_steps, lambda: [signal.raise_signal(number) for number in signals])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_and_the_resumed_run_ends_as_the_whole_one(tmp_path, number):
    small_run(tmp_path / "whole", EVERYTHING)
    with pytest.raises(Interrupted, match="^stopped and saved at step 7$"):
        small_run(tmp_path / "split", EVERYTHING, reporter=interrupted_after(7, number))
    assert (tmp_path / "split" / "state" / "step-00000007").is_dir()
    assert not (tmp_path / "split" / "scorecard.json").exists()
    small_run(tmp_path / "split", EVERYTHING, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "split")


def test_a_signal_in_the_last_step_stops_too(tmp_path):
    with pytest.raises(Interrupted, match="step 12"):
        small_run(tmp_path / "split", reporter=interrupted_after(12, signal.SIGINT))
    assert not (tmp_path / "split" / "scorecard.json").exists()
    small_run(tmp_path / "split", resume=True)
    small_run(tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "split")


def test_a_second_signal_stops_at_once(tmp_path):
    reporter = interrupted_after(7, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, reporter=reporter)
    assert [path.name for path in (tmp_path / "state").glob("step-*")] == ["step-00000005"]


def test_signals_mean_what_they_meant_before_once_training_is_over(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    small_run(tmp_path)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_disk_that_is_full_for_a_while_costs_no_more_than_time(tmp_path, monkeypatch):
    small_run(tmp_path / "whole", EVERYTHING)
    n_syncs, fsync = 0, os.fsync
    chance = random.Random(3)
    last = 2

    def failing(handle: int) -> None:
        nonlocal n_syncs
        n_syncs += 1
        if n_syncs == last:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", failing)
    for _ in range(12):
        n_syncs, last = 0, chance.randint(2, 60)
        try:
            small_run(tmp_path / "split", EVERYTHING, resume=True)
        except AttendoError as error:
            assert str(error).endswith("No space left on device")
        assert_whole_files(tmp_path / "split")
    monkeypatch.undo()
    small_run(tmp_path / "split", EVERYTHING, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "split")


def test_a_complete_run_is_left_as_it_is(tmp_path):
    card = small_run(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert small_run(tmp_path, resume=True) == card
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert before == after


def test_a_run_is_never_written_over_by_mistake(tmp_path):
    small_run(tmp_path)
    with pytest.raises(ConfigError, match="already holds a run; go on with it by --resume"):
        small_run(tmp_path)


# -- resuming with other settings ----------------------------------------------------------------


@pytest.fixture(scope="module")
def begun(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("begun") / "run"
    small_run(folder, EVERYTHING)
    return folder


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("data.builtin", 500, "[data]"),
        ("data.layout", "padded", "[data]"),
        ("tokenizer.vocabulary", 500, "[tokenizer]"),
        ("tokenizer.dropout", 0.2, "[tokenizer]"),
        ("model.d_model", 32, "[model]"),
        ("model.norm_order", "post", "[model]"),
        ("training.optimizer", "adam", "[training.optimizer]"),
        ("training.seed", 2, "[training.seed]"),
        ("training.ema", 0.0, "[training.ema]"),
    ],
)
def test_what_the_state_depends_on_cannot_be_changed(begun, key, value, named):
    recipe = (begun / "recipe.toml").read_bytes()
    with pytest.raises(ConfigError) as caught:
        small_run(begun, {**EVERYTHING, key: value}, resume=True)
    assert f"was begun with other settings in {named}; a resumed run keeps them" in str(
        caught.value
    )
    assert (begun / "recipe.toml").read_bytes() == recipe


CONSTANT: dict[str, Any] = {
    **EVERYTHING,
    "training.schedule": "constant",
    "training.log_every": 4,
    "training.validate_every": 4,
    "training.save_every": 4,
}


def test_more_steps_go_on_and_equal_a_run_that_had_them_from_the_start(tmp_path):
    short = small_run(tmp_path / "split", {**CONSTANT, "training.steps": 8})
    longer = small_run(tmp_path / "split", {**CONSTANT, "training.steps": 16}, resume=True)
    whole = small_run(tmp_path / "whole", {**CONSTANT, "training.steps": 16})
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    assert timeless(longer) == timeless(whole)
    assert short["steps"] == 8
    recipe = tomllib.loads((tmp_path / "split" / "recipe.toml").read_text())
    assert recipe["training"]["steps"] == 16


def test_a_prolonged_run_that_dies_before_its_score_card_is_finished_later(tmp_path, monkeypatch):
    """The old score card must not pass for the new one."""
    small_run(tmp_path / "split", {**CONSTANT, "training.steps": 8})
    with monkeypatch.context() as patch:
        patch.setattr("attendo.training.run._choose_weights", _die)
        with pytest.raises(MemoryError):
            small_run(tmp_path / "split", {**CONSTANT, "training.steps": 16}, resume=True)
    card = small_run(tmp_path / "split", {**CONSTANT, "training.steps": 16}, resume=True)
    assert card["steps"] == 16
    small_run(tmp_path / "whole", {**CONSTANT, "training.steps": 16})
    assert_same_run(tmp_path / "whole", tmp_path / "split")


def _die(*args: Any) -> None:
    raise MemoryError


def test_a_stopped_run_can_be_ended_where_it_is(tmp_path):
    with pytest.raises(Interrupted):
        small_run(tmp_path, reporter=interrupted_after(2, signal.SIGINT))
    card = small_run(tmp_path, {"training.steps": 2}, resume=True)
    assert (card["steps"], card["weights"]) == (2, "step 2")
    state = read_tensors(tmp_path / "state" / "step-00000002" / "weights.safetensors")
    model = read_tensors(tmp_path / "model.safetensors")
    assert all((state[name] == model[name]).all() for name in state)


# -- real processes ------------------------------------------------------------------------------


def assert_whole_files(folder: Path) -> None:
    """Read every file that does not have a temporary name, to its end."""
    for path in folder.rglob("*"):
        is_temporary = any(part.endswith(".tmp") for part in path.relative_to(folder).parts)
        if path.is_file() and not is_temporary:
            READERS[path.suffix](path)


def _read_png(path: Path) -> None:
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG")
    assert content.endswith(b"IEND\xaeB`\x82")


def _read_npz(path: Path) -> None:
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays:
            assert arrays[name] is not None


READERS: dict[str, Callable[[Path], Any]] = {
    ".safetensors": read_tensors,
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".jsonl": lambda path: [json.loads(line) for line in path.read_text().splitlines()],
    ".toml": lambda path: tomllib.loads(path.read_text(encoding="utf-8")),
    ".npy": lambda path: np.load(path, allow_pickle=False),
    ".npz": _read_npz,
    ".png": _read_png,
}
"""For every kind of file in a run folder how to find out whether it is whole."""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"the process ended by itself: {process.communicate()}")
        assert time.monotonic() < deadline
        time.sleep(0.005)


def version(path: Path) -> int:
    """Tell a file from the one that has replaced it."""
    return path.stat().st_ino if path.exists() else 0


def newest_step(folder: Path) -> int:
    return max((int(path.name[5:]) for path in (folder / "state").glob("step-*")), default=0)


def kill(arguments: list[str], folder: Path, phase: str, seconds: float) -> None:
    """Start the training and kill it some time after a phase has begun."""
    log = folder / "log.jsonl"
    log_before, step_before = version(log), newest_step(folder)
    process = start(arguments)
    if phase != "start":  # Before the first step, the log is written anew.
        wait_for(lambda: version(log) != log_before, process)
    if phase == "training":
        wait_for(lambda: newest_step(folder) > step_before, process)
    elif phase == "finishing":
        wait_for(lambda: newest_step(folder) == KILLED["training.steps"], process)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, f"{phase}: it was over before it was killed"


KILLED: dict[str, Any] = {
    **EVERYTHING,
    "data.hold_out": 60,
    "training.steps": 120,
    "training.batch_tokens": 2048,
    "training.save_every": 5,
    "training.validate_every": 10,
    "training.average": 5,
    # An untrained model says much: scoring takes long enough to be killed in.
    "decoding.strategy": "beam",
    "decoding.max_extra": 50,
}
PHASES = [*["start"] * 5, *["training"] * 10, *["finishing"] * 5]
LONGEST = {"start": 3.0, "training": 0.5, "finishing": 0.6}
"""Seconds of each phase in which the kill comes."""


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    chance = random.Random(20)
    undisturbed = start(command(whole, KILLED))
    for phase in PHASES:
        moment = chance.uniform(0.3 if phase == "start" else 0.0, LONGEST[phase])
        kill(command(killed, KILLED), killed, phase, moment)
        assert_whole_files(killed)
    finished = start(command(killed, KILLED))
    for process in (finished, undisturbed):
        output, messages = process.communicate(timeout=60)
        assert process.returncode == 0, messages
    assert_whole_files(whole)
    assert_same_run(whole, killed)
    for name in ("recipe.toml", "tokenizer.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    cards = [json.loads((folder / "scorecard.json").read_text()) for folder in (whole, killed)]
    assert timeless(cards[0]) == timeless(cards[1])
    assert not list(killed.rglob("*.tmp"))
    assert [entry["step"] for entry in read_log(killed / "log.jsonl") if "loss" in entry] == list(
        range(3, 121, 3)
    )


ENDLESS: dict[str, Any] = {**EVERYTHING, "training.steps": 100_000}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_command_says_how_to_go_on_and_that_works(tmp_path, number):
    folder = tmp_path / "my run"
    process = start(command(folder, ENDLESS))
    wait_for(lambda: newest_step(folder) >= 10, process)
    process.send_signal(number)
    output, messages = process.communicate(timeout=30)
    step = newest_step(folder)
    assert process.returncode == 130
    assert output == ""
    [line] = [line for line in messages.splitlines() if "stopped" in line]
    assert line.startswith(f"stopped and saved at step {step:,}; go on with: attendo train ")
    advice = shlex.split(line.partition("go on with: attendo ")[2])
    done = subprocess.run(
        [sys.executable, "-m", "attendo", *advice, "--set", f"training.steps={step + 3}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "scorecard.json").read_text())["steps"] == step + 3


@pytest.mark.slow
def test_a_second_signal_stops_a_command_at_once(tmp_path):
    slow_step = {"training.batch_tokens": 60_000, "model.d_model": 128, "model.d_ff": 2048}
    process = start(command(tmp_path, {**ENDLESS, **slow_step}))
    wait_for((tmp_path / "log.jsonl").exists, process)
    time.sleep(0.5)  # now the first step is under way
    for _ in range(2):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, messages = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in messages
    assert newest_step(tmp_path) == 0
