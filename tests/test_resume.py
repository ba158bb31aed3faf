"""A training that was stopped, in whatever way, ends as if it never had been."""

import errno
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attendo.bundle import read_score_card, read_tensors, write_tensors
from attendo.config import Recipe
from attendo.errors import AttendoError, BundleError, ConfigError, command_line
from attendo.files import write_json
from attendo.reporter import Reporter
from attendo.training.complete import Interrupted
from attendo.training.log import Log, read_log
from attendo.training.optimization import OPTIMIZERS
from attendo.training.state import StateFolder
from attendo.training.trainer import Interrupt
from forked import Forked
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
from terminals import start_in_terminal

CHANGING: dict[str, Any] = {"model.p_drop": 0.1, "training.ema": 0.9, "training.average": 2}
"""Settings with which more than weights and moments has to be restored."""

EVERYTHING: dict[str, Any] = {**CHANGING, "tokenizer.dropout": 0.1}
"""The same with another segmentation of sentences each time."""


@pytest.fixture(autouse=True)
def _hangups() -> Iterator[None]:
    """Let a hangup do what it does at a terminal; under nohup it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


# -- any split of the steps, in one process ------------------------------------------------------


def train_in_parts(workshop: Workshop, recipe: Recipe, folder: Path, parts: list[int]) -> None:
    """Train with a new trainer for each part, stopped in the middle of its last step."""
    for n_steps in [*parts, recipe.training.steps + 1]:
        trainer = workshop.trainer(recipe, folder)
        if trainer.is_done:
            break
        interrupt = Interrupt()
        log = Log(folder / "log.jsonl", from_step=trainer.progress.step)
        reporter = AfterSteps(n_steps, lambda it=interrupt: setattr(it, "is_requested", True))
        trainer.run(interrupt, reporter, [log])
        log.close()
    assert trainer.progress.step == recipe.training.steps


@pytest.fixture(scope="module")
def workshop(tmp_path_factory) -> Workshop:
    return open_workshop(small_recipe(EVERYTHING), tmp_path_factory.mktemp("workshop") / "data")


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_split_of_the_steps_gives_the_same_training(
    workshop, tmp_path, optimizer, layout, accumulate
):
    kinds = {
        "data.layout": layout,
        "training.optimizer": optimizer,
        "training.accumulate": accumulate,
    }
    recipe = small_recipe({**EVERYTHING, **kinds, "training.steps": 8})
    train_in_parts(workshop, recipe, tmp_path / "whole", [])
    train_in_parts(workshop, recipe, tmp_path / "split", [1, 1, 2, 1])
    assert_same_run(tmp_path / "whole", tmp_path / "split")


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_resuming_goes_through_epochs(tmp_path, dropout):
    steps = {"training.steps": 24, "training.save_every": 7, "tokenizer.dropout": dropout}
    recipe = small_recipe({**EVERYTHING, **steps})
    workshop = open_workshop(recipe, tmp_path / "data")
    train_in_parts(workshop, recipe, tmp_path / "whole", [])
    train_in_parts(workshop, recipe, tmp_path / "split", [9, 12])
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    assert timeless_log(tmp_path / "whole")[-2]["epoch"] >= 2


# -- whole runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A run that was never stopped; no test writes to it."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    small_run(folder, CHANGING)
    return folder


def interrupted_after(n_steps: int, *signals: signal.Signals) -> Reporter:
    """Send real signals to this process in the middle of a step."""
    return AfterSteps(n_steps, lambda: [signal.raise_signal(number) for number in signals])


@pytest.mark.parametrize(
    ("number", "step"),
    [(signal.SIGINT, 7), (signal.SIGTERM, 1), (signal.SIGINT, 12), (signal.SIGHUP, 3)],
)
def test_a_signal_saves_its_step_and_the_resumed_run_ends_as_the_whole_one(
    whole, tmp_path, number, step
):
    with pytest.raises(Interrupted, match=f"^stopped and saved at step {step}$"):
        small_run(tmp_path, CHANGING, reporter=interrupted_after(step, number))
    assert (tmp_path / "state" / f"step-{step:08d}").is_dir()
    assert not (tmp_path / "scorecard.json").exists()
    small_run(tmp_path, CHANGING, resume=True)
    assert_same_run(whole, tmp_path)


def test_a_second_signal_stops_at_once(tmp_path):
    reporter = interrupted_after(7, signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        small_run(tmp_path, reporter=reporter)
    assert [path.name for path in (tmp_path / "state").glob("step-*")] == ["step-00000005"]


def test_signals_mean_what_they_meant_before_once_training_is_over(tmp_path):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    small_run(tmp_path, {"training.steps": 1})
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_disk_that_is_full_for_a_while_costs_no_more_than_time(whole, tmp_path, monkeypatch):
    for n_writes in (1, 4, 9, 23, 38, 17, 2):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fills_up_after(n_writes))
            with pytest.raises(AttendoError, match=r"^cannot write .*: No space left on device$"):
                small_run(tmp_path, CHANGING, resume=True)
        assert_whole_files(tmp_path)
    small_run(tmp_path, CHANGING, resume=True)
    assert_same_run(whole, tmp_path)


def fills_up_after(n_writes: int) -> Callable[[int], None]:
    fsync, count = os.fsync, itertools.count()

    def failing(handle: int) -> None:
        if next(count) >= n_writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    return failing


def test_a_complete_run_is_left_as_it_is(whole):
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    card = small_run(whole, CHANGING, resume=True)
    assert card == json.loads((whole / "scorecard.json").read_text())
    after = {path: path.stat().st_mtime_ns for path in whole.rglob("*") if path.is_file()}
    assert before == after


def test_a_run_without_its_state_is_shown_and_not_trained_again(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("state"))
    before = (folder / "model.safetensors").read_bytes()
    card = small_run(folder, CHANGING, resume=True)
    assert card == json.loads((folder / "scorecard.json").read_text())
    assert (folder / "model.safetensors").read_bytes() == before
    assert not (folder / "state").exists()


def test_a_hangup_that_is_ignored_does_not_stop_a_training(tmp_path):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        card = small_run(tmp_path, reporter=interrupted_after(3, signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert card["steps"] == 12


# -- what is lost or damaged ---------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def spoil(path: Path) -> None:
    tensors = read_tensors(path)
    next(iter(tensors.values())).fill_(float("nan"))
    write_tensors(path, tensors)


def retype(path: Path) -> None:
    path.write_text('{"steps": 12, "bleu": "high"}')


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("model.safetensors", Path.unlink),
        ("model.safetensors", cut),
        ("model.safetensors", spoil),
        ("scorecard.json", Path.unlink),
        ("scorecard.json", retype),
    ],
)
def test_a_model_that_is_lost_is_built_again_from_the_state(whole, tmp_path, name, damage):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    evaluations = {"evaluations": [{**read_score_card(whole), "test": ["a", "b"]}]}
    write_json(folder / "scorecard.json", {**read_score_card(whole), **evaluations})
    damage(folder / name)
    card = small_run(folder, CHANGING, resume=True)
    assert_same_run(whole, folder)
    if name == "model.safetensors":
        assert card.pop("evaluations") == evaluations["evaluations"]
    assert timeless(json.loads(json.dumps(card))) == timeless(read_score_card(whole))
    assert read_score_card(folder)["steps"] == 12


def test_a_damaged_model_without_a_state_is_named(whole, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("state"))
    cut(folder / "model.safetensors")
    with pytest.raises(BundleError, match=r"model.safetensors' is damaged"):
        small_run(folder, CHANGING, resume=True)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    """A run with much in its state, stopped one step before its end; no test writes to it."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    with pytest.raises(Interrupted):
        small_run(folder, EVERYTHING, reporter=interrupted_after(11, signal.SIGINT))
    return folder


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def flip(path: Path) -> None:
    """Change a few bytes, all over the file."""
    content = bytearray(path.read_bytes())
    chance = random.Random(path.name)
    for _ in range(20):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def numbers_from(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content)


def swap_shapes(path: Path) -> None:
    tensors = read_tensors(path)
    write_tensors(path, {name: tensor.flatten()[:1] for name, tensor in tensors.items()})


def rename_tensors(path: Path) -> None:
    tensors = read_tensors(path)
    write_tensors(path, {f"9.{name}.x": tensor for name, tensor in tensors.items()})


def other_array(path: Path) -> None:
    array = np.load(path, allow_pickle=False)
    np.save(path, array[::-1] + 30_000)


TAMPERED = {
    "step-*/*.safetensors": [Path.unlink, cut, flip, nested, spoil, swap_shapes, rename_tensors],
    "*.safetensors": [Path.unlink, cut, spoil, swap_shapes, rename_tensors],
    "step-*/progress.json": [Path.unlink, nested, flip, *map(numbers_from, (b"", b"[]", b"{}"))],
    "data/*.jsonl": [Path.unlink, nested, *map(numbers_from, (b"", b"3", b'{"source": 1}'))],
    "data/*.npy": [Path.unlink, cut, flip, other_array, numbers_from(b"")],
    "data/*.npz": [Path.unlink, cut, flip, numbers_from(b"")],
}


@pytest.mark.parametrize(
    ("pattern", "damage"),
    [(pattern, damage) for pattern, damages in TAMPERED.items() for damage in damages],
)
def test_a_state_that_was_tampered_with_is_named_or_used(stopped, tmp_path, pattern, damage):
    """Whatever is done to a file: a message, or a training that ends."""
    paths = sorted((stopped / "state").glob(pattern))
    assert paths
    for number, path in enumerate(paths):
        folder = tmp_path / str(number)
        shutil.copytree(stopped, folder)
        try:
            damage(folder / path.relative_to(stopped))
        except RuntimeError:
            continue  # nothing to spoil among random numbers
        with suppress(AttendoError):
            small_run(folder, EVERYTHING, resume=True)


@pytest.mark.parametrize("value", [None, "text", -1, 1.5, 10**30, [], {}, [[]], math.nan])
def test_progress_with_other_values_is_named_or_used(stopped, tmp_path, value):
    path = tmp_path / "run" / "state" / "step-00000011" / "progress.json"
    shutil.copytree(stopped, tmp_path / "run")
    progress = json.loads(path.read_text())
    for key in progress:
        path.write_text(json.dumps({**progress, key: value}))
        with suppress(AttendoError):
            StateFolder(tmp_path / "run" / "state").progress()
        path.write_text(json.dumps({name: progress[name] for name in progress if name != key}))
        with suppress(AttendoError):
            StateFolder(tmp_path / "run" / "state").progress()


def test_a_log_with_other_values_does_not_stop_a_run(stopped, tmp_path):
    shutil.copytree(stopped, tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    odd = ('{"step": "x"}', '{"step": 1, "loss": "low"}', "[" * 10_000, '{"step": [1]}', "null")
    log.write_text(log.read_text() + "".join(f"{line}\n" for line in odd))
    assert small_run(tmp_path / "run", EVERYTHING, resume=True)["steps"] == 12


def test_a_run_is_never_written_over_by_mistake(whole):
    with pytest.raises(ConfigError, match="already holds a run; continue it with --resume"):
        small_run(whole, CHANGING)


# -- resuming with other settings ----------------------------------------------------------------


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
        ("training.batch_tokens", 512, "[training.batch_tokens]"),
        ("training.seed", 2, "[training.seed]"),
        ("training.ema", 0.0, "[training.ema]"),
    ],
)
def test_what_the_state_depends_on_cannot_be_changed(whole, key, value, named):
    recipe = (whole / "recipe.toml").read_bytes()
    with pytest.raises(ConfigError) as caught:
        small_run(whole, {**CHANGING, key: value}, resume=True)
    message = f"started with other settings in {named}, and a resumed run keeps them"
    assert message in str(caught.value)
    assert (whole / "recipe.toml").read_bytes() == recipe


CONSTANT: dict[str, Any] = {
    **CHANGING,
    "training.schedule": "constant",
    "training.log_every": 4,
    "training.validate_every": 4,
    "training.save_every": 4,
}


LONGER = {**CONSTANT, "training.steps": 16}


def test_more_steps_go_on_and_equal_a_run_that_had_them_from_the_start(tmp_path, monkeypatch):
    assert small_run(tmp_path / "split", {**CONSTANT, "training.steps": 8})["steps"] == 8
    with monkeypatch.context() as patch:  # The old score card must not pass for the new one.
        patch.setattr("attendo.training.complete.choose_checkpoint", _die)
        with pytest.raises(MemoryError):
            small_run(tmp_path / "split", LONGER, resume=True)
    longer = small_run(tmp_path / "split", LONGER, resume=True)
    whole = small_run(tmp_path / "whole", LONGER)
    assert longer["steps"] == 16
    assert timeless(longer) == timeless(whole)
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    recipe = tomllib.loads((tmp_path / "split" / "recipe.toml").read_text())
    assert recipe["training"]["steps"] == 16


def _die(*args: Any) -> None:
    raise MemoryError


def test_a_stopped_run_can_be_ended_where_it_is(tmp_path):
    with pytest.raises(Interrupted):
        small_run(tmp_path, reporter=interrupted_after(2, signal.SIGINT))
    card = small_run(tmp_path, {"training.steps": 2}, resume=True)
    assert (card["steps"], card["checkpoint"]) == (2, "step 2")
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


def _read_words(path: Path) -> None:
    assert path.read_text(encoding="utf-8").endswith("\n")


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
    ".txt": _read_words,
}
"""For every kind of file in a run folder how to find out whether it is whole."""


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | Forked) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        if process.poll() is not None:
            pytest.fail(f"the process ended by itself: {process.communicate()}")
        assert time.monotonic() < deadline
        time.sleep(0.005)


def version(path: Path) -> int:
    """Return the identity of a file, which differs from that of one that replaced it."""
    return path.stat().st_ino if path.exists() else 0


def newest_step(folder: Path) -> int:
    return max((int(path.name[5:]) for path in (folder / "state").glob("step-*")), default=0)


def kill(words: list[str], folder: Path, phase: str, seconds: float) -> None:
    """Start the training and kill it some time after a phase has begun."""
    log, last = folder / "log.jsonl", KILLED["training.steps"]
    log_before, step_before = version(log), newest_step(folder)
    process = Forked(words, folder.with_suffix(".txt"))
    if phase != "start":  # Before the first step, the log is written anew.
        wait_for(lambda: version(log) != log_before, process)
    if phase == "training":
        wait_for(lambda: newest_step(folder) > min(step_before, last - 1), process)
    elif phase == "finishing":
        wait_for(lambda: newest_step(folder) == last, process)
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, f"{phase}: it was over before it was killed"


KILLED: dict[str, Any] = {
    **EVERYTHING,
    "data.builtin": 400,
    "data.hold_out": 100,
    "tokenizer.vocabulary": 400,
    "training.steps": 180,
    "training.batch_tokens": 2048,
    "training.save_every": 5,
    "training.validate_every": 10,
    "training.average": 5,
    # An untrained model generates long outputs: scoring takes long enough to be killed in.
    "decoding.strategy": "beam",
    "decoding.max_extra": 100,
    "decoding.max_loops": 0,
}
PHASES = [*["start"] * 5, *["training"] * 10, *["finishing"] * 5]
LONGEST = {"start": 0.4, "training": 0.5, "finishing": 1.0}
"""Seconds of each phase in which the kill comes."""


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    chance = random.Random(20)
    undisturbed = start(command(whole, KILLED))
    words = command(killed, KILLED)[3:]  # without "python -m attendo"
    for phase in PHASES:
        kill(words, killed, phase, chance.uniform(0.0, LONGEST[phase]))
        assert_whole_files(killed)
    finished = start(command(killed, KILLED))
    for process in (finished, undisturbed):
        _, messages = process.communicate(timeout=180)
        assert process.returncode == 0, messages
    assert_whole_files(whole)
    assert_same_run(whole, killed)
    for name in ("recipe.toml", "tokenizer.json"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes()
    cards = [json.loads((folder / "scorecard.json").read_text()) for folder in (whole, killed)]
    assert timeless(cards[0]) == timeless(cards[1])
    assert not list(killed.rglob("*.tmp"))
    assert [entry["step"] for entry in read_log(killed / "log.jsonl") if "loss" in entry] == list(
        range(3, 181, 3)
    )


ENDLESS: dict[str, Any] = {**EVERYTHING, "training.steps": 100_000}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_command_says_how_to_go_on_and_that_works(tmp_path, number):
    folder = tmp_path / "my run"
    process = start(command(folder, ENDLESS))
    wait_for(lambda: newest_step(folder) >= 10, process)
    process.send_signal(number)
    output, messages = process.communicate(timeout=120)
    step = newest_step(folder)
    assert process.returncode == 130
    assert output == ""
    [line] = [line for line in messages.splitlines() if "stopped" in line]
    start_of_line = f"stopped and saved at step {step:,}; continue with: "
    assert line.startswith(start_of_line)
    advice = line.removeprefix(start_of_line)
    assert advice == command_line("train", "--out", folder, "--resume")
    if number != signal.SIGINT:
        return  # the same advice, which needs to be followed only once
    done = subprocess.run(
        f"{advice} --set training.steps={step + 3}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "scorecard.json").read_text())["steps"] == step + 3


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_and_saves(tmp_path):
    """A hangup: a signal, and nothing can be written to the terminal any more."""
    settings = {**ENDLESS, "training.save_every": 100_000, "training.validate_every": 100_000}
    process, terminal = start_in_terminal(command(tmp_path, settings))
    wait_until(lambda: len(read_log(tmp_path / "log.jsonl")) > 2)
    assert newest_step(tmp_path) == 0
    os.close(terminal)
    assert process.wait(120) >= 0, "it ended by itself, after saving"
    assert newest_step(tmp_path) > 0


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_command_that_is_stopped_before_the_first_step_says_how_to_go_on_too(tmp_path):
    process = start(command(tmp_path, {**ENDLESS, "data.builtin": 20_000}))
    wait_for((tmp_path / "recipe.toml").exists, process)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 130
    advice = command_line("train", "--out", tmp_path, "--resume")
    assert messages.endswith(f"stopped; continue with: {advice}\n")
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.slow
def test_only_one_process_at_a_time_trains_in_a_folder(tmp_path):
    process = start(command(tmp_path, ENDLESS))
    wait_for(lambda: newest_step(tmp_path) > 0, process)
    _, messages = start(command(tmp_path, ENDLESS)).communicate(timeout=180)
    assert messages == (
        f"error: another process is writing to '{tmp_path}/state'; wait until it ends, or stop it\n"
    )
    step = newest_step(tmp_path)
    wait_for(lambda: newest_step(tmp_path) > step, process)  # it is not disturbed
    process.kill()
    process.communicate()
    small_run(tmp_path, {**ENDLESS, "training.steps": newest_step(tmp_path)}, resume=True)


@pytest.mark.slow
def test_a_second_signal_stops_a_command_at_once(tmp_path):
    slow_step = {"training.batch_tokens": 250_000, "model.d_model": 128, "model.d_ff": 2048}
    # In many short operations: signals that come during a single one would count as one.
    slow_step["training.accumulate"] = 100
    process = start(command(tmp_path, {**ENDLESS, **slow_step}))
    wait_for((tmp_path / "log.jsonl").exists, process)
    time.sleep(0.5)  # now the first step is under way
    for _ in range(2):
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, messages = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in messages
    assert newest_step(tmp_path) == 0
