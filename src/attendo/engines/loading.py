"""Which engine translates: CTranslate2 on a CPU where it can run the model, else PyTorch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attendo.config import change_decoding, choose
from attendo.conversions import Conversion, Origin, find_conversion
from attendo.engines.base import TextTranslator
from attendo.engines.ctranslate2 import CTranslate2Translator
from attendo.errors import AttendoError, ConfigError
from attendo.hypotheses import NOT_FINITE, STRATEGIES, check_n_best
from attendo.reporter import Reporter
from attendo.runs import PARAMETERS, load_run_recipe

ENGINES = {
    "auto": "CTranslate2 on a CPU where it can run the model, else PyTorch",
    "torch": "PyTorch",
    "ctranslate2": "CTranslate2, or an error",
}
"""What --engine can name."""

PRECISIONS = {
    "auto": "int8 where it costs at most 0.3 BLEU on the validation pairs, else float32",
    "int8": "int8",
    "float32": "float32",
    "bfloat16": "bfloat16, with PyTorch: faster on a GPU",
}
"""What --precision can name."""


def load_translator(
    run: str | Path,
    *,
    engine: str = "auto",
    precision: str = "auto",
    device: str = "auto",
    reporter: Reporter | None = None,
) -> TextTranslator:
    """Load a run folder for translating, with the best engine for it.

    The first time, the parameters are converted for CTranslate2, and compared with PyTorch.

    Args:
        run: The folder.
        engine: A key of `ENGINES`.
        precision: A key of `PRECISIONS`; int8 is for CTranslate2, bfloat16 for PyTorch.
        device: auto, cpu, cuda or cuda:1; CTranslate2 is used on the CPU only.
        reporter: Receives messages.

    >>> model = attendo.load_translator("runs/demo", device="cpu", precision="float32")
    >>> model.translate("The dog sleeps.") == attendo.load("runs/demo").translate("The dog sleeps.")
    True
    """
    choose(ENGINES, engine, "--engine")
    choose(PRECISIONS, precision, "--precision")
    folder, reporter = Path(run), reporter or Reporter()
    if engine == "ctranslate2" and device not in ("auto", "cpu"):
        raise ConfigError(f"--engine ctranslate2 is for the CPU, not for --device {device}")
    if engine == "ctranslate2" and precision == "bfloat16":
        raise ConfigError("--precision bfloat16 is for --engine torch")
    if engine == "torch" or precision == "bfloat16" or not _is_for_cpu(engine, device):
        if precision == "int8":
            raise ConfigError("--precision int8 needs --engine ctranslate2 and a CPU")
        return _load_torch(folder, device, precision)
    try:
        conversion = find_conversion(folder) or _convert(folder, reporter)
    except ConversionError as error:
        if engine == "ctranslate2" or precision == "int8":
            raise ConfigError(f"{error}; use --engine torch") from None
        translator = _load_torch(folder, device, precision)
        reporter.say(f"{error}: using PyTorch")
        return translator
    return CTranslate2Translator(folder, conversion, precision, reporter)


def check_search(run: str | Path, n_best: int, options: Mapping[str, Any]) -> None:
    """Raise an error for a search that cannot be done, before anything is loaded or converted."""
    decoding = change_decoding(load_run_recipe(Path(run)).decoding, dict(options))
    choose(STRATEGIES, decoding.strategy, "decoding.strategy")
    check_n_best(decoding, n_best)


class ConversionError(AttendoError):
    """A run cannot be converted, but can be used on PyTorch."""


def _is_for_cpu(engine: str, device: str) -> bool:
    """Return whether the CPU is to be used; a GPU is found without importing PyTorch."""
    if engine == "ctranslate2" or device == "cpu":
        return True
    if device != "auto":
        return False
    import ctranslate2

    return bool(ctranslate2.get_cuda_device_count() == 0)


def _convert(run: Path, reporter: Reporter) -> Conversion:
    """Convert a run, and keep the result in its folder."""
    from attendo.bundle import find_device, load_bundle
    from attendo.engines.pytorch import check_task
    from attendo.interop.converting import convert
    from attendo.interop.ctranslate2 import reason_against
    from attendo.tasks import Translation

    recipe = load_run_recipe(run)
    if recipe.task == Translation.name and (reason := reason_against(recipe.model)):
        raise ConversionError(f"CTranslate2 has no {reason}")
    path = run / PARAMETERS
    origin = Origin.of(path) if path.is_file() else None  # before a training may replace it
    bundle = load_bundle(run, find_device("cpu"))  # refuses a run without parameters
    check_task(bundle.task, Translation)
    assert origin is not None
    try:
        return convert(run, bundle, origin, reporter)
    except AttendoError as error:
        if str(error) == NOT_FINITE:  # PyTorch cannot use these parameters either
            raise
        raise ConversionError(f"{str(run / PARAMETERS)!r} is not converted: {error}") from None


def _load_torch(run: Path, device: str, precision: str) -> TextTranslator:
    from attendo.engines.pytorch import load

    translator = load(run, device)
    if precision == "bfloat16":
        translator.model.bfloat16()
        translator.precision = precision
    return translator
