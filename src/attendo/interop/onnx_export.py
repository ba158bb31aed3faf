"""A run folder becomes ONNX graphs, which are loaded with `onnxruntime` and compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attendo.bundle import Bundle, find_device, load_bundle
from attendo.data.packing import pad_grid
from attendo.errors import BundleError
from attendo.files import write_folder, write_json, write_text
from attendo.interop.exporting import SENTENCES, TOLERANCE
from attendo.interop.folders import check_new
from attendo.interop.onnx import make_graphs, write_graph
from attendo.specials import Specials

MORE = 20
"""Tokens that are generated beyond the length of a source or prompt."""

Arrays = Mapping[str, NDArray[Any]]


class OnnxComparison(NamedTuple):
    """How graphs and PyTorch differ."""

    files: list[str]
    n_sentences: int
    n_tokens: int
    difference: float
    """Largest difference of two logits."""
    largest: float
    """Largest logit."""

    def __str__(self) -> str:
        """Return one line for people."""
        return (
            f"compared {' and '.join(self.files)} in onnxruntime with PyTorch on "
            f"{self.n_sentences} sentences, {self.n_tokens} tokens: the same choices; the largest "
            f"difference of two logits is {self.difference:.1e} (the largest logit is "
            f"{self.largest:.1f})"
        )


def export_onnx(run: Path, out: Path) -> OnnxComparison:
    """Write a run as ONNX graphs, run them, and compare; nothing is left if they differ.

    Raises:
        AttendoError: The model cannot be exported, or computes something else.
    """
    import onnxruntime  # noqa: F401 -- if one is missing, say so before any work
    import onnxscript  # noqa: F401

    check_new(out)
    bundle = load_bundle(run, find_device("cpu"))
    graphs = make_graphs(bundle)
    compared: list[OnnxComparison] = []

    def fill(folder: Path) -> None:
        for graph in graphs:
            write_graph(graph, folder)
        for name, content in bundle.task.files().items():
            write_text(folder / name, content)
        write_json(folder / "config.json", describe_export(bundle))
        compared.append(compare(bundle, folder, [f"{graph.name}.onnx" for graph in graphs]))

    write_folder(out, fill)
    return compared[0]


def describe_export(bundle: Bundle) -> dict[str, Any]:
    """Return what a program needs besides graphs and tokenizers."""
    model = bundle.recipe.model
    source, target = _specials(bundle)
    return {
        "task": bundle.recipe.task,
        "max_length": bundle.task.max_length,
        "source_special_tokens": source._asdict(),
        "target_special_tokens": target._asdict(),
        "decoder_layers": model.decoder_layers,
        "n_heads": getattr(model, "n_heads", 0),
        "head_width": model.d_model // getattr(model, "n_heads", 1),
        "labels": list(getattr(bundle.task, "labels", [])),
    }


def _specials(bundle: Bundle) -> tuple[Specials, Specials]:
    """Return the special tokens of source and target; a language model may have its own."""
    tokenizers = list(bundle.task.tokenizers.values())
    own = getattr(bundle.task, "specials", None)
    return own or tokenizers[0].specials, own or tokenizers[-1].specials


def compare(bundle: Bundle, folder: Path, files: list[str]) -> OnnxComparison:
    """Run graphs on a padded batch, and compare logits and choices with those of PyTorch.

    Raises:
        BundleError: They differ.
    """
    sessions = {name.removesuffix(".onnx"): _open(folder / name) for name in files}
    run = _run_decoder if "decoder" in sessions else _run_text
    n_tokens, difference, largest = 0, 0.0, 0.0
    for own, other in run(bundle, sessions):
        n_tokens += len(own)
        difference = max(difference, float((own - other).abs().max()))
        largest = max(largest, float(own.abs().max()))
        if not torch.equal(own.argmax(dim=-1), other.argmax(dim=-1)):
            difference = float("inf")
    if not difference <= TOLERANCE * max(1.0, largest):
        raise BundleError(
            f"not exported: the logits of onnxruntime differ by up to {difference:.1e} "
            f"(the largest logit is {largest:.1f}); expected at most {TOLERANCE:.0e} of it"
        )
    return OnnxComparison(files, len(SENTENCES), n_tokens, difference, largest)


Logits = list[tuple[Tensor, Tensor]]
"""For each sentence, those of PyTorch and those of onnxruntime."""


def _run_text(bundle: Bundle, sessions: Mapping[str, Any]) -> Logits:
    """Compare the logits of whole texts."""
    tokenizer = next(iter(bundle.task.tokenizers.values()))
    rows = [[tokenizer.specials.bos, *tokenizer.encode(source)] for source, _ in SENTENCES]
    rows = [row[: bundle.task.max_length] for row in rows]
    ids, mask = _padded(rows, tokenizer.specials.pad)
    found = torch.tensor(_call(sessions["model"], {"text": ids, "text_mask": mask})["logits"])
    logits: Logits = []
    for row, other in zip(rows, found, strict=True):
        with torch.inference_mode():
            memory = bundle.model.encode(pad_grid([row], 0))
            pool = getattr(bundle.model, "pool", lambda memory: memory.hidden)
            logits.append((bundle.model.logits(pool(memory))[0], other[: len(row)]))
    return logits


def _run_decoder(bundle: Bundle, sessions: Mapping[str, Any]) -> Logits:
    """Generate greedily with onnxruntime; PyTorch computes the same logits in one pass.

    If both prefer the same token at each step, greedy search finds the same with both.
    """
    has_source = "encoder" in sessions
    tokenizers = list(bundle.task.tokenizers.values())
    special, target_special = _specials(bundle)
    longest = bundle.task.max_length
    sources = [tokenizers[0].encode(source)[: longest // 2] for source, _ in SENTENCES]
    given: dict[str, NDArray[Any]] = {}
    prompts = [[target_special.bos, *([] if has_source else source)] for source in sources]
    if has_source:
        sources = [[*source, special.eos] for source in sources]
        ids, mask = _padded(sources, special.pad)
        given = {**_call(sessions["encoder"], {"source": ids, "source_mask": mask})}
        given["source_mask"] = mask
    steps = max(map(len, sources)) + MORE
    tokens, found = _generate(sessions["decoder"], prompts, given, min(steps, longest))
    logits: Logits = []
    for row, other, source in zip(tokens, found, sources, strict=True):
        with torch.inference_mode():
            target = pad_grid([row], 0)
            memory = [bundle.model.encode(pad_grid([source], 0))] if has_source else []
            own = bundle.model.logits(bundle.model.decode(target, *memory))[0]
        logits.append((own, other))
    return logits


def _generate(
    session: Any, prompts: Sequence[list[int]], given: Arrays, steps: int
) -> tuple[list[list[int]], Tensor]:
    """Continue prompts greedily; returns the tokens that were read and the logits after each."""
    cache = {
        one.name: np.zeros((len(prompts), one.shape[1], 0, one.shape[3]), np.float32)
        for one in session.get_inputs()
        if one.name.startswith("past.")
    }
    rows: list[list[int]] = [[] for _ in prompts]
    logits: list[NDArray[np.float32]] = []
    for step in range(steps):
        chosen = logits[-1].argmax(axis=-1).tolist() if logits else [0] * len(rows)
        for row, prompt, token in zip(rows, prompts, chosen, strict=True):
            row.append(prompt[step] if step < len(prompt) else token)
        newest = np.array([row[-1] for row in rows], dtype=np.int64)
        found = _call(session, {"token": newest, **cache, **given})
        logits.append(found.pop("logits"))
        cache = {name.replace("present", "past"): value for name, value in found.items()}
    return rows, torch.tensor(np.stack(logits, axis=1))


def _padded(rows: Sequence[list[int]], pad: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows of ids as a matrix, and a mask with 1 for each token."""
    width = max(map(len, rows))
    ids = np.array([row + [pad] * (width - len(row)) for row in rows], dtype=np.int64)
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], dtype=np.int64)
    return ids, mask


def _open(path: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def _call(session: Any, inputs: Arrays) -> dict[str, NDArray[np.float32]]:
    """Run a graph; returns its outputs by name."""
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))
