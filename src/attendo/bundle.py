"""A bundle: the part of a run folder that others load.

    recipe.toml, tokenizer.json (and target_tokenizer.json), model.safetensors, scorecard.json

A translator that is shipped small has a conversion in int8 instead of model.safetensors.

A folder may be damaged or come from a stranger. Loading runs no code from it, reads no file outside
of it, and allocates memory for parameters only after recipe, tokenizer and file agree about them.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from attendo.config import Recipe, choose, write_recipe
from attendo.conversions import parameters_file
from attendo.errors import BundleError, ConfigError
from attendo.files import replacing, write_text
from attendo.models import Transformer
from attendo.models.base import layer_counts
from attendo.models.outline import shapes_only
from attendo.models.stored import check_tokens
from attendo.models.stored import read_parameters as stored_parameters
from attendo.runs import (
    PARAMETERS,
    RECIPE,
    SCORE_CARD,
    TARGET_TOKENIZER,
    TOKENIZER,
    WORDS,
    load_run_recipe,
    read_score_card,
    read_words,
    update_score_card,
    write_words,
)
from attendo.tasks import TASKS, Task

__all__ = [
    "PARAMETERS",
    "RECIPE",
    "SCORE_CARD",
    "TARGET_TOKENIZER",
    "TOKENIZER",
    "WORDS",
    "Bundle",
    "check_finite",
    "check_parameters",
    "check_shapes",
    "find_device",
    "load_bundle",
    "load_run_recipe",
    "load_task",
    "parameters_file",
    "parameters_of",
    "put_tensors",
    "read_parameters",
    "read_score_card",
    "read_tensors",
    "read_words",
    "save_parameters",
    "save_task",
    "shapes_of",
    "update_score_card",
    "write_tensors",
    "write_words",
]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A trained model with everything that is needed to use it."""

    recipe: Recipe
    task: Any
    """The task that the recipe names, with its vocabulary."""
    model: Any
    """The model that the task needs."""


def find_device(name: str = "auto") -> torch.device:
    """Return the device of a name and make it the current one; auto is a GPU, or else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # where streams, graphs and kernels are made
    except (RuntimeError, AssertionError, ImportError):
        raise ConfigError(f"no such device: {name!r}; use auto, cpu, cuda or cuda:1") from None
    return device


def load_bundle(folder: Path, device: torch.device) -> Bundle:
    """Load a run folder for use."""
    recipe, task = load_task(folder)
    tensors = read_parameters(folder, recipe, task)
    model = task.build(recipe.model).to(device)
    put_tensors(parameters_of(model), tensors, folder)
    return Bundle(recipe, task, model.eval())


def load_task(folder: Path) -> tuple[Recipe, Any]:
    """Load recipe and tokenizers: everything but the parameters."""
    recipe = load_run_recipe(folder)
    return recipe, choose(TASKS, recipe.task, "task").load(folder, recipe)


def save_task(folder: Path, recipe: Recipe, task: Task) -> None:
    """Write recipe, tokenizers and whatever else the task needs."""
    for name, content in task.files().items():
        write_text(folder / name, content)
    write_text(folder / RECIPE, write_recipe(recipe))


# -- tensors -------------------------------------------------------------------------------------


def write_tensors(
    path: Path, tensors: dict[str, torch.Tensor], about: dict[str, str] | None = None
) -> None:
    """Write named tensors atomically; `about` becomes the metadata of the file."""
    with replacing(path) as temporary:
        temporary.touch()
        # Readable for the same people as other new files; safetensors would make it private.
        mode = temporary.stat().st_mode
        try:
            save_file({name: part.contiguous() for name, part in tensors.items()}, temporary, about)
        except SafetensorError as error:  # which is what it makes of a full disk
            raise OSError(str(error)) from None
        temporary.chmod(mode)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """Read named tensors; the format cannot hold code."""
    with _opened(path, device) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict


@contextmanager
def _opened(path: Path, device: torch.device | str = "cpu") -> Iterator[Any]:
    if not path.is_file():
        raise BundleError(
            f"{str(path)!r} does not exist; the training has not got that far, "
            "or the folder is incomplete"
        )
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; restore it or train again") from None


def parameters_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters of a model by name; a shared matrix appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def read_parameters(folder: Path, recipe: Recipe, task: Task) -> dict[str, torch.Tensor]:
    """Read the parameters of a run by name; they match recipe and tokenizers, and are finite."""
    path = parameters_file(folder) or folder / PARAMETERS
    if path.name == PARAMETERS:
        check_parameters(path, recipe, task)
        tensors = read_tensors(path)
    else:
        check_tokens(path.parent, *(one.vocabulary() for one in task.tokenizers.values()))
        with shapes_only():
            model = task.build(recipe.model)
        tensors = stored_parameters(cast(Transformer, model), path)
    check_finite(tensors, path)
    return tensors


def save_parameters(folder: Path, model: nn.Module, task: Task) -> None:
    """Write the parameters of a model, with the fingerprints of its tokenizers."""
    write_tensors(folder / PARAMETERS, parameters_of(model), task.fingerprints())


def check_parameters(
    path: Path,
    recipe: Recipe,
    task: Task,
    change: Callable[[Any], None] = lambda model: None,
) -> None:
    """Compare the header of a file with recipe and tokenizers, before memory is allocated.

    `change` is applied to the model first, if the file is of one that training has changed.
    """
    with _opened(path) as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
        shapes = {name: torch.Size(part.get_shape()) for name, part in parts.items()}
        about = file.metadata() or {}
    n_layers = sum(layer_counts(recipe.model, task.promise))
    if len(shapes) < n_layers:  # so that not even the modules of that many layers are made
        raise BundleError(
            f"{str(path)!r} does not match its recipe: it has {len(shapes):,} parameters, "
            f"too few for {n_layers:,} layers"
        )
    with shapes_only():
        model = task.build(recipe.model)
        change(model)
    check_shapes(shapes_of(parameters_of(model)), shapes, path)
    for name, fingerprint in task.fingerprints().items():
        if about.get(name, fingerprint) != fingerprint:  # older files have none
            raise BundleError(
                f"{str(path)!r} was trained with another tokenizer than {str(path.parent / name)!r}"
                "; restore the tokenizer that belongs to it"
            )


def shapes_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Size]:
    """Return the shape of each tensor."""
    return {name: tensor.shape for name, tensor in tensors.items()}


def check_shapes(
    expected: Mapping[str, torch.Size], given: Mapping[str, torch.Size], origin: Path | str
) -> None:
    """Raise an error unless tensors have exactly these names and shapes."""
    if missing := sorted(expected.keys() ^ given.keys()):
        raise BundleError(
            f"{str(origin)!r} does not match its recipe: {len(missing)} parameters are missing or "
            f"unknown, the first is {missing[0]!r}"
        )
    for name, shape in expected.items():
        if shape != given[name]:
            raise BundleError(
                f"{str(origin)!r} does not match its recipe: {name!r} has shape "
                f"{list(given[name])}, expected {list(shape)}"
            )


def put_tensors(
    own: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor], origin: Path | str
) -> None:
    """Copy named tensors, such as the parameters of a model; they must match and be finite."""
    check_shapes(shapes_of(own), shapes_of(tensors), origin)
    check_finite(tensors, origin)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def check_finite(tensors: Mapping[str, torch.Tensor], origin: Path | str) -> None:
    """Raise an error if parameters contain NaN or infinity."""
    for name, tensor in tensors.items():
        if not (tensor.is_floating_point() and tensor.isfinite().all()):
            raise BundleError(
                f"{str(origin)!r} is damaged: the parameter {name!r} holds values that are not "
                "finite numbers; restore it or train again"
            )
