"""Trainings that take a second, for the tests of training and of resuming."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attendo.bundle import PARAMETERS, read_tensors, write_tensors
from attendo.config import Recipe, load_recipe
from attendo.data.texts import open_texts
from attendo.reporter import Reporter
from attendo.tasks import Translation
from attendo.training.learner import Learner, Validator
from attendo.training.log import read_log
from attendo.training.prepare import Prepared, make_task, open_prepared, prepare
from attendo.training.run import train_run
from attendo.training.state import StateFolder
from attendo.training.trainer import Trainer

CPU = torch.device("cpu")

SETTINGS: dict[str, Any] = {
    "data.builtin": 120,
    "data.hold_out": 7,
    "data.max_length": 128,  # no pair is longer
    "tokenizer.vocabulary": 350,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.n_heads": 2,
    "model.positions": "sinusoidal",
    "model.encoder_layers": 1,
    "model.decoder_layers": 1,
    "training.steps": 12,
    "training.batch_tokens": 768,
    "training.warmup_steps": 3,
    "training.log_every": 3,
    "training.validate_every": 4,
    "training.save_every": 5,
    "training.validation_bleu": 0,
    "training.label_smoothing": 0.1,
    "decoding.strategy": "greedy",
    "decoding.max_extra": 1,
}
"""Intervals that never fall together, and a model that costs nothing."""

TIMES = ("seconds", "learning_seconds", "tokens_per_second", "training_seconds")
"""What may differ between two runs that are the same."""


def small_recipe(changes: Mapping[str, Any] | None = None) -> Recipe:
    return load_recipe("demo", {**SETTINGS, **(changes or {})})


def small_run(
    folder: Path,
    changes: Mapping[str, Any] | None = None,
    *,
    resume: bool = False,
    reporter: Reporter | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Train a whole run; returns its score card."""
    settings = {**SETTINGS, **(changes or {})}
    where = torch.device(device)
    return train_run("demo", settings, folder, where, resume=resume, reporter=reporter)


def small_rival(folder: Path, recipe: str) -> Path:
    """Train a run of a recipe of another family, such as demo-gru, that has learned nothing."""
    own = {key: value for key, value in SETTINGS.items() if not key.startswith("model.")}
    train_run(recipe, {**own, "model.d_model": 16}, folder, CPU)
    return folder


def overflowing(run: Path, folder: Path) -> Path:
    """Copy a run with parameters that are finite themselves, so that only the output shows it."""
    shutil.copytree(run, folder)
    tensors = {name: one * 0 + 1e30 for name, one in read_tensors(folder / PARAMETERS).items()}
    write_tensors(folder / PARAMETERS, tensors)
    return folder


class Workshop(NamedTuple):
    """Prepared data, and the trainers that can be made with it."""

    task: Translation
    data: Prepared

    def trainer(self, recipe: Recipe, folder: Path) -> Trainer:
        """Build a trainer, or bring one back, as a run does."""
        (folder / "state").mkdir(parents=True, exist_ok=True)
        config = recipe.training
        layout = self.task.layout(recipe.data, config.batch_tokens)
        validator = Validator(self.task, self.data.valid, layout, [], CPU, recipe.decoding)
        states = StateFolder(folder / "state")
        return Trainer(self.learner(recipe), validator, self.data.train, layout, states)

    def learner(self, recipe: Recipe, device: str = "cpu") -> Learner:
        torch.manual_seed(recipe.training.seed)
        model = self.task.build(recipe.model)
        return Learner(model.to(device), self.task.loss, recipe.training, recipe.model.d_model)


def open_workshop(recipe: Recipe, folder: Path) -> Workshop:
    texts = open_texts(recipe.data)
    task = make_task(recipe, texts)
    prepare(texts, task, recipe, folder)
    return Workshop(task, open_prepared(folder, task, recipe))


class AfterSteps(Reporter):
    """Does something in the middle of a step, once some steps have been made."""

    def __init__(self, n_steps: int, action: Callable[[], None]) -> None:
        self.n_left = n_steps
        self.action = action

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        def advance(n: int, remark: str) -> None:
            self.n_left -= n
            if n and self.n_left == 0:
                self.action()

        yield advance if title == "training" else lambda n, remark: None


def command(folder: Path, changes: Mapping[str, Any]) -> list[str]:
    """Return the command line that does what `small_run` does in Python."""
    settings = {**SETTINGS, **changes}
    options = [
        option
        for key, value in settings.items()
        for option in ("--set", f"{key}={str(value).lower() if value in (True, False) else value}")
    ]
    train = [sys.executable, "-m", "attendo", "train", "demo", "--out", str(folder), "--resume"]
    return [*train, "--device", "cpu", *options]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    """Start a real process on one core."""
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def timeless(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what depends on the clock."""
    return {key: value for key, value in values.items() if key not in TIMES and key != "tally"}


def timeless_log(folder: Path) -> list[dict[str, Any]]:
    return [timeless(entry) for entry in read_log(folder / "log.jsonl")]


def same_tensors(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    """Return whether all tensors are equal, bit for bit."""
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def tensors_below(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Read every file of tensors in a folder, by its path."""
    return {
        str(path.relative_to(folder)): read_tensors(path)
        for path in sorted(folder.rglob("*.safetensors"))
    }


def assert_same_run(left: Path, right: Path) -> None:
    """Hold two folders against each other: tensors bit for bit, the rest but for the clock."""
    tensors, others = tensors_below(left), tensors_below(right)
    assert tensors.keys() == others.keys()
    for path in tensors:
        assert same_tensors(tensors[path], others[path]), path
    assert timeless_log(left) == timeless_log(right)
    for path in left.glob("state/step-*/progress.json"):
        assert progress_of(left, path.parent.name) == progress_of(right, path.parent.name)


def progress_of(folder: Path, state: str) -> dict[str, Any]:
    text = (folder / "state" / state / "progress.json").read_text()
    values: dict[str, Any] = json.loads(text)
    return {**timeless(values), "tally": timeless(values["tally"])}
