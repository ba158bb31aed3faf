"""Attention weights of several layers in one matrix (Abnar and Zuidema 2020).

Half of a layer's output is attributed to its attention and half to the residual connection.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

Layers = list[Float[Tensor, "H T T"]]


def mean_of_heads(weights: Float[Tensor, "H T S"]) -> Float[Tensor, "T S"]:
    """Average over the heads."""
    return weights.mean(dim=0)


def with_residual(weights: Float[Tensor, "H T T"]) -> Float[Tensor, "T T"]:
    """Average the weights over the heads and mix them with the residual connection."""
    return (mean_of_heads(weights) + torch.eye(weights.shape[1])) / 2


def rollout(layers: Layers) -> Float[Tensor, "T T"]:
    """Compute how much of each input token is in each output of a stack; rows sum to 1."""
    mixed = torch.eye(layers[0].shape[1])
    for weights in layers:
        mixed = with_residual(weights) @ mixed
    return mixed


def rollout_across(
    encoder: list[Float[Tensor, "H S S"]],
    decoder: list[Float[Tensor, "H T T"]],
    cross: list[Float[Tensor, "H T S"]],
) -> Float[Tensor, "T S"]:
    """Compute how much of each source token is in each prediction.

    What is missing from 1 in a row comes from the target tokens before it.
    """
    from_source = rollout(encoder)
    mixed = torch.zeros(cross[0].shape[1:])
    for back, across in zip(decoder, cross, strict=True):
        mixed = with_residual(back) @ mixed
        mixed = (mixed + mean_of_heads(across) @ from_source) / 2
    return mixed


def flow(layers: Layers, token: int) -> Float[Tensor, " T"]:
    """Compute the maximum flow from each input token to one output token.

    The weights are the capacities of the edges between layers. The flow is high where many paths
    lead, even if each of them is narrow.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    exactness = 1_000_000  # the algorithm needs integers
    size, depth = layers[0].shape[1], len(layers)
    capacities = np.zeros(((depth + 1) * size, (depth + 1) * size), dtype=np.int32)
    for layer, weights in enumerate(reversed(layers)):
        above = slice(layer * size, (layer + 1) * size)
        below = slice((layer + 1) * size, (layer + 2) * size)
        capacities[above, below] = (with_residual(weights) * exactness).round().int().numpy()
    graph = csr_array(capacities)
    flows = [maximum_flow(graph, token, depth * size + to).flow_value for to in range(size)]
    return torch.tensor(flows) / exactness
