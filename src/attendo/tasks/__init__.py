"""Tasks: the only place where text, data, model, loss and search come together."""

from attendo.tasks.translation import Translated, Translation

__all__ = ["Translated", "Translation"]
