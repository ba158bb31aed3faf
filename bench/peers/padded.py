"""Padded batches for the peers: like lengths together, and few different shapes."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attendo.bench.data import Sentences
from attendo.data.corpus import Numbers
from attendo.errors import ConfigError
from attendo.specials import IGNORE, Specials


class PaddedBatch(NamedTuple):
    """One pair a row; both sides equally wide."""

    source: Tensor  # (R, W)
    target: Tensor  # (R, W), begins with <s>
    labels: Tensor  # (R, W), ends with </s>, IGNORE on padding
    n_source: int
    n_target: int

    def to(self, device: torch.device) -> "PaddedBatch":
        """Move to a device without waiting for it."""
        moved = [tensor.to(device, non_blocking=True) for tensor in self[:3]]
        return PaddedBatch(*moved, self.n_source, self.n_target)

    def pinned(self) -> "PaddedBatch":
        """Move to memory from which a GPU copies in the background."""
        return PaddedBatch(*(t.pin_memory() for t in self[:3]), self.n_source, self.n_target)


class Plan(NamedTuple):
    """A batch before it is filled."""

    width: int
    members: Numbers


def padded_batches(
    sentences: Sentences, specials: Specials, budget: int, multiple: int, count: int
) -> list[PaddedBatch]:
    """Make some of the batches that all pairs together give, in random order.

    Pairs are sorted over the whole corpus, so that padding is as little as it can be.
    """
    longest = 1 + np.maximum(sentences.source.lengths(), sentences.target.lengths())
    plans = plan_batches(longest, budget, multiple)
    order = np.random.default_rng(1).permutation(len(plans))[:count]
    return [_fill(sentences, plans[number], specials) for number in order]


def _fill(sentences: Sentences, plan: Plan, specials: Specials) -> PaddedBatch:
    members = plan.members.tolist()
    sources = [[*sentences.source_ids(member), specials.eos] for member in members]
    targets = [sentences.target_ids(member) for member in members]
    given = [[specials.bos, *ids] for ids in targets]
    return PaddedBatch(
        _pad(sources, plan.width, specials.pad),
        _pad(given, plan.width, specials.pad),
        _pad([[*ids, specials.eos] for ids in targets], plan.width, IGNORE),
        sum(map(len, sources)),
        sum(map(len, given)),
    )


def _pad(rows: list[list[int]], width: int, filler: int) -> Tensor:
    return torch.tensor([ids + [filler] * (width - len(ids)) for ids in rows])


def plan_batches(longest: Numbers, budget: int, multiple: int) -> list[Plan]:
    """Cut the pairs, longest first, into batches whose shape depends on their width alone.

    The width is that of the longest pair, rounded up to a multiple; as many rows as the budget of
    target places allows. What is left over at the end makes no batch.
    """
    order = np.argsort(-longest, kind="stable")
    plans, start = [], 0
    while start < len(order):
        width = -(-int(longest[order[start]]) // multiple) * multiple
        n_rows = max(1, budget // width)
        if start + n_rows <= len(order):
            plans.append(Plan(width, order[start : start + n_rows]))
        start += n_rows
    if not plans:
        raise ConfigError(f"{len(order)} pairs make no batch of {budget} places")
    return plans
