"""Conversions for CTranslate2 are compared with PyTorch, and int8 is measured, before use."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from attendo.bundle import Bundle, find_device, load_bundle
from attendo.config import DecodingConfig, choose
from attendo.conversions import (
    FOLDER,
    MOST_LOST,
    Conversion,
    Origin,
    add_to_card,
    find_conversion,
    write_record,
)
from attendo.converted import Converted
from attendo.errors import AttendoError, BundleError, ConfigError
from attendo.files import write_folder, write_text
from attendo.interop.ctranslate2 import PRECISIONS, n_positions, write_model
from attendo.interop.exporting import SENTENCES
from attendo.interop.folders import check_new
from attendo.metrics import bleu
from attendo.reporter import Reporter
from attendo.runs import read_validation_pairs
from attendo.tasks import Translated, Translation

COMPARED = 32
"""Sentences whose translations are compared with those of PyTorch."""

MEASURED = 500
"""Most validation pairs that BLEU is measured on."""

TOLERANCE = 1e-3
"""Largest difference of two scores, relative to the score (or 1)."""

Pairs = Sequence[tuple[str, str]]


class Agreement(NamedTuple):
    """A conversion that translates as PyTorch does."""

    n_sentences: int
    difference: float
    """Largest difference of two scores, relative to the score (or 1)."""


def convert(run: Path, bundle: Bundle, origin: Origin, reporter: Reporter) -> Conversion:
    """Convert a run in float32 and int8, compare, measure, and keep the result in its folder.

    The origin is described before the bundle is loaded: the file may be replaced at any time.

    Raises:
        AttendoError: CTranslate2 translates otherwise, or the folder cannot be written.
    """
    reporter.say("converting the model for CTranslate2, once ...")
    pairs = read_validation_pairs(run)[:MEASURED]
    made: list[Conversion] = []

    def fill(folder: Path) -> None:
        for precision in ("float32", "int8"):
            write_model(bundle, folder / precision, precision)
        agreement = compare(bundle, folder / "float32", [source for source, _ in pairs])
        measured = {
            precision: measure(bundle, folder / precision, pairs, reporter)
            for precision in (("float32", "int8") if pairs else ())
        }
        conversion = Conversion(
            origin=origin,
            positions=n_positions(bundle),
            compared=agreement.n_sentences,
            difference=agreement.difference,
            sentences=len(pairs),
            bleu=measured,
        )
        if conversion.choose("auto") != "int8" and pairs:
            shutil.rmtree(folder / "int8")
        write_record(folder, conversion)
        made.append(conversion)

    if find_conversion(run) is None:
        shutil.rmtree(run / FOLDER, ignore_errors=True)  # of other parameters
    try:
        write_folder(run / FOLDER, fill)
    except AttendoError:
        other = find_conversion(run)  # of a process that was faster
        if other is None:
            raise
        return other
    add_to_card(run, reporter)
    reporter.say(made[0].describe())
    return made[0]


class Exported(NamedTuple):
    """A folder for CTranslate2, and how it compares with PyTorch."""

    quantization: str
    agreement: Agreement
    """In float32."""
    n_pairs: int = 0
    scores: tuple[float, float] = (0.0, 0.0)
    """BLEU in float32 and as exported."""

    def __str__(self) -> str:
        """Return one line for people."""
        text = (
            f"compared with PyTorch on {self.agreement.n_sentences} sentences in float32: the same "
            f"greedy translations, scores within {self.agreement.difference:.1e}"
        )
        if not self.n_pairs:
            return text
        before, after = self.scores
        return (
            f"{text}; {self.quantization}: {after:.2f} BLEU on {self.n_pairs} pairs, "
            f"{after - before:+.2f} to float32"
        )


def export_ctranslate2(
    run: Path,
    out: Path,
    quantization: str = "float32",
    *,
    pairs: Pairs | None = None,
    most_lost: float = MOST_LOST,
    reporter: Reporter | None = None,
) -> Exported:
    """Write a run for `ctranslate2.Translator`, load it, and compare.

    Args:
        run: The run folder.
        out: The folder to write; there is none if it is refused.
        quantization: How parameters are stored: one of `PRECISIONS`.
        pairs: What BLEU is measured on; None: the validation pairs of the run.
        most_lost: Most BLEU that the quantization may cost.
        reporter: Shows progress.

    Raises:
        AttendoError: The model cannot be converted, translates otherwise, or loses too much.
    """
    choose(dict.fromkeys(PRECISIONS), quantization, "--quantization")
    check_new(out)
    bundle = load_bundle(run, find_device("cpu"))
    if not isinstance(bundle.task, Translation):
        raise ConfigError(
            f"runs of the task {bundle.recipe.task!r} cannot be exported to ctranslate2; "
            "expected translation"
        )
    measured = (read_validation_pairs(run) if pairs is None else list(pairs))[:MEASURED]
    if quantization != "float32" and not measured:
        raise ConfigError(
            f"{str(run)!r} has no validation pairs on which --quantization {quantization} could be "
            "measured; give some with --source and --target"
        )
    exported: list[Exported] = []

    def fill(folder: Path) -> None:
        write_model(bundle, folder, quantization)
        for name, content in bundle.task.files().items():
            write_text(folder / name, content)
        exported.append(
            _check_export(bundle, folder, quantization, measured, reporter or Reporter())
        )
        _refuse_loss(exported[0], most_lost)

    write_folder(out, fill)
    return exported[0]


def _check_export(
    bundle: Bundle, folder: Path, quantization: str, pairs: Pairs, reporter: Reporter
) -> Exported:
    """Compare an export with PyTorch, in float32, and measure what the quantization costs."""
    sources = [source for source, _ in pairs]
    if quantization == "float32":
        return Exported(quantization, compare(bundle, folder, sources))
    with TemporaryDirectory(prefix="attendo-") as name:
        full = Path(name)
        write_model(bundle, full, "float32")
        agreement = compare(bundle, full, sources)
        before, after = (measure(bundle, one, pairs, reporter) for one in (full, folder))
    return Exported(quantization, agreement, len(pairs), (before, after))


def _refuse_loss(exported: Exported, most_lost: float) -> None:
    before, after = exported.scores
    if before - after > most_lost:
        raise BundleError(
            f"not exported: {exported.quantization} has {after:.2f} BLEU on {exported.n_pairs} "
            f"pairs, {before - after:.2f} less than float32 ({before:.2f}); at most {most_lost:g} "
            "may be lost: use --quantization float32, or accept more with --max-loss"
        )


def compare(bundle: Bundle, folder: Path, sources: Sequence[str]) -> Agreement:
    """Compare greedy translations and their scores with those of PyTorch in float32.

    Raises:
        BundleError: They differ.
    """
    texts = [source for source in sources if source.strip()][:COMPARED]
    texts = texts or [source for source, _ in SENTENCES]
    own = bundle.task.translate(bundle.model, texts, _greedy(bundle), _device(bundle))
    difference = 0.0
    for text, ours, theirs in zip(texts, own, translate(bundle, folder, texts), strict=True):
        first, second = ours[0], theirs[0]
        if first.text != second.text:
            raise BundleError(
                f"CTranslate2 translates {text!r:.200} as {second.text!r:.200}, "
                f"PyTorch as {first.text!r:.200}"
            )
        difference = max(difference, abs(first.score - second.score) / max(1, abs(first.score)))
    if not difference <= TOLERANCE:
        raise BundleError(
            f"the scores of CTranslate2 and PyTorch differ by up to {difference:.1e} of the score"
        )
    return Agreement(len(texts), difference)


def measure(bundle: Bundle, folder: Path, pairs: Pairs, reporter: Reporter) -> float:
    """Return BLEU of the greedy translations of a conversion."""
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    with reporter.bar(f"measuring {folder.name}", len(pairs)) as advance:
        found = translate(bundle, folder, sources, lambda n: advance(n, ""))
    return bleu([best[0].text for best in found], references)


def translate(
    bundle: Bundle,
    folder: Path,
    texts: Sequence[str],
    done: Callable[[int], None] = lambda n: None,
) -> list[list[Translated]]:
    """Translate texts greedily with a conversion."""
    task = bundle.task
    tokenizers = task.source, task.target
    converted = Converted(folder, tokenizers, task.max_length, n_positions(bundle))
    return list(converted.stream([(text, "") for text in texts], _greedy(bundle), done=done))


def _greedy(bundle: Bundle) -> DecodingConfig:
    sentences = bundle.recipe.decoding.sentences
    return DecodingConfig(strategy="greedy", batch_size=64, sentences=sentences)


def _device(bundle: Bundle) -> torch.device:
    device: torch.device = next(bundle.model.parameters()).device
    return device
