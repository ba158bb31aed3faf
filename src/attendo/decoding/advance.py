"""One step of a search in slots: rank the tokens, then update the hypotheses."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding import entries, slots
from attendo.decoding.entries import Entering, Entries
from attendo.decoding.reports import Reports
from attendo.decoding.rows import top
from attendo.decoding.sampling import choose
from attendo.decoding.slots import FREE, FixedRules, Ranked, Slots


def add(to: Entries, entering: Entering, n_added: int) -> None:
    """Put sentences at the end of the queue, of which so many were added before."""
    _updates(to.queue).add(to, entering, n_added)


def exchange(state: Slots, reports: Reports, number: Int[Tensor, " 1"], bos: int) -> None:
    """Report what was found in the slots that are done, and let them take the next sentences."""
    _updates(state.scores).exchange(state, reports, number, bos)


def rank_tokens(
    state: Slots, logits: Float[Tensor, "R V"], rules: FixedRules, count: int
) -> Ranked:
    """Find the tokens that may follow each hypothesis with the highest scores."""
    count = min(count, logits.shape[1])
    only, shifts = state.only.flatten(), state.shifts.flatten()
    if logits.is_cuda and not rules.no_repeat_ngram:
        return Ranked(*_best_tokens(logits, count, rules, only, shifts))
    log_probs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    is_broken, eos = log_probs[:, 0].isnan(), log_probs[:, rules.specials.eos].clone()
    rules.apply_(log_probs, state)
    if logits.is_cuda:
        free = torch.full_like(only, FREE)
        best = _best_tokens(log_probs, count, rules, free, shifts, is_normal=True)
        return Ranked(best.values, best.tokens, eos, is_broken)
    return Ranked(*top(shifts[:, None] + log_probs, count), eos, is_broken)


def _best_tokens(
    logits: Float[Tensor, "R V"],
    count: int,
    rules: FixedRules,
    only: Int[Tensor, " R"],
    shifts: Float[Tensor, " R"],
    *,
    is_normal: bool = False,
) -> Any:
    from attendo.nn.fast.top import best_tokens  # needs Triton

    pad, bos, eos = rules.specials
    return best_tokens(
        logits,
        count,
        only=only,
        shift=shifts,
        forbidden=(FREE if pad == eos else pad, FREE if bos == eos else bos),
        marked=eos,
        is_normal=is_normal,
    )


class _Plain:
    """What the kernels do, by plain operations."""

    add = staticmethod(entries.add)
    exchange = staticmethod(slots.exchange)
    follow = staticmethod(slots.follow)
    branch = staticmethod(slots.branch)


def advance_greedily(state: Slots, logits: Float[Tensor, "B V"], rules: FixedRules) -> None:
    """Add the most likely token to the only hypothesis of each slot."""
    _updates(logits).follow(state, rank_tokens(state, logits, rules, 1), rules)


def advance_randomly(
    state: Slots, logits: Float[Tensor, "B V"], rules: FixedRules, options: DecodingConfig
) -> None:
    """Add a random token to the only hypothesis of each slot."""
    log_probs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    is_broken, eos = log_probs[:, 0].isnan(), log_probs[:, rules.specials.eos].clone()
    rules.apply_(log_probs, state)
    numbers = state.numbers.gather(1, state.lengths[:, None]).squeeze(1)
    chosen = choose(log_probs, numbers, options)[:, None]
    ranked = Ranked(log_probs.gather(1, chosen), chosen, eos, is_broken)
    _updates(logits).follow(state, ranked, rules)


def advance_beams(state: Slots, logits: Float[Tensor, "R V"], rules: FixedRules) -> None:
    """Replace the hypotheses of each slot by their best continuations."""
    ranked = rank_tokens(state, logits, rules, 2 * state.last.shape[1])
    _updates(logits).branch(state, ranked, rules)


def _updates(tensor: Tensor) -> Any:
    """Return what updates slots; on a GPU each function is one kernel."""
    if not tensor.is_cuda:
        return _Plain
    from attendo.decoding import kernels  # needs Triton

    return kernels
