"""Text to ids and back: tokenizers, learned here or published, and subword regularisation."""

from attendo.text.dropout import Segmentations, Words, sample_segmentations
from attendo.text.kinds import TOKENIZERS, train_tokenizer
from attendo.text.published import load_tokenizer
from attendo.text.tokenizer import Tokenizer

__all__ = [
    "TOKENIZERS",
    "Segmentations",
    "Tokenizer",
    "Words",
    "load_tokenizer",
    "sample_segmentations",
    "train_tokenizer",
]
