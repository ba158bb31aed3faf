"""The parameters of a Transformer as CTranslate2 stores them: other names, joint matrices, int8.

The map of names serves both directions: a conversion is written by it, and a model whose
parameters exist only as a conversion is read by it.
"""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attendo.errors import BundleError
from attendo.models.transformer import Transformer
from attendo.nn.embedding import Embedding
from attendo.nn.feedforward import FeedForward, GatedFeedForward
from attendo.nn.layers import Layer
from attendo.nn.stack import Stack

VERSION = 6
"""Of the binary format."""

TYPES = tuple(map(np.dtype, ("<f4", "i1", "<i2", "<i4", "<f2")))
"""Types of numbers, in the order of their codes."""

MOST_DIMENSIONS = 4

Variables = Iterator[tuple[str, list[Tensor]]]
"""Names of CTranslate2, each with our parameters that lie one below the other in it."""


def list_variables(model: Transformer) -> Variables:
    """List all parameters of a model, except learned positions."""
    yield "encoder/embeddings_0/weight", [cast(Embedding, model.source_embedding).weight]
    yield "decoder/embeddings/weight", [model.target_embedding.weight]
    yield from _linear("decoder/projection", model.output)
    yield from _stack("encoder", model.encoder)
    yield from _stack("decoder", model.decoder)


def _stack(name: str, stack: Stack) -> Variables:
    yield from _norm(f"{name}/layernorm_embedding", stack.enter.norm)
    yield from _norm(f"{name}/layer_norm", stack.norm)
    for number, layer in enumerate(stack.typed_layers()):
        yield from _layer(f"{name}/layer_{number}", layer)


def _layer(name: str, layer: Layer) -> Variables:
    own = layer.self_attention
    yield from _linear(f"{name}/self_attention/linear_0", own.query, own.key, own.value)
    yield from _linear(f"{name}/self_attention/linear_1", own.output)
    yield from _norm(f"{name}/self_attention/layer_norm", layer.around_self.norm)
    if layer.has_cross:
        other = layer.cross_attention
        yield from _linear(f"{name}/attention/linear_0", other.query)
        yield from _linear(f"{name}/attention/linear_1", other.key, other.value)
        yield from _linear(f"{name}/attention/linear_2", other.output)
        yield from _norm(f"{name}/attention/layer_norm", layer.around_cross.norm)
    yield from _feed_forward(f"{name}/ffn", layer.feed_forward)
    yield from _norm(f"{name}/ffn/layer_norm", layer.around_feed_forward.norm)


def _feed_forward(name: str, network: FeedForward) -> Variables:
    if isinstance(network, GatedFeedForward):
        yield from _linear(f"{name}/linear_0", network.gate)  # which the activation is applied to
        yield from _linear(f"{name}/linear_0_noact", network.inner)
    else:
        yield from _linear(f"{name}/linear_0", network.inner)
    yield from _linear(f"{name}/linear_1", network.outer)


def _linear(name: str, *parts: nn.Linear) -> Variables:
    """List projections of the same input, which are joined into one."""
    yield f"{name}/weight", [part.weight for part in parts]
    if parts[0].bias is not None:
        yield f"{name}/bias", [part.bias for part in parts]


def _norm(name: str, norm: nn.Module) -> Variables:
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        yield f"{name}/gamma", [norm.weight]
    if isinstance(norm, nn.LayerNorm):
        yield f"{name}/beta", [norm.bias]


def read_parameters(model: Transformer, path: Path) -> dict[str, Tensor]:
    """Read all parameters of a model, which may be an outline, from the file of a conversion.

    Raises:
        BundleError: The file is damaged, or is of another model.
    """
    stored = read_stored(path)
    names: dict[Tensor, str] = {one: name for name, one in model.named_parameters()}
    found: dict[str, Tensor] = {}
    for name, parameters in list_variables(model):
        rows = [len(one) for one in parameters]
        shape = (sum(rows), *parameters[0].shape[1:])
        if name not in stored or stored[name].shape != shape:
            has = list(stored[name].shape) if name in stored else "not there"
            raise BundleError(
                f"{str(path)!r} does not match its recipe: {name!r} is {has}, expected shape "
                f"{list(shape)}"
            )
        parts = torch.from_numpy(stored[name]).split(rows)
        found.update((names[one], part) for one, part in zip(parameters, parts, strict=True))
    if missing := [name for name in names.values() if name not in found]:
        raise BundleError(f"{str(path)!r} has no {missing[0]!r}; restore model.safetensors")
    return found


def check_tokens(folder: Path, *vocabularies: list[str]) -> None:
    """Raise an error unless a conversion has these tokens, of source and target or of both."""
    shared = folder / "shared_vocabulary.json"
    for side, tokens in zip(("source", "target"), (vocabularies[0], vocabularies[-1]), strict=True):
        path = shared if shared.exists() else folder / f"{side}_vocabulary.json"
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BundleError(f"{str(path)!r} cannot be read: {error}") from None
        if not isinstance(stored, list) or stored[: len(tokens)] != tokens:
            raise BundleError(
                f"{str(folder)!r} was converted with another tokenizer than that of the run; "
                "restore the tokenizer that belongs to it"
            )


def read_stored(path: Path) -> dict[str, NDArray[np.float32]]:
    """Read all variables of a file of CTranslate2."""
    try:
        return _Reader(path.read_bytes()).read_all()
    except FileNotFoundError:
        raise BundleError(f"{str(path)!r} does not exist; the folder is incomplete") from None
    except (OSError, ValueError, struct.error, IndexError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; restore it") from None


class _Reader:
    """Reads the parts of a file one after the other; nothing is read beyond its end."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.place = 0

    def read_all(self) -> dict[str, NDArray[np.float32]]:
        """Return all variables; those with two names are the same array."""
        version = self.number("I")
        if version != VERSION:
            raise ValueError(f"version {version} of the format, expected {VERSION}")
        self.text(), self.number("I")  # the kind of model, and its revision
        stored = dict(self.variable() for _ in range(self.number("I")))
        values = {name: _scaled(one, stored.get(f"{name}_scale")) for name, one in stored.items()}
        for _ in range(self.number("I")):
            alias, name = self.text(), self.text()
            if name not in values:
                raise ValueError(f"{alias!r} is another name of {name!r}, which is not there")
            values[alias] = values[name]
        return values

    def variable(self) -> tuple[str, NDArray[Any]]:
        """Return the next variable with its name."""
        name, n_dimensions = self.text(), self.number("B")
        if n_dimensions > MOST_DIMENSIONS:
            raise ValueError(f"{name!r} has {n_dimensions} dimensions")
        shape = [self.number("I") for _ in range(n_dimensions)]
        kind, size = self.number("B"), self.number("I")
        values = np.frombuffer(self.take(size), TYPES[kind])
        return name, values.reshape(shape)

    def text(self) -> str:
        """Return the next string; it ends with a zero."""
        return self.take(self.number("H"))[:-1].decode()

    def number(self, kind: str) -> int:
        """Return the next integer, of a type of `struct`."""
        (found,) = struct.unpack(f"<{kind}", self.take(struct.calcsize(kind)))
        return int(found)

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        found = self.content[self.place : self.place + size]
        if len(found) < size:
            raise ValueError("it ends too early")
        self.place += size
        return found


def _scaled(values: NDArray[Any], scale: NDArray[Any] | None) -> NDArray[np.float32]:
    """Undo the rounding of a matrix, each row of which was multiplied by its scale."""
    found = values.astype(np.float32)
    if scale is not None and scale.shape == values.shape[:1]:
        found /= scale.astype(np.float32)[:, None]
    return found
