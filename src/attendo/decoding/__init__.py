"""Search: from a function that predicts the next token to the best outputs.

Nothing here knows a model. What enters is a `Request`: the model's `step`, its state after reading
B sentences, and each sentence's limits. What leaves is a list of hypotheses a sentence, best first.

Shapes: B sentences, R rows that grow, N beams, T time, V vocabulary.
"""

from typing import Protocol

import torch

from attendo.config import DecodingConfig
from attendo.decoding.beam import beam_search
from attendo.decoding.greedy import greedy_search
from attendo.decoding.hypothesis import Hypothesis
from attendo.decoding.request import Request, Step
from attendo.decoding.sampling import sample
from attendo.decoding.state import State, reorder
from attendo.errors import ConfigError, did_you_mean

__all__ = ["STRATEGIES", "Hypothesis", "Request", "Step", "Strategy", "reorder", "search"]


class Strategy(Protocol):
    """A way to search: up to `n_best` hypotheses for each sentence of the request, best first."""

    def __call__(
        self, request: Request[State], options: DecodingConfig, n_best: int
    ) -> list[list[Hypothesis]]:
        """Search."""


def search(
    request: Request[State], options: DecodingConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Find the best outputs of every sentence with the strategy that the options name.

    Raises:
        ConfigError: if there is no such strategy, or it cannot find that many hypotheses.
    """
    if options.strategy not in STRATEGIES:
        raise ConfigError(
            f"decoding.strategy = {options.strategy!r} does not exist; "
            f"{did_you_mean(options.strategy, STRATEGIES)}"
        )
    if n_best < 1:
        raise ConfigError(f"n_best = {n_best}: ask for at least one hypothesis a sentence")
    if not request.max_lengths:
        return []
    with torch.inference_mode():
        return STRATEGIES[options.strategy](request, options, n_best)


STRATEGIES: dict[str, Strategy] = {
    "beam": beam_search,
    "greedy": greedy_search,
    "sample": sample,
}
