"""Search that follows one path a sentence: greedy here, sampling beside it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.constraints import Rules, predict
from attendo.decoding.request import Request
from attendo.decoding.rows import State, reorder
from attendo.hypotheses import Hypothesis

Choose = Callable[[Tensor, Tensor, int], Tensor]
"""Log-probabilities (R V), sentences (R) and time to the next token (R) of each row."""


@dataclass(frozen=True)
class Paths(Generic[State]):
    """The R sentences that are not done yet, after T tokens each."""

    sentences: Int[Tensor, " R"]
    """Their places in the request."""
    tokens: Int[Tensor, "R T"]
    """What has been chosen so far."""
    scores: Float[Tensor, " R"]
    """Sum of the log-probabilities of the tokens."""
    state: State
    """The decoder's state, R rows."""


def greedy_search(
    request: Request[State], options: DecodingConfig, n_best: int
) -> list[list[Hypothesis]]:
    """Choose the most likely token at every step; among equals the lowest id."""
    found = follow(request, options, lambda log_probs, _sentences, _time: log_probs.argmax(dim=1))
    return [[hypothesis] for hypothesis in found]


def follow(request: Request[State], options: DecodingConfig, choose: Choose) -> list[Hypothesis]:
    """Append the chosen token to every sentence until eos or its limit; one hypothesis each."""
    rules = Rules.of(request, options)
    paths = _start(request)
    found: dict[int, Hypothesis] = {}
    while len(paths.sentences):
        length = paths.tokens.shape[1]
        predicted = predict(request, rules, paths.sentences, paths.tokens, paths.state)
        chosen = choose(predicted.log_probs, paths.sentences, length)
        grown = _grow(paths, chosen, predicted.log_probs, predicted.state)
        is_possible = (grown.scores > -torch.inf) & ~predicted.is_broken
        is_ended = is_possible & (chosen == request.specials.eos)
        goes_on = is_possible & ~is_ended & (length < rules.limits[paths.sentences])
        # What stops keeps its tokens without the one just chosen: that is eos, or too much.
        scores = torch.where(is_ended, grown.scores, paths.scores)
        stopped = replace(paths, scores=scores.masked_fill(predicted.is_broken, torch.nan))
        found |= _collect(stopped, is_ended, ~goes_on)
        is_enough = _announce(request, rules, paths.sentences, chosen, length, goes_on)
        found |= _collect(grown, torch.zeros_like(is_ended), is_enough)
        paths = _keep(grown, goes_on & ~is_enough)
    return [found[sentence] for sentence in range(len(request.max_lengths))]


def _start(request: Request[State]) -> Paths[State]:
    sentences = torch.arange(len(request.max_lengths), device=request.device)
    return Paths(
        sentences=sentences,
        tokens=sentences.new_empty(len(sentences), 0),
        scores=torch.zeros(len(sentences), device=request.device),
        state=request.state,
    )


def _announce(
    request: Request[State],
    rules: Rules,
    sentences: Int[Tensor, " R"],
    chosen: Int[Tensor, " R"],
    length: int,
    goes_on: Bool[Tensor, " R"],
) -> Bool[Tensor, " R"]:
    """Pass on the tokens just chosen, behind the forced prefixes; return who wants no more."""
    is_enough = torch.zeros_like(goes_on)
    if request.on_token is not None:
        is_new = goes_on & (length >= rules.starts[sentences])
        for row in is_new.nonzero().squeeze(1).tolist():
            is_enough[row] = request.on_token(int(sentences[row]), int(chosen[row]))
    return is_enough


def _grow(
    paths: Paths[State], chosen: Int[Tensor, " R"], log_probs: Float[Tensor, "R V"], state: State
) -> Paths[State]:
    return Paths(
        sentences=paths.sentences,
        tokens=torch.cat([paths.tokens, chosen[:, None]], dim=1),
        scores=paths.scores + log_probs.gather(1, chosen[:, None]).squeeze(1),
        state=state,
    )


def _collect(
    paths: Paths[State], is_ended: Bool[Tensor, " R"], stops: Bool[Tensor, " R"]
) -> dict[int, Hypothesis]:
    """Collect the sequences that end as hypotheses, by sentence."""
    rows = stops.nonzero().squeeze(1)
    return {
        sentence: Hypothesis(tuple(ids), score, finished)
        for sentence, ids, score, finished in zip(
            paths.sentences[rows].tolist(),
            paths.tokens[rows].tolist(),
            paths.scores[rows].tolist(),
            is_ended[rows].tolist(),
            strict=True,
        )
    }


def _keep(paths: Paths[State], goes_on: Bool[Tensor, " R"]) -> Paths[State]:
    """Keep some rows only, so that the work shrinks with the number of open sentences."""
    rows = goes_on.nonzero().squeeze(1)
    if len(rows) == len(goes_on):
        return paths
    return Paths(
        paths.sentences[rows], paths.tokens[rows], paths.scores[rows], reorder(paths.state, rows)
    )
