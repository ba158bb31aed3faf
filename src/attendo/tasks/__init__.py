"""Tasks: the only place where text, data, model, loss, metric and decoding meet."""

from attendo.tasks.audio_classification import AudioClassification
from attendo.tasks.base import Example, Metric, Task
from attendo.tasks.classification import (
    Classification,
    Labelled,
    LabelledPair,
    PairClassification,
    Prediction,
)
from attendo.tasks.image_classification import ImageClassification
from attendo.tasks.inspection import Inspection, TokenizedText
from attendo.tasks.labels import LabelTask
from attendo.tasks.language_model import LanguageModel
from attendo.tasks.masked_language_model import MaskedLanguageModel
from attendo.tasks.parsing import Parsing
from attendo.tasks.predicting import Answer, PredictingTask
from attendo.tasks.span_parsing import SpanParsing
from attendo.tasks.speech_recognition import SpeechRecognition, Transcript
from attendo.tasks.token_classification import LabelledWords, TaggedText, TokenClassification
from attendo.tasks.translation import Translation
from attendo.tasks.trees import Parse, TreeTask
from attendo.text.streams import Translated

__all__ = [
    "TASKS",
    "Answer",
    "AudioClassification",
    "Classification",
    "Example",
    "ImageClassification",
    "Inspection",
    "LabelTask",
    "Labelled",
    "LabelledPair",
    "LabelledWords",
    "LanguageModel",
    "MaskedLanguageModel",
    "Metric",
    "PairClassification",
    "Parse",
    "Parsing",
    "PredictingTask",
    "Prediction",
    "SpanParsing",
    "SpeechRecognition",
    "TaggedText",
    "Task",
    "TokenClassification",
    "TokenizedText",
    "Transcript",
    "Translated",
    "Translation",
    "TreeTask",
]

TASKS: dict[str, type[Task]] = {
    "translation": Translation,
    "language-model": LanguageModel,
    "masked-language-model": MaskedLanguageModel,
    "classification": Classification,
    "pair-classification": PairClassification,
    "token-classification": TokenClassification,
    "parsing": Parsing,
    "parsing-spans": SpanParsing,
    "image-classification": ImageClassification,
    "audio-classification": AudioClassification,
    "speech-recognition": SpeechRecognition,
}
"""What a recipe can name as its task."""
