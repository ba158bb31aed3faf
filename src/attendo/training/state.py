"""The state of a training on disk: all that is needed to go on as if nothing had happened.

    state/step-00000200/   weights, optimizer moments, random numbers, data position
    state/weights-00000200.safetensors   weights after a validation, for averaging at the end
    state/best-00000200.safetensors   weights with the best validation loss so far
    state/data/   the prepared corpus

A step's folder appears whole, by one rename, under a name of its own; the older one is removed
after that. So a kill at any moment leaves a complete state to resume from.
"""

import json
import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

from attendo.bundle import put_weights, read_tensors, weights_of, write_tensors
from attendo.data.batches import Position
from attendo.errors import BundleError
from attendo.files import write_folder, write_json

Tensors = dict[str, torch.Tensor]


@dataclass(slots=True)
class Tally:
    """What has been learned since the last line of the log."""

    loss: float = 0.0
    """Sum over all labels."""
    n_labels: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """How far a training has come."""

    step: int = 0
    position: Position = field(default_factory=Position)
    best_loss: float = float("inf")
    best_step: int = 0
    stale: int = 0
    """Validations since the best one."""
    snapshots: list[int] = field(default_factory=list)
    """Steps whose weights are kept for averaging."""
    seconds: float = 0.0
    """Time spent in training, over all resumed parts."""
    learning_seconds: float = 0.0
    """The same without validations, saving and compilation."""
    tally: Tally = field(default_factory=Tally)

    @property
    def has_best(self) -> bool:
        """Whether there has been a validation."""
        return math.isfinite(self.best_loss)


class StateFolder:
    """Saves and restores trainings in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been saved yet."""
        return not any(self.folder.glob("step-*"))

    def save(
        self,
        progress: Progress,
        model: nn.Module,
        optimizers: list[optim.Optimizer],
        ema: Tensors,
    ) -> None:
        """Write a state, then remove what it makes superfluous."""

        def fill(folder: Path) -> None:
            write_tensors(folder / "weights.safetensors", weights_of(model))
            write_tensors(folder / "optimizer.safetensors", _moments(optimizers))
            write_tensors(folder / "random.safetensors", _random_states())
            if ema:
                write_tensors(folder / "ema.safetensors", ema)
            write_json(folder / "progress.json", asdict(progress))

        newest = self.folder / f"step-{progress.step:08d}"
        if not newest.exists():
            write_folder(newest, fill)
        self._prune(newest, progress)

    def restore(
        self, model: nn.Module, optimizers: list[optim.Optimizer], ema: Tensors
    ) -> Progress:
        """Put everything back as it was; without a saved state, begin at the beginning."""
        saved = sorted(self.folder.glob("step-*"))
        if not saved:
            return Progress()
        folder = saved[-1]
        put_weights(model, read_tensors(folder / "weights.safetensors"), str(folder))
        _put_moments(optimizers, read_tensors(folder / "optimizer.safetensors"))
        if ema:
            for name, tensor in read_tensors(folder / "ema.safetensors").items():
                ema[name].copy_(tensor)
        progress = _read_progress(folder / "progress.json")
        # Last, since what happens before may draw random numbers.
        _put_random_states(read_tensors(folder / "random.safetensors"))
        return progress

    def snapshot(self, step: int, model: nn.Module) -> None:
        """Keep the weights of a step for averaging."""
        write_tensors(self._snapshot(step), weights_of(model))

    def keep_best(self, step: int, model: nn.Module) -> None:
        """Keep the weights of a step as the best so far."""
        write_tensors(self._best(step), weights_of(model))

    def best(self, step: int) -> Tensors:
        """Read the best weights."""
        return read_tensors(self._best(step))

    def average(self, steps: list[int]) -> Tensors:
        """Average the weights of several steps."""
        total: Tensors = {}
        for step in steps:
            for name, tensor in read_tensors(self._snapshot(step)).items():
                total[name] = total[name] + tensor if name in total else tensor
        return {name: tensor / len(steps) for name, tensor in total.items()}

    def _snapshot(self, step: int) -> Path:
        return self.folder / f"weights-{step:08d}.safetensors"

    def _best(self, step: int) -> Path:
        return self.folder / f"best-{step:08d}.safetensors"

    def _prune(self, newest: Path, progress: Progress) -> None:
        for folder in self.folder.glob("step-*"):
            if folder != newest:
                shutil.rmtree(folder)
        wanted = {self._snapshot(step) for step in progress.snapshots} | {
            self._best(progress.best_step)
        }
        for path in self.folder.glob("*.safetensors"):
            if path not in wanted:
                path.unlink()


def _read_progress(path: Path) -> Progress:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        values["position"] = Position(*values["position"])
        values["tally"] = Tally(**values["tally"])
        return Progress(**values)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; remove its folder") from None


def _moments(optimizers: list[optim.Optimizer]) -> Tensors:
    """Name every tensor that the optimizers remember: optimizer.parameter.name."""
    return {
        f"{number}.{parameter}.{name}": tensor
        for number, optimizer in enumerate(optimizers)
        for parameter, moments in optimizer.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def _put_moments(optimizers: list[optim.Optimizer], tensors: Tensors) -> None:
    states: list[dict[int, Tensors]] = [{} for _ in optimizers]
    for key, tensor in tensors.items():
        number, parameter, name = key.split(".", 2)
        states[int(number)].setdefault(int(parameter), {})[name] = tensor
    for optimizer, state in zip(optimizers, states, strict=True):
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def _random_states() -> Tensors:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _put_random_states(states: Tensors) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])
