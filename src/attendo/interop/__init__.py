"""Published models: folders of Hugging Face `transformers` to run folders, and back."""

from attendo.interop.exporting import EXPORTS, Comparison, export_model
from attendo.interop.importing import ARCHITECTURES, Imported, import_model

__all__ = [
    "ARCHITECTURES",
    "EXPORTS",
    "Comparison",
    "Imported",
    "export_model",
    "import_model",
]
