"""Ablation of heads: what a model computes without them."""

import copy
from collections.abc import Iterable

from torch import nn

from attendo.look.heads import Head
from attendo.models import Seq2Seq


def silence(model: Seq2Seq, heads: Iterable[Head]) -> Seq2Seq:
    """Return a model without some of its heads; it shares all other parameters with the original.

    The output of a head passes through its own columns of the output projection: zeros there ablate
    it exactly. The original is not changed, so other threads can use it.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    silenced = copy.deepcopy(model, shared)
    for head in heads:
        attention = silenced.attentions()[head.kind][head.layer]
        weight = attention.output.weight.detach().clone()
        weight.unflatten(1, (attention.n_heads, -1))[:, head.head] = 0
        attention.output.weight = nn.Parameter(weight, requires_grad=False)
    return silenced
