"""PyTorch's own nn.Transformer, with the embeddings and the output layer it lacks."""

import math
import warnings

import torch
from torch import Tensor, nn

from attendo.config import Recipe
from attendo.specials import Specials


class TorchTransformer(nn.Module):
    """nn.Transformer of a recipe's sizes with new parameters.

    It has the parameters that ours has, and always a norm at the end of either stack, which a
    post-norm model of ours has not.
    """

    def __init__(self, recipe: Recipe, specials: Specials) -> None:
        super().__init__()
        model = recipe.model
        self.pad = specials.pad
        self.embedding = nn.Embedding(recipe.tokenizer.vocabulary, model.d_model)
        nn.init.normal_(self.embedding.weight, std=model.d_model**-0.5)
        self.dropout = nn.Dropout(model.p_drop)
        with warnings.catch_warnings():  # of a short cut in translating that pre-norm does not have
            warnings.simplefilter("ignore")
            self.transformer = nn.Transformer(
                model.d_model,
                model.n_heads,
                model.encoder_layers,
                model.decoder_layers,
                model.d_ff,
                model.p_drop,
                activation=model.feed_forward,
                batch_first=True,
                norm_first=model.norm_order == "pre",
            )
        _drop_where_the_recipe_does(self.transformer, recipe)
        width = 2 * recipe.data.max_length
        self.register_buffer("waves", _waves(width, model.d_model), persistent=False)
        causal = torch.ones(width, width, dtype=torch.bool).triu(1)  # there True = may not
        self.register_buffer("causal", causal, persistent=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Compute logits (R, T, V) from ids (R, S) and (R, T)."""
        is_padding, length = source == self.pad, target.shape[1]
        hidden = self.transformer(
            self._embed(source),
            self._embed(target),
            # Outputs at padding are ignored, so only the source needs a padding mask.
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
            tgt_mask=self.causal[:length, :length],
            tgt_is_causal=True,
        )
        return nn.functional.linear(hidden, self.embedding.weight)

    def _embed(self, ids: Tensor) -> Tensor:
        scale = math.sqrt(self.embedding.embedding_dim)
        return self.dropout(self.embedding(ids) * scale + self.waves[: ids.shape[1]])


def _drop_where_the_recipe_does(transformer: nn.Transformer, recipe: Recipe) -> None:
    """Remove the dropout that nn.Transformer applies on attention and in the inner layer."""
    for module in transformer.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = recipe.model.p_drop_attention
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout.p = recipe.model.p_drop_inner


def _waves(length: int, d_model: int) -> Tensor:
    steps = torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model)
    angles = torch.arange(length)[:, None] * steps.exp()
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
