"""A bundle: the folder that others load. recipe.toml, tokenizer.json, model.safetensors.

Loading runs no code from the folder, and every damage is named.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from attendo.config import Recipe, load_recipe, write_recipe
from attendo.errors import AttendoError, BundleError, ConfigError
from attendo.files import replacing, write_text
from attendo.models import Seq2Seq, build_model
from attendo.tasks import Translation
from attendo.text import Tokenizer

RECIPE = "recipe.toml"
TOKENIZER = "tokenizer.json"
TARGET_TOKENIZER = "target_tokenizer.json"
WEIGHTS = "model.safetensors"
SCORE_CARD = "scorecard.json"
WORDS = "words.txt"

_MOST_WORD_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Bundle:
    """A trained model with all it needs to turn text into text."""

    recipe: Recipe
    task: Translation
    model: Seq2Seq


def find_device(name: str = "auto") -> torch.device:
    """Find the device of a name, and make it the current one; auto is a GPU, or else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # where streams, graphs and kernels are made
    except (RuntimeError, AssertionError, ImportError):
        raise ConfigError(
            f"the device {name!r} is not there; use auto, cpu, cuda or cuda:1"
        ) from None
    return device


def load_bundle(folder: Path, device: torch.device) -> Bundle:
    """Load a run folder for use."""
    recipe, task = load_task(folder)
    model = build_model(recipe.model, task.source.size, task.target.size).to(device)
    read_weights(model, folder / WEIGHTS)
    return Bundle(recipe, task, model.eval())


def load_task(folder: Path) -> tuple[Recipe, Translation]:
    """Load recipe and tokenizers: all but the weights."""
    if not folder.is_dir():
        raise BundleError(
            f"{str(folder)!r} is not a folder; expected a run made by 'attendo train'"
        )
    if not (folder / RECIPE).is_file():
        raise BundleError(
            f"{str(folder)!r} has no {RECIPE}, so it is not a run; "
            "expected a folder made by 'attendo train'"
        )
    recipe = load_recipe(str(folder / RECIPE))
    source = _read_tokenizer(folder / TOKENIZER)
    target = source if recipe.tokenizer.shared else _read_tokenizer(folder / TARGET_TOKENIZER)
    return recipe, Translation(source, target, recipe.data.max_length)


def save_task(folder: Path, recipe: Recipe, task: Translation) -> None:
    """Write recipe and tokenizers."""
    write_text(folder / TOKENIZER, task.source.to_json())
    if not recipe.tokenizer.shared:
        write_text(folder / TARGET_TOKENIZER, task.target.to_json())
    write_text(folder / RECIPE, write_recipe(recipe))


def write_words(folder: Path, words: Iterable[str]) -> None:
    """Write the source words of the training data, one a line."""
    write_text(folder / WORDS, "".join(f"{word}\n" for word in words))


def read_words(folder: Path) -> frozenset[str]:
    """Read the source words of the training data; runs of older versions have none."""
    path = folder / WORDS
    if not path.is_file():
        return frozenset()
    if path.stat().st_size > _MOST_WORD_BYTES:
        raise BundleError(f"{str(path)!r} is too large for a list of words; remove it")
    try:
        return frozenset(path.read_text(encoding="utf-8").split("\n")) - {""}
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; remove it") from None


def read_score_card(folder: Path) -> dict[str, Any]:
    """Read the scores that training or `evaluate` has left."""
    try:
        card = json.loads((folder / SCORE_CARD).read_text(encoding="utf-8"))
        if not isinstance(card, dict):
            raise ValueError("expected a JSON object")
    except (OSError, ValueError) as error:
        raise BundleError(f"{folder / SCORE_CARD} cannot be read: {error}") from None
    return card


def write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """Write named tensors in one piece."""
    with replacing(path) as temporary:
        temporary.touch()
        # Others may read it as they may any new file here; safetensors would let nobody.
        mode = temporary.stat().st_mode
        try:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
        except SafetensorError as error:  # which is what it makes of a full disk
            raise OSError(str(error)) from None
        temporary.chmod(mode)


def read_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, torch.Tensor]:
    """Read named tensors; no code can hide in the file."""
    if not path.is_file():
        raise BundleError(
            f"{str(path)!r} does not exist; the training has not got that far, "
            "or the folder is not whole"
        )
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 -- not a dict
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; restore it or train again") from None


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Name the weights of a model; a matrix that is used in several places appears once."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def read_weights(model: nn.Module, path: Path) -> None:
    """Fill a model with the weights of a file, which must fit exactly."""
    put_weights(model, read_tensors(path), str(path))


def put_weights(model: nn.Module, tensors: dict[str, torch.Tensor], origin: str) -> None:
    """Copy named weights into a model."""
    own = weights_of(model)
    if missing := sorted(own.keys() ^ tensors.keys()):
        raise BundleError(
            f"{origin} does not fit its recipe: {len(missing)} weights are missing or too many, "
            f"the first is {missing[0]!r}"
        )
    for name, parameter in own.items():
        if parameter.shape != tensors[name].shape:
            raise BundleError(
                f"{origin} does not fit its recipe: {name!r} has shape "
                f"{list(tensors[name].shape)}, expected {list(parameter.shape)}"
            )
        parameter.copy_(tensors[name])


def _read_tokenizer(path: Path) -> Tokenizer:
    if not path.is_file():
        raise BundleError(f"{str(path)!r} does not exist; the run folder is not whole")
    try:
        return Tokenizer.from_json(path.read_text(encoding="utf-8"))
    except (AttendoError, UnicodeDecodeError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}") from None
