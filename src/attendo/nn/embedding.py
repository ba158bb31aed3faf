"""Embeddings of what a grid holds: of tokens, scaled as in §3.4; and BERT's token types."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.nn.grid import Grid


class GridEmbedding(nn.Module):
    """What stands between a grid and the stack of a model: one vector for each position."""

    def embed(self, grid: Grid) -> Float[Tensor, "R T D"]:
        """Return the embeddings of the positions of a grid."""
        raise NotImplementedError


class Embedding(GridEmbedding):
    """One vector a token, times √d_model, so that tokens and positions weigh alike."""

    def __init__(
        self, vocabulary: int, d_model: int, p_drop: float = 0.0, *, is_scaled: bool = True
    ) -> None:
        super().__init__()
        self.p_drop = p_drop
        self.weight = nn.Embedding(vocabulary, d_model).weight
        self.factor = math.sqrt(d_model) if is_scaled else 1.0
        # With this size the scaled embedding has variance 1, and so have the logits of an output
        # layer that shares the matrix.
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def embed(self, grid: Grid) -> Float[Tensor, "R T D"]:
        """Return the embeddings of the tokens of a grid."""
        embedded: Tensor = self(grid.ids)
        return embedded

    def forward(self, ids: Int[Tensor, "R T"]) -> Float[Tensor, "R T D"]:
        """Return the embeddings of tokens."""
        embedded = nn.functional.embedding(ids, self.weight) * self.factor
        if not self.training or not self.p_drop:
            return embedded
        # Words, not positions (Gal and Ghahramani 2016): a text must do without them altogether.
        is_kept = torch.rand(len(self.weight), device=ids.device) >= self.p_drop
        return embedded * (is_kept[ids][..., None] / (1 - self.p_drop))


class BorrowingEmbedding(nn.Module):
    """The first tokens of one embedding, and after them all tokens of another, without a copy."""

    def __init__(self, own: nn.Module, n_own: int, other: nn.Module) -> None:
        super().__init__()
        self.own = own
        self.n_own = n_own
        # Not registered: the parameters belong to the module that has them already.
        self._lenders = (other,)

    def forward(self, ids: Int[Tensor, "R T"]) -> Float[Tensor, "R T D"]:
        """Return the embeddings of tokens."""
        (other,) = self._lenders
        own, borrowed = ids.clamp(max=self.n_own - 1), (ids - self.n_own).clamp(min=0)
        return torch.where((ids < self.n_own)[..., None], self.own(own), other(borrowed))


class TokenTypes(nn.Module):
    """One vector a type: in `[CLS] A [SEP] B [SEP]`, type 0 up to the first [SEP], then type 1."""

    def __init__(self, n_types: int, d_model: int, separator: int) -> None:
        super().__init__()
        self.separator = separator
        self.table = nn.Embedding(n_types, d_model)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(
        self, ids: Int[Tensor, "R T"], positions: Int[Tensor, "R T"]
    ) -> Float[Tensor, "R T D"]:
        """Return the vectors of the types; tokens after the last type have that one, too."""
        types = count_before(ids == self.separator, positions)
        vectors: Tensor = self.table(types.clamp(max=self.table.num_embeddings - 1))
        return vectors


def count_before(marked: Bool[Tensor, "R T"], positions: Int[Tensor, "R T"]) -> Int[Tensor, "R T"]:
    """Count the marked positions before each one, within its own sequence."""
    before = marked.cumsum(dim=1) - marked.long()
    columns = torch.arange(positions.shape[1], device=positions.device)
    firsts = (columns - positions).long()  # where the sequence of each position begins
    return before - before.gather(1, firsts)
