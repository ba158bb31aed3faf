"""The three special tokens, and their ids in each tokenizer."""

from typing import NamedTuple

NAMES = ("<pad>", "<s>", "</s>")
"""What the special tokens are called in the tokenizers that we train."""

IGNORE = -100
"""The label of a place that has nothing to predict (padding); the losses leave it out."""


class Specials(NamedTuple):
    """Ids of the special tokens in one vocabulary."""

    pad: int
    """Fills a row; what makes it padding is its segment, 0, not this id."""
    bos: int
    """Begins every target: what the decoder is given first."""
    eos: int
    """Ends every source and target."""
