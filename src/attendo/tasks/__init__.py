"""Tasks: the only place where text, data, model, loss and search come together."""

from attendo.tasks.translation import Reading, Translated, Translation

__all__ = ["Reading", "Translated", "Translation"]
