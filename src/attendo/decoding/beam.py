"""Beam search (§6.1): the N most promising hypotheses of every sentence are extended together.

At each step the 2N best continuations of a sentence are considered. An eos among the first N of
them ends its hypothesis; the first N others continue (at most N are eos, so there are enough).
A sentence is done when N hypotheses have ended, so a beam of one is greedy search.
"""

from dataclasses import dataclass
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.constraints import Rules, predict
from attendo.decoding.request import Request
from attendo.decoding.rows import State, regroup, top
from attendo.hypotheses import Hypothesis, rank


@dataclass(frozen=True)
class Beams(Generic[State]):
    """The N growing hypotheses of each of the B sentences that are not done yet, T tokens long."""

    sentences: Int[Tensor, " B"]
    """The sentences' places in the request."""
    tokens: Int[Tensor, "B N T"]
    """The hypotheses."""
    scores: Float[Tensor, "B N"]
    """Sum of the log-probabilities of the tokens; minus infinity where there is no hypothesis."""
    state: State
    """The decoder's state, B * N rows: beam n of sentence b is row b * N + n; B that are shared."""


@dataclass(frozen=True)
class Candidates:
    """The C best continuations of each of B sentences, best first."""

    scores: Float[Tensor, "B C"]
    """Score of the hypothesis with the new token; minus infinity where nothing may follow."""
    parents: Int[Tensor, "B C"]
    """The beam that is continued."""
    tokens: Int[Tensor, "B C"]
    """The new token."""


def beam_search(
    request: Request[State], options: DecodingConfig, n_best: int
) -> list[list[Hypothesis]]:
    """Find the `n_best` hypotheses a sentence with the highest normalised scores.

    There are fewer only where the rules leave fewer outputs possible.
    """
    rules = Rules.of(request, options)
    beams = _start(request, options.beam)
    found: list[list[Hypothesis]] = [[] for _ in request.max_lengths]
    while len(beams.sentences):
        beams = _advance(request, rules, beams, found)
    return [rank(hypotheses, options.alpha)[:n_best] for hypotheses in found]


def _start(request: Request[State], n_beams: int) -> Beams[State]:
    sentences = torch.arange(len(request.max_lengths), device=request.device)
    scores = torch.full((len(sentences), n_beams), -torch.inf, device=request.device)
    scores[:, 0] = 0.0  # one empty hypothesis; the other beams are filled by its continuations
    return Beams(
        sentences=sentences,
        tokens=sentences.new_empty(len(sentences), n_beams, 0),
        scores=scores,
        state=regroup(request.state, sentences.repeat_interleave(n_beams), None),
    )


def _advance(
    request: Request[State], rules: Rules, beams: Beams[State], found: list[list[Hypothesis]]
) -> Beams[State]:
    """Add one token to every hypothesis; what ends, or is cut, moves to `found`."""
    n_beams, length, eos = *beams.tokens.shape[1:], request.specials.eos
    rows = beams.sentences.repeat_interleave(n_beams)
    predicted = predict(request, rules, rows, beams.tokens.flatten(0, 1), beams.state)
    log_probs = predicted.log_probs.view(*beams.scores.shape, -1)  # (B, N, V)
    is_broken = predicted.is_broken.view(beams.scores.shape).any(dim=1)
    candidates = find_candidates(beams.scores, log_probs, 2 * n_beams)

    is_ended = find_ended(candidates, eos, n_beams)
    _collect(found, beams, beams.scores + log_probs[:, :, eos], is_ended, finished=True)
    survivors = find_survivors(candidates, eos, n_beams)
    is_open = _lacks_hypotheses(found, beams) & (survivors.scores > -torch.inf).any(dim=1)
    is_open &= (length < rules.limits[beams.sentences]) & ~is_broken
    # What a done sentence leaves behind ranks after all that is finished: it only fills up.
    is_cut = ~is_open[:, None] & ~is_ended & (beams.scores > -torch.inf)
    cut_scores = beams.scores.masked_fill(is_broken[:, None], torch.nan)
    _collect(found, beams, cut_scores, is_cut, finished=False)
    return _grow(beams, survivors, predicted.state, is_open.nonzero().squeeze(1))


def find_candidates(
    scores: Float[Tensor, "B N"], log_probs: Float[Tensor, "B N V"], count: int
) -> Candidates:
    """Find the best continuations of each sentence, whatever beam they continue."""
    # Compared relative to the best beam, so that a long hypothesis, with its large score, does not
    # round small differences away: one beam chooses exactly what greedy search chooses.
    highest = scores.amax(dim=1, keepdim=True)
    relative = (scores - highest)[:, :, None] + log_probs
    best, places = top(relative.flatten(1), count)
    vocabulary = log_probs.shape[2]
    return Candidates(best + highest, places // vocabulary, places % vocabulary)


def find_ended(candidates: Candidates, eos: int, n_beams: int) -> Bool[Tensor, "B N"]:
    """Find the beams whose eos is among the first N candidates of their sentence."""
    is_end = (candidates.tokens == eos) & (candidates.scores > -torch.inf)
    beams = torch.arange(n_beams, device=is_end.device)
    is_parent = candidates.parents[:, :n_beams, None] == beams  # (B, candidate, beam)
    return (is_end[:, :n_beams, None] & is_parent).any(dim=1)


def find_survivors(candidates: Candidates, eos: int, n_beams: int) -> Candidates:
    """Select the first N candidates that do not end."""
    not_eos_first = (candidates.tokens == eos).int().argsort(dim=1, stable=True)[:, :n_beams]
    return Candidates(
        candidates.scores.gather(1, not_eos_first),
        candidates.parents.gather(1, not_eos_first),
        candidates.tokens.gather(1, not_eos_first),
    )


def _lacks_hypotheses(found: list[list[Hypothesis]], beams: Beams[State]) -> Bool[Tensor, " B"]:
    """Return which sentences have fewer finished hypotheses than the beam is wide."""
    n_beams = beams.tokens.shape[1]
    lacks = [len(found[sentence]) < n_beams for sentence in beams.sentences.tolist()]
    return torch.tensor(lacks, device=beams.scores.device)


def _collect(
    found: list[list[Hypothesis]],
    beams: Beams[State],
    scores: Float[Tensor, "B N"],
    which: Bool[Tensor, "B N"],
    *,
    finished: bool,
) -> None:
    """Add the beams marked by `which`, with the given scores, to what was found."""
    rows, places = which.nonzero(as_tuple=True)
    sentences = beams.sentences[rows].tolist()
    tokens = beams.tokens[rows, places].tolist()
    for sentence, ids, score in zip(sentences, tokens, scores[which].tolist(), strict=True):
        found[sentence].append(Hypothesis(tuple(ids), score, finished))


def _grow(
    beams: Beams[State], survivors: Candidates, state: State, rows: Int[Tensor, " R"]
) -> Beams[State]:
    """Replace the hypotheses of the sentences in these rows by the survivors."""
    n_beams = beams.tokens.shape[1]
    still_open = None if len(rows) == len(beams.sentences) else rows
    parents = survivors.parents[rows]  # (R, N)
    tokens = torch.cat(
        [beams.tokens[rows[:, None], parents], survivors.tokens[rows, :, None]], dim=2
    )
    return Beams(
        sentences=beams.sentences[rows],
        tokens=tokens,
        scores=survivors.scores[rows],
        state=regroup(state, (rows[:, None] * n_beams + parents).flatten(), still_open),
    )
