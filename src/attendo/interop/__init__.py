"""Other software: published models become runs, and runs become what other programs load."""

from collections.abc import Callable
from typing import Any

from attendo.interop.converting import export_ctranslate2
from attendo.interop.exporting import EXPORTS, Comparison, export_model
from attendo.interop.importing import ARCHITECTURES, Imported, import_model
from attendo.interop.onnx_export import export_onnx

__all__ = [
    "ARCHITECTURES",
    "EXPORTS",
    "FORMATS",
    "Comparison",
    "Imported",
    "export_ctranslate2",
    "export_model",
    "export_onnx",
    "import_model",
]

FORMATS: dict[str, Callable[..., Any]] = {
    "ctranslate2": export_ctranslate2,
    "onnx": export_onnx,
    "huggingface": export_model,
}
"""What a run can be exported to: functions of a run folder and a new folder.

What they return says how both compared.
"""
