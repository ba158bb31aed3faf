"""Text to ids and back: tokenizers, and sentences and words of text.

Subword regularisation is in `dropout`, which needs NumPy and is for training only.
"""

from attendo.text.continuation import Continuation
from attendo.text.noise import NOISES, add_noise
from attendo.text.published import load_tokenizer
from attendo.text.segments import (
    Segment,
    WordCounter,
    divide,
    fold_case,
    iterate_sentences,
    iterate_words,
    split_sentences,
)
from attendo.text.stops import STOPS, Stop
from attendo.text.tokenizer import Tokenizer
from attendo.text.training import TOKENIZERS, check_vocabulary, train_tokenizer

__all__ = [
    "NOISES",
    "STOPS",
    "TOKENIZERS",
    "Continuation",
    "Segment",
    "Stop",
    "Tokenizer",
    "WordCounter",
    "add_noise",
    "check_vocabulary",
    "divide",
    "fold_case",
    "iterate_sentences",
    "iterate_words",
    "load_tokenizer",
    "split_sentences",
    "train_tokenizer",
]
