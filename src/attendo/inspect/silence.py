"""Silencing heads: what a model would say without them."""

import copy
from collections.abc import Iterable

from torch import nn

from attendo.inspect.heads import Head
from attendo.models import Seq2Seq


def silence(model: Seq2Seq, heads: Iterable[Head]) -> Seq2Seq:
    """Copy a model without some of its heads; all other weights are shared with the original.

    What a head says passes through its own columns of the output projection; zeros there silence
    it, exactly. The original stays as it is, also for others who are using it at the moment.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    silenced = copy.deepcopy(model, shared)
    for head in heads:
        attention = silenced.attentions()[head.kind][head.layer]
        weight = attention.output.weight.detach().clone()
        weight.unflatten(1, (attention.n_heads, -1))[:, head.head] = 0
        attention.output.weight = nn.Parameter(weight, requires_grad=False)
    return silenced
