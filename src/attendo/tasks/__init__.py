"""Tasks: the only place where text, data, model, loss, metric and decoding meet."""

from attendo.tasks.base import Example, Metric, Task
from attendo.tasks.classification import (
    Classification,
    Labelled,
    LabelledPair,
    PairClassification,
    Prediction,
)
from attendo.tasks.inspection import Inspection, TokenizedText
from attendo.tasks.labels import LabelTask
from attendo.tasks.language_model import LanguageModel
from attendo.tasks.masked_language_model import MaskedLanguageModel
from attendo.tasks.predicting import Answer, PredictingTask
from attendo.tasks.token_classification import LabelledWords, TaggedText, TokenClassification
from attendo.tasks.translation import Translation
from attendo.text.streams import Translated

__all__ = [
    "TASKS",
    "Answer",
    "Classification",
    "Example",
    "Inspection",
    "LabelTask",
    "Labelled",
    "LabelledPair",
    "LabelledWords",
    "LanguageModel",
    "MaskedLanguageModel",
    "Metric",
    "PairClassification",
    "PredictingTask",
    "Prediction",
    "TaggedText",
    "Task",
    "TokenClassification",
    "TokenizedText",
    "Translated",
    "Translation",
]

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "language-model": LanguageModel,
    "masked-language-model": MaskedLanguageModel,
    "classification": Classification,
    "pair-classification": PairClassification,
    "token-classification": TokenClassification,
}
"""What a recipe can name as its task."""
