"""Tasks: the only place where text, data, model, loss, metric and decoding meet."""

from attendo.tasks.base import Example, Metric, Task
from attendo.tasks.classification import Classification, Labelled, Prediction
from attendo.tasks.inspection import Inspection, TokenizedText
from attendo.tasks.language_model import LanguageModel
from attendo.tasks.masked_language_model import MaskedLanguageModel
from attendo.tasks.segments import Translated
from attendo.tasks.translation import Translation

__all__ = [
    "TASKS",
    "Classification",
    "Example",
    "Inspection",
    "Labelled",
    "LanguageModel",
    "MaskedLanguageModel",
    "Metric",
    "Prediction",
    "Task",
    "TokenizedText",
    "Translated",
    "Translation",
]

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "language-model": LanguageModel,
    "masked-language-model": MaskedLanguageModel,
    "classification": Classification,
}
"""What a recipe can name as its task."""
