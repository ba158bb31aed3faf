"""A published folder becomes a run folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from attendo.bundle import (
    PARAMETERS,
    RECIPE,
    SCORE_CARD,
    TARGET_TOKENIZER,
    TOKENIZER,
    check_finite,
    load_bundle,
    load_task,
    parameters_of,
    shapes_of,
    write_tensors,
)
from attendo.config import Recipe, TransformerConfig, make_recipe, write_recipe
from attendo.errors import AttendoError, BundleError, ConfigError, did_you_mean
from attendo.files import write_folder, write_json, write_text
from attendo.interop.base import Architecture, Vocabulary, model_settings
from attendo.interop.bert import BertForMaskedLM, BertModel
from attendo.interop.folders import (
    CONFIG,
    GENERATION,
    Json,
    check_new,
    read_config,
    read_object,
    read_published,
)
from attendo.interop.gpt2 import Gpt2
from attendo.interop.marian import Marian
from attendo.interop.names import to_ours
from attendo.models.outline import shapes_only
from attendo.tasks import Task

ARCHITECTURES: dict[str, Architecture] = {
    one.name: one for one in (Marian(), BertModel(), BertForMaskedLM(), Gpt2())
}
"""By the name of the class in config.json."""


class Imported(NamedTuple):
    """What was imported."""

    architecture: str
    command: tuple[str, ...]
    """The command that uses the run."""
    n_parameters: int
    left_out: list[str]
    """Tensors of the published model that the run does not need."""
    new: list[str]
    """Parameters that the published model does not have, with new values."""


def import_model(folder: Path, out: Path) -> Imported:
    """Convert a published model to a run folder.

    Raises:
        AttendoError: It is of an unknown architecture, incomplete or damaged, or `out` exists.
    """
    check_new(out)
    config = read_config(folder)
    architecture = find_architecture(config, folder)
    stored = read_published(folder, architecture.name)
    tensors = {architecture.canonical(name): tensor for name, tensor in stored.items()}
    with _about(folder):
        architecture.check(tensors)
        vocabulary = architecture.vocabulary(folder, config)
        recipe = _recipe(architecture, config, vocabulary, folder)
    found: list[Imported] = []

    def fill(temporary: Path) -> None:
        found.append(_fill(temporary, architecture, recipe, vocabulary, tensors, folder))

    write_folder(out, fill)
    return found[0]


def find_architecture(config: Json, folder: Path) -> Architecture:
    """Return the architecture that config.json names."""
    names = config.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else None
    if name is None:  # of the oldest files
        name = {"gpt2": Gpt2.name, "marian": Marian.name, "bert": BertModel.name}.get(
            str(config.get("model_type"))
        )
    if name not in ARCHITECTURES:
        hint = did_you_mean(str(name), ARCHITECTURES)
        raise ConfigError(f"{str(folder)!r} has the architecture {name!r}, not known here; {hint}")
    return ARCHITECTURES[name]


@contextmanager
def _about(folder: Path) -> Iterator[None]:
    """Begin the messages of errors with the folder that is imported."""
    try:
        yield
    except AttendoError as error:
        if str(folder) in str(error):
            raise
        raise type(error)(f"{str(folder)!r}: {error}") from None


def _recipe(
    architecture: Architecture, config: Json, vocabulary: Vocabulary, folder: Path
) -> Recipe:
    model = model_settings(architecture, config, vocabulary)
    sections = {
        "data": {"max_length": architecture.max_length(config)},
        "tokenizer": {
            "kind": vocabulary.kind,
            "vocabulary": max(300, vocabulary.tokenizer.size),
            "shared": vocabulary.shared,
        },
        "model": model,
        "decoding": _beam(folder),
    }
    values = {
        "description": f"{architecture.name} {folder.resolve().name}, imported.",
        "task": architecture.task,
        **{
            name: {**section, **architecture.sections.get(name, {})}
            for name, section in sections.items()
        },
    }
    return make_recipe(values, origin="config.json")


def _beam(folder: Path) -> Json:
    """Return the size of the beam that is published; older models have it in config.json."""
    for name in (GENERATION, CONFIG):
        if (folder / name).is_file():
            beam = read_object(folder / name).get("num_beams")
            if isinstance(beam, int) and 1 <= beam <= 64:
                return {"beam": beam}
    return {}


def _fill(
    folder: Path,
    architecture: Architecture,
    recipe: Recipe,
    vocabulary: Vocabulary,
    tensors: Mapping[str, Tensor],
    origin: Path,
) -> Imported:
    """Write all files of a run, and load it."""
    write_text(folder / RECIPE, write_recipe(recipe))
    write_text(folder / TOKENIZER, vocabulary.tokenizer.to_json())
    if vocabulary.target is not None:
        write_text(folder / TARGET_TOKENIZER, vocabulary.target.to_json())
    write_json(folder / SCORE_CARD, {"task": recipe.task})
    _, task = load_task(folder)
    parameters, left_out = _parameters(architecture, recipe, task, tensors, origin)
    new = _new_parameters(recipe, task, parameters) if architecture.new else {}
    if new:
        write_json(folder / SCORE_CARD, {"task": recipe.task, "untrained": sorted(new)})
    write_tensors(folder / PARAMETERS, {**parameters, **new}, task.fingerprints())
    load_bundle(folder, torch.device("cpu"))
    n_parameters = sum(tensor.numel() for tensor in parameters.values())
    command = architecture.command or task.command
    return Imported(architecture.name, command, n_parameters, left_out, sorted(new))


def _parameters(
    architecture: Architecture,
    recipe: Recipe,
    task: Task,
    tensors: Mapping[str, Tensor],
    origin: Path,
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the parameters that a published model has, and which of its tensors are not needed."""
    with shapes_only():
        shapes = shapes_of(parameters_of(task.build(recipe.model)))
    names = architecture.names(cast(TransformerConfig, recipe.model))
    wanted = {name: one for name, one in shapes.items() if not name.startswith(architecture.new)}
    found, used = to_ours(names, wanted, tensors, repr(str(origin)))
    left_out = sorted(tensors.keys() - used)
    if unknown := [name for name in left_out if not architecture.may_ignore(name)]:
        raise BundleError(
            f"{str(origin)!r} has {len(unknown)} tensors that {architecture.name} does not have, "
            f"the first is {unknown[0]!r}; it is of another architecture"
        )
    check_finite(found, origin)
    return {name: tensor.float() for name, tensor in found.items()}, left_out


def _new_parameters(
    recipe: Recipe, task: Task, parameters: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return new values for parameters that a published model does not have, always the same."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        own = parameters_of(task.build(recipe.model))
    return {name: tensor for name, tensor in own.items() if name not in parameters}
