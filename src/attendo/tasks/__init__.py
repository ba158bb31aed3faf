"""Tasks: the only place where text, data, model, loss, metric and decoding meet."""

from attendo.tasks.base import Example, Metric, Task
from attendo.tasks.classification import Classification, Labelled, Prediction
from attendo.tasks.language_model import LanguageModel
from attendo.tasks.segments import Translated
from attendo.tasks.translation import TokenizedPair, Translation

__all__ = [
    "TASKS",
    "Classification",
    "Example",
    "Labelled",
    "LanguageModel",
    "Metric",
    "Prediction",
    "Task",
    "TokenizedPair",
    "Translated",
    "Translation",
]

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "language-model": LanguageModel,
    "classification": Classification,
}
"""What a recipe can name as its task."""
