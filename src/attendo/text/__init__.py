"""Text to ids and back: tokenizers, learned here or published, and subword regularisation."""

from attendo.text.dropout import Segmentations, Words, sample_segmentations
from attendo.text.kinds import TOKENIZERS, check_vocabulary, train_tokenizer
from attendo.text.published import load_tokenizer
from attendo.text.tokenizer import Tokenizer

__all__ = [
    "TOKENIZERS",
    "Segmentations",
    "Tokenizer",
    "Words",
    "check_vocabulary",
    "load_tokenizer",
    "sample_segmentations",
    "train_tokenizer",
]
