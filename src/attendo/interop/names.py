"""Names of parameters, ours and those of others: tables that are read in both directions.

In a pattern, {n} is the number of a layer, and {p} is `weight` or `bias`.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from attendo.errors import BundleError


class Theirs(NamedTuple):
    """How a parameter of ours is stored by others."""

    name: str
    part: int | None = None
    """Which third of a joint tensor of queries, keys and values it is."""
    transposed: bool = False
    """Matrices are stored as (in, out)."""
    is_row: bool = False
    """A vector is stored as a matrix of one row."""
    copies: tuple[str, ...] = ()
    """Names under which some files store it, too, or only."""
    also: str = ""
    """Name of a tensor that must be there, and that nothing is computed with."""
    is_optional: bool = False
    """Files that lack it mean zeros."""

    def read(self, tensor: Tensor) -> Tensor:
        """Return the parameter that a stored tensor holds."""
        if self.is_row:
            tensor = tensor.squeeze(0)
        if self.transposed:
            tensor = tensor.mT if tensor.ndim == 2 else tensor
        return tensor if self.part is None else tensor.tensor_split(3)[self.part]

    def write(self, parts: list[Tensor]) -> Tensor:
        """Return the tensor that holds a parameter, or the three parameters of a joint tensor."""
        tensor = torch.cat(parts)
        if self.transposed and tensor.ndim == 2:
            tensor = tensor.mT
        return tensor[None] if self.is_row else tensor


Names = Mapping[str, str | Theirs]
"""Patterns of our names, and what others call them."""

_NUMBER, _KIND = r"(?P<n>\d+)", r"(?P<p>weight|bias)"


def find(names: Names, name: str) -> Theirs:
    """Return how others store a parameter of ours."""
    for pattern, theirs in names.items():
        if match := re.fullmatch(_expression(pattern), name):
            entry = theirs if isinstance(theirs, Theirs) else Theirs(theirs)
            found = match.groupdict()
            return entry._replace(
                name=entry.name.format(**found),
                copies=tuple(copy.format(**found) for copy in entry.copies),
            )
    raise KeyError(name)


def _expression(pattern: str) -> str:
    return re.escape(pattern).replace(r"\{n\}", _NUMBER).replace(r"\{p\}", _KIND)


def to_ours(
    names: Names, wanted: Mapping[str, torch.Size], given: Mapping[str, Tensor], origin: str
) -> tuple[dict[str, Tensor], set[str]]:
    """Return our parameters from the tensors of others, and which of theirs were used.

    Raises:
        BundleError: One is missing, has another shape, or has copies that differ.
    """
    found: dict[str, Tensor] = {}
    used: set[str] = set()
    for name, shape in wanted.items():
        theirs = find(names, name)
        stored = [one for one in (theirs.name, *theirs.copies) if one in given]
        if not stored and theirs.is_optional:
            found[name] = torch.zeros(shape)
            continue
        if not stored:
            raise BundleError(
                f"{origin} has no tensor {theirs.name!r}, which config.json requires; "
                "it is incomplete, or of another model"
            )
        first = given[stored[0]]
        tensor = _read(theirs, first)
        if tensor is None or tensor.shape != shape:
            raise BundleError(
                f"{origin}: the tensor {stored[0]!r} has shape {list(first.shape)}, which does not "
                f"match config.json: expected {list(shape)} for our {name!r}"
            )
        for copy in stored[1:]:
            if not torch.equal(given[copy].flatten(), first.flatten()):
                raise BundleError(
                    f"{origin}: {copy!r} differs from {stored[0]!r}, although config.json says "
                    "that they are one matrix"
                )
        found[name] = tensor
        used.update((*stored, theirs.also))
    return found, used


def _read(theirs: Theirs, tensor: Tensor) -> Tensor | None:
    try:
        return theirs.read(tensor)
    except RuntimeError:  # of another number of dimensions
        return None


def to_theirs(names: Names, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of others from our parameters."""
    parts: dict[str, list[tuple[Theirs, Tensor]]] = {}
    for name, tensor in parameters.items():
        theirs = find(names, name)
        parts.setdefault(theirs.name, []).append((theirs, tensor))
    tensors = {}
    for name, some in parts.items():
        theirs, _ = some[0]
        some.sort(key=lambda entry: entry[0].part or 0)
        tensors[name] = theirs.write([tensor for _, tensor in some])
        if theirs.also:
            tensors[theirs.also] = tensors[name].clone()
    return tensors
