"""The state of a training on disk: all that is needed to continue as if never interrupted.

    state/step-00000200/   parameters, optimizer moments, random numbers, data position
    state/weights-00000200.safetensors   checkpoint of a validation, for averaging at the end
    state/best-00000200.safetensors   checkpoint of the best validation so far
    state/start.safetensors   the parameters that the training started from (with --from)
    state/data/   the prepared corpus

A step's folder appears complete, by one rename, under a name of its own; the older one is removed
after that. So a kill at any moment leaves a complete state to resume from.
"""

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn, optim

from attendo.bundle import (
    check_shapes,
    parameters_of,
    put_tensors,
    read_tensors,
    shapes_of,
    write_tensors,
)
from attendo.data.batches import Position
from attendo.errors import BundleError
from attendo.files import read_text, write_folder, write_json
from attendo.training.optimization import Muon

Tensors = dict[str, torch.Tensor]

START = "start.safetensors"


@dataclass(slots=True)
class Tally:
    """The sums since the last line of the log."""

    loss: float = 0.0
    """Sum over all labels."""
    n_labels: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """How far a training has got."""

    step: int = 0
    position: Position = field(default_factory=Position)
    best_loss: float = float("inf")
    """Validation loss of the best checkpoint."""
    best_metric: float | None = None
    """Its metric, where checkpoints are selected by it."""
    best_step: int = 0
    stale: int = 0
    """Validations since the best one."""
    snapshots: list[int] = field(default_factory=list)
    """Steps whose checkpoints are kept for averaging."""
    seconds: float = 0.0
    """Time spent in training, over all resumed parts."""
    learning_seconds: float = 0.0
    """The same without validations, saving and compilation."""
    tally: Tally = field(default_factory=Tally)

    @property
    def has_best(self) -> bool:
        """Return whether there has been a validation."""
        return math.isfinite(self.best_loss)


class StateFolder:
    """Saves and restores a training in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def parameters(self) -> Path | None:
        """Return the file with the parameters of the last saved step, if one has been saved."""
        saved = sorted(self.folder.glob("step-*"))
        return saved[-1] / "weights.safetensors" if saved else None

    def save(
        self,
        progress: Progress,
        model: nn.Module,
        optimizers: list[optim.Optimizer],
        ema: Tensors,
    ) -> None:
        """Write a state, then remove what is no longer needed."""

        def fill(folder: Path) -> None:
            write_tensors(folder / "weights.safetensors", parameters_of(model))
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
        """Restore the last saved state; without one, return a progress of 0 steps."""
        if self.parameters is None:
            return Progress()
        folder = self.parameters.parent
        put_tensors(parameters_of(model), read_tensors(self.parameters), self.parameters)
        _put_moments(optimizers, folder / "optimizer.safetensors")
        if ema:
            path = folder / "ema.safetensors"
            put_tensors(ema, read_tensors(path), path)
        progress = self.progress()
        # Last, since what happens before may draw random numbers.
        _put_random_states(folder / "random.safetensors")
        return progress

    def progress(self) -> Progress:
        """Read how far the training has got."""
        return Progress() if self.parameters is None else _read_progress(self.parameters.parent)

    def snapshot(self, step: int, model: nn.Module) -> None:
        """Save the checkpoint of a step for averaging."""
        write_tensors(self._snapshot(step), parameters_of(model))

    def keep_best(self, step: int, model: nn.Module) -> None:
        """Save the checkpoint of a step as the best so far."""
        write_tensors(self._best(step), parameters_of(model))

    def best(self, step: int) -> Tensors:
        """Read the best checkpoint."""
        return read_tensors(self._best(step))

    def keep_start(self, model: nn.Module) -> None:
        """Save the parameters that the training starts from."""
        write_tensors(self.folder / START, parameters_of(model))

    @property
    def has_start(self) -> bool:
        """Return whether the training continues that of another run."""
        return (self.folder / START).exists()

    def start(self) -> Tensors:
        """Read the parameters that such a training started from."""
        return read_tensors(self.folder / START)

    def average(self, steps: list[int]) -> Tensors:
        """Average the checkpoints of several steps."""
        total = read_tensors(self._snapshot(steps[0]))
        for path in map(self._snapshot, steps[1:]):
            tensors = read_tensors(path)
            check_shapes(shapes_of(total), shapes_of(tensors), path)
            total = {name: total[name] + tensor for name, tensor in tensors.items()}
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
            self._best(progress.best_step),
            self.folder / START,
        }
        for path in self.folder.glob("*.safetensors"):
            if path not in wanted:
                path.unlink()


def _read_progress(folder: Path) -> Progress:
    path = folder / "progress.json"
    try:
        text = read_text(path, 1 << 24)
        progress = TypeAdapter(Progress).validate_json(text, strict=True)
    except ValidationError as error:
        problem = error.errors()[0]
        raise _damaged(path, ": ".join((*map(str, problem["loc"]), problem["msg"]))) from None
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from None
    if folder.name != f"step-{progress.step:08d}" or min(progress.position) < 0:
        raise _damaged(path, f"step {progress.step} in the folder {folder.name}")
    return progress


def _damaged(path: Path, reason: str) -> BundleError:
    return BundleError(
        f"{str(path)!r} is damaged: {reason}; restore it, or train again with another --out"
    )


def _moments(optimizers: list[optim.Optimizer]) -> Tensors:
    """Return every tensor in the state of the optimizers by name: optimizer.parameter.name."""
    return {
        f"{number}.{parameter}.{name}": tensor
        for number, optimizer in enumerate(optimizers)
        for parameter, moments in optimizer.state_dict()["state"].items()
        for name, tensor in moments.items()
    }


def _put_moments(optimizers: list[optim.Optimizer], path: Path) -> None:
    tensors = read_tensors(path)
    check_shapes(_moment_shapes(optimizers, tensors), shapes_of(tensors), path)
    states: list[dict[int, Tensors]] = [{} for _ in optimizers]
    for key, tensor in tensors.items():
        number, parameter, name = key.split(".")
        states[int(number)].setdefault(int(parameter), {})[name] = tensor
    for optimizer, state in zip(optimizers, states, strict=True):
        groups = optimizer.state_dict()["param_groups"]
        optimizer.load_state_dict({"state": state, "param_groups": groups})


def _moment_shapes(optimizers: list[optim.Optimizer], tensors: Tensors) -> dict[str, torch.Size]:
    """Return what the state of the optimizers must hold; a parameter may have none at all."""
    shapes: dict[str, torch.Size] = {}
    for number, optimizer in enumerate(optimizers):
        moments = MOMENTS[type(optimizer)]
        parameters = (one for group in optimizer.param_groups for one in group["params"])
        for index, parameter in enumerate(parameters):
            keys = {f"{number}.{index}.{name}": name for name in moments}
            if keys.keys() & tensors.keys():
                scalar = torch.Size([])
                shapes |= {
                    key: scalar if name == "step" else parameter.shape for key, name in keys.items()
                }
    return shapes


MOMENTS: dict[type[optim.Optimizer], tuple[str, ...]] = {
    optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    Muon: ("momentum_buffer",),
}
"""The state that each optimizer keeps for a parameter."""


def _random_states() -> Tensors:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _put_random_states(path: Path) -> None:
    states = read_tensors(path)
    try:
        torch.set_rng_state(states["cpu"])
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])
    except (KeyError, RuntimeError, TypeError) as error:
        raise _damaged(path, str(error)) from None
