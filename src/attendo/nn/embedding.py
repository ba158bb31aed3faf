"""Token embeddings, scaled as in §3.4."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Embedding(nn.Module):
    """One vector a token, times √d_model, so that tokens and positions weigh alike."""

    def __init__(self, vocabulary: int, d_model: int, p_drop: float = 0.0) -> None:
        super().__init__()
        self.p_drop = p_drop
        self.weight = nn.Embedding(vocabulary, d_model).weight
        # With this size the scaled embedding has variance 1, and so have the logits of an output
        # layer that shares the matrix.
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, ids: Int[Tensor, "R T"]) -> Float[Tensor, "R T D"]:
        """Return the embeddings of tokens."""
        vocabulary, d_model = self.weight.shape
        embedded = nn.functional.embedding(ids, self.weight) * math.sqrt(d_model)
        if not self.training or not self.p_drop:
            return embedded
        # Words, not positions (Gal and Ghahramani 2016): a text must do without them altogether.
        is_kept = torch.rand(vocabulary, device=ids.device) >= self.p_drop
        return embedded * (is_kept[ids][..., None] / (1 - self.p_drop))
