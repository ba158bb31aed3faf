"""Models as ONNX graphs that plain `onnxruntime` runs, without this package and without PyTorch.

    translation             encoder.onnx, decoder.onnx (one step, with a cache)
    language-model          decoder.onnx (one step, with a cache)
    other tasks             model.onnx (a text at once)

`docs/engines.md` describes inputs and outputs. B rows, S source tokens, T tokens so far.
"""

import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from attendo.bundle import Bundle
from attendo.errors import ConfigError
from attendo.models import Memory
from attendo.nn.grid import Grid
from attendo.nn.multihead import KeysValues
from attendo.nn.stack import StackState

OPSET = 20


class Graph(nn.Module, ABC):
    """A part of a model as a function of tensors."""

    name: ClassVar[str]
    """Of its file."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @abstractmethod
    def example(self) -> "Example":
        """Return inputs to trace it with."""


class Example(NamedTuple):
    """Inputs of a graph, and the names of all inputs and outputs."""

    inputs: dict[str, Tensor]
    outputs: list[str]
    axes: dict[str, str]
    """The axes of each input: letters for those of any size, a dot for a fixed one."""


def _grid(ids: Tensor, mask: Tensor) -> Grid:
    """Return rows of one sequence each; whatever is in the mask's zeros is padding."""
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    return Grid(ids, mask, positions)


def _cache_names(prefix: str, n_layers: int) -> list[str]:
    """Name keys and values of all layers, such as `past.0.keys`."""
    return [f"{prefix}.{n}.{part}" for n in range(n_layers) for part in ("keys", "values")]


def _flat(cache: Sequence[KeysValues]) -> list[Tensor]:
    return [tensor for pair in cache for tensor in pair]


def _pairs(tensors: Sequence[Tensor]) -> tuple[KeysValues, ...]:
    return tuple(
        KeysValues(keys, values) for keys, values in zip(tensors[::2], tensors[1::2], strict=True)
    )


class EncoderGraph(Graph):
    """A source as the keys and values that the decoder attends to."""

    name = "encoder"

    def forward(self, source: Tensor, source_mask: Tensor) -> list[Tensor]:
        """Encode (B, S) ids, with 1 in the mask for a token and 0 for padding."""
        memory: Memory = self.model.encode(_grid(source, source_mask))
        return _flat(self.model.start(memory).memory)

    def example(self) -> Example:
        """Return two sources of different lengths."""
        mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
        names = _cache_names("memory", len(self.model.decoder.layers))
        inputs = {"source": torch.full((2, 5), 3), "source_mask": mask}
        return Example(inputs, names, {"source": "BS", "source_mask": "BS"})


class DecoderGraph(Graph):
    """One more token of every row; with a source if the model has one."""

    name = "decoder"

    def forward(self, tokens: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Return the logits after the newest tokens (B), and the cache with them."""
        n_layers = len(self.model.decoder.layers)
        past = _pairs(tensors[: 2 * n_layers])
        memory: tuple[KeysValues, ...] = ()
        mask = None
        if self.model.decoder.cross:
            memory, mask = _pairs(tensors[2 * n_layers : -1]), tensors[-1][:, None, None, :] != 0
        logits, state = self.model.step(tokens, StackState(past, memory, mask))
        return [logits, *_flat(state.past)]

    def example(self) -> Example:
        """Return the fourth step of two rows."""
        layers = self.model.decoder.typed_layers()
        attention = layers[0].self_attention
        shape = (2, attention.n_heads, 3, attention.query.out_features // attention.n_heads)
        past = _cache_names("past", len(layers))
        inputs = {"token": torch.full((2,), 3), **{name: torch.randn(shape) for name in past}}
        axes = {"token": "B", **dict.fromkeys(past, "B.T.")}
        if self.model.decoder.cross:
            memory = _cache_names("memory", len(layers))
            wide = (*shape[:2], 5, shape[3])
            inputs |= {name: torch.randn(wide) for name in memory}
            inputs["source_mask"] = torch.ones(2, 5, dtype=torch.long)
            axes |= {**dict.fromkeys(memory, "B.S."), "source_mask": "BS"}
        return Example(inputs, ["logits", *_cache_names("present", len(layers))], axes)


class TextGraph(Graph):
    """The logits of all positions of a text."""

    name = "model"

    def forward(self, text: Tensor, text_mask: Tensor) -> Tensor:
        """Return logits (B, S, classes) of (B, S) ids."""
        memory: Memory = self.model.encode(_grid(text, text_mask))
        hidden = self.model.pool(memory) if hasattr(self.model, "pool") else memory.hidden
        logits: Tensor = self.model.logits(hidden)
        return logits

    def example(self) -> Example:
        """Return two texts of different lengths."""
        mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
        inputs = {"text": torch.full((2, 5), 3), "text_mask": mask}
        return Example(inputs, ["logits"], {"text": "BS", "text_mask": "BS"})


GRAPHS: dict[str, tuple[type[Graph], ...]] = {
    "translation": (EncoderGraph, DecoderGraph),
    "language-model": (DecoderGraph,),
    "masked-language-model": (TextGraph,),
    "classification": (TextGraph,),
    "pair-classification": (TextGraph,),
    "token-classification": (TextGraph,),
}
"""What a run of a task becomes."""


def make_graphs(bundle: Bundle) -> list[Graph]:
    """Return the graphs of a model."""
    recipe = bundle.recipe
    if recipe.task not in GRAPHS:
        raise ConfigError(
            f"runs of the task {recipe.task!r} cannot be exported to onnx; expected one of: "
            f"{', '.join(GRAPHS)}"
        )
    if recipe.model.kind != "transformer":
        raise ConfigError(f"model.kind = {recipe.model.kind!r} cannot be exported to onnx")
    return [kind(bundle.model).eval() for kind in GRAPHS[recipe.task]]


def write_graph(graph: Graph, folder: Path) -> None:
    """Write a graph whose batch and lengths are free."""
    example = graph.example()
    sizes = {letter: torch.export.Dim(letter) for letter in "BST"}
    shapes = {
        name: {n: sizes[axis] for n, axis in enumerate(axes) if axis != "."}
        for name, axes in example.axes.items()
    }
    inputs = tuple(example.inputs.values())
    dynamic: Any = tuple(shapes.values())
    if isinstance(graph, DecoderGraph):
        dynamic = (dynamic[0], dynamic[1:])
    with _quiet():
        torch.onnx.export(
            graph,
            inputs,
            str(folder / f"{graph.name}.onnx"),
            input_names=list(example.inputs),
            output_names=example.outputs,
            dynamic_shapes=dynamic,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from printing: what is wrong with an export is found by comparing."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
