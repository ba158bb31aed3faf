"""Tasks: the only place where text, data, model, loss and search come together."""

from attendo.tasks.segments import Translated
from attendo.tasks.translation import Reading, Translation

__all__ = ["Reading", "Translated", "Translation"]
