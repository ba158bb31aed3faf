"""Published folders: config.json and the tensors of safetensors files."""

import shlex
from pathlib import Path
from typing import Any

from torch import Tensor

from attendo.bundle import read_tensors
from attendo.errors import BundleError, ConfigError
from attendo.files import read_json

CONFIG = "config.json"
GENERATION = "generation_config.json"
TENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"

_MOST_BYTES = 1 << 24
_PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "*.gguf", "*.onnx", "*.npz")

Json = dict[str, Any]


def check_new(out: Path) -> None:
    """Raise an error if a folder exists already."""
    if out.exists():
        raise ConfigError(f"{str(out)!r} exists already; give another folder with --out")


def read_config(folder: Path) -> Json:
    """Read config.json."""
    if not folder.is_dir():
        raise BundleError(
            f"{str(folder)!r} is not a folder; expected one with {CONFIG} and {TENSORS}"
        )
    path = folder / CONFIG
    if not path.is_file():
        raise BundleError(
            f"{str(folder)!r} has no {CONFIG}; expected a folder of Hugging Face transformers, "
            f"with {CONFIG}, {TENSORS} and a tokenizer"
        )
    return read_object(path)


def read_object(path: Path) -> Json:
    """Read a JSON file that holds an object."""
    try:
        values = read_json(path, _MOST_BYTES)
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; download it again") from None
    if not isinstance(values, dict):
        raise BundleError(f"{str(path)!r} is damaged: expected a JSON object; download it again")
    return values


def read_published(folder: Path, architecture: str) -> dict[str, Tensor]:
    """Read all tensors of a folder, from one file or from several with an index."""
    tensors: dict[str, Tensor] = {}
    for path in _tensor_files(folder, architecture):
        tensors |= read_tensors(path)
    return tensors


def _tensor_files(folder: Path, architecture: str) -> list[Path]:
    """List the safetensors files of a folder, or say why there are none."""
    if (folder / TENSORS).is_file():
        return [folder / TENSORS]
    if not (folder / INDEX).is_file():
        raise BundleError(_why_no_tensors(folder, architecture))
    places = read_object(folder / INDEX).get("weight_map")
    names = sorted(set(map(str, places.values()))) if isinstance(places, dict) else []
    # The index may come from a stranger, and must not make files elsewhere be read.
    if not names or any(Path(name).name != name for name in names):
        raise BundleError(f"{str(folder / INDEX)!r} is damaged; download it again")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise BundleError(
            f"{str(folder)!r} has no {missing[0]}, which its {INDEX} names: the download is "
            "incomplete; download it again"
        )
    return [folder / name for name in names]


def _why_no_tensors(folder: Path, architecture: str) -> str:
    if found := _first(folder, _PICKLES):
        place = repr(str(folder))
        program = (
            f"from transformers import {architecture} as Model; "
            f"Model.from_pretrained({place}).save_pretrained({place})"
        )
        return (
            f"{place} has its parameters only in {found.name}, a pickle: loading one can run any "
            "program, so it is never loaded here; look for a revision of the model with "
            f"{TENSORS}, or, if you trust its authors, write that file with: "
            f"{shlex.join(['python', '-c', program])}"
        )
    if found := _first(folder, _OTHERS):
        return (
            f"{str(folder)!r} has {found.name}, but no {TENSORS}; look for a revision of the model "
            "with that file"
        )
    return f"{str(folder)!r} has no {TENSORS}; it is incomplete: download it again"


def _first(folder: Path, patterns: tuple[str, ...]) -> Path | None:
    return next((path for pattern in patterns for path in sorted(folder.glob(pattern))), None)
