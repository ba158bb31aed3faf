"""Well-formed brackets: which tokens may follow, so that every hypothesis becomes one tree.

A target is a tree in brackets with a placeholder for each word: (S (NP XX XX )NP (VP XX )VP )S.
What may follow depends on the open brackets and on the words that are still to come; all rows of a
search are decided together.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class BracketRules:
    """The vocabulary of brackets, and the sentences of a search.

    Ids of the vocabulary lie in three ranges one after the other: a placeholder or several, an
    opening bracket for each label, and a closing bracket for each label in the same order.
    """

    eos: int
    first_word: int
    first_opening: int
    first_closing: int
    n_words: Int[Tensor, " B"]
    """Of each sentence."""
    limits: Int[Tensor, " B"]
    """Most tokens of each sentence, eos not counted."""

    def __call__(
        self, tokens: Int[Tensor, "R T"], sentences: Int[Tensor, " R"], vocabulary: int
    ) -> Bool[Tensor, "R V"]:
        """Return which tokens may follow.

        A word or a bracket may open while words are left, inside the first bracket; a bracket with
        something in it may be closed, the first one only after the last word; the end follows it.
        Brackets are opened only if there is room to close all of them.
        """
        is_opening = (tokens >= self.first_opening) & (tokens < self.first_closing)
        is_closing = tokens >= self.first_closing
        depths = (is_opening.long() - is_closing.long()).cumsum(dim=1)
        n_written = (~is_opening & ~is_closing).sum(dim=1)
        n_left = self.n_words[sentences] - n_written
        length = tokens.shape[1]
        if length:
            depth, after_opening = depths[:, -1], is_opening[:, -1]
        else:
            depth, after_opening = torch.zeros_like(n_left), torch.zeros_like(n_left) > 0
        is_inside, has_words = depth > 0, n_left > 0
        room = self.limits[sentences] - length
        may_open = has_words & (is_inside | (length == 0)) & (room >= n_left + depth + 2)
        may_close = is_inside & ~after_opening & ((depth > 1) | ~has_words)
        allowed = torch.zeros(len(tokens), vocabulary, dtype=torch.bool, device=tokens.device)
        allowed[:, self.eos] = ~is_inside & (length > 0)
        allowed[:, self.first_word : self.first_opening] = (is_inside & has_words)[:, None]
        allowed[:, self.first_opening : self.first_closing] = may_open[:, None]
        rows = may_close.nonzero().squeeze(1)
        if len(rows):
            allowed[rows, self._closing(tokens[rows], depths[rows])] = True
        return allowed

    def _closing(self, tokens: Int[Tensor, "K T"], depths: Int[Tensor, "K T"]) -> Tensor:
        """Return the bracket that closes the innermost open one of each row."""
        is_opening = (tokens >= self.first_opening) & (tokens < self.first_closing)
        # It is the last one that was opened to the depth of now.
        places = torch.arange(tokens.shape[1], device=tokens.device)
        is_open = is_opening & (depths == depths[:, -1:])
        last = torch.where(is_open, places, -1).amax(dim=1)
        opening = tokens.gather(1, last[:, None]).squeeze(1)
        return opening - self.first_opening + self.first_closing
