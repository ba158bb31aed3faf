"""Search: from a function that predicts the next token to the best outputs.

Nothing here depends on a model. The input is a `Request`: the model's `step`, its state after B
sources, and the limits of each sentence. The output is a list of hypotheses each, best first.

Shapes: B sentences, R rows that grow, N beams, T time, V vocabulary.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Protocol

import torch

from attendo.config import DecodingConfig, choose
from attendo.decoding.beam import beam_search
from attendo.decoding.greedy import greedy_search
from attendo.decoding.pool import Found, Pools
from attendo.decoding.request import Request, Step
from attendo.decoding.rows import State, reorder
from attendo.decoding.sampling import sample
from attendo.errors import BundleError
from attendo.hypotheses import NOT_FINITE, Hypothesis, check_n_best

__all__ = [
    "NOT_FINITE",
    "STRATEGIES",
    "Hypothesis",
    "Pools",
    "Request",
    "Step",
    "Strategy",
    "reorder",
    "search",
    "search_all",
]


class Strategy(Protocol):
    """A way to search: up to `n_best` hypotheses for each sentence of the request, best first."""

    def __call__(
        self, request: Request[State], options: DecodingConfig, n_best: int
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence."""


def search(
    request: Request[State], options: DecodingConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Find the best outputs of every sentence with the strategy that the options name.

    Raises:
        ConfigError: if there is no such strategy, or it cannot find that many hypotheses.
        BundleError: if the logits of the model are not finite.
    """
    strategy = choose(STRATEGIES, options.strategy, "decoding.strategy")
    check_n_best(options, n_best)
    if not request.max_lengths:
        return []
    with torch.inference_mode():
        found = strategy(request, options, n_best)
    # A search ends where logits are not finite and leaves a score of NaN; so nothing has to be
    # fetched from a GPU at every step.
    if any(math.isnan(hypothesis.score) for hypotheses in found for hypothesis in hypotheses):
        raise BundleError(NOT_FINITE)
    return found


def search_all(
    requests: Iterable[Request[State]],
    options: DecodingConfig,
    n_best: int = 1,
    pools: Pools | None = None,
) -> Iterator[Found]:
    """Search one request after the other; yield hypotheses by the sentence's place among all.

    With pools, which a model on a GPU has, sentences of later requests enter as soon as others are
    done; the results are the same up to rounding.
    """
    choose(STRATEGIES, options.strategy, "decoding.strategy")
    if pools is not None:
        yield from pools.search(requests, options, n_best)
        return
    first = 0
    for request in requests:
        yield dict(enumerate(search(request, options, n_best), start=first))
        first += len(request.max_lengths)


STRATEGIES: dict[str, Strategy] = {
    "beam": beam_search,
    "greedy": greedy_search,
    "sample": sample,
}
