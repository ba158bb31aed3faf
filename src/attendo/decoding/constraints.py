"""What may come next: rules that set the log-probabilities of forbidden tokens to minus infinity.

The rules only remove candidates. A token that remains keeps the model's own log-probability, so a
hypothesis has the score that scoring it again would give. They work in place, on the fresh tensor
that `predict` makes. R rows are growing; several of them may belong to one of the B sentences.
"""

from dataclasses import dataclass
from typing import Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.request import Allow, Request
from attendo.decoding.rows import State
from attendo.hypotheses import LONGEST_LOOP
from attendo.nn.grid import send
from attendo.specials import Specials


@dataclass(frozen=True)
class Rules:
    """The rules of one search, on its device."""

    specials: Specials
    limits: Int[Tensor, " B"]
    """Most tokens, eos not counted."""
    prefixes: Int[Tensor, "B P"]
    """Forced tokens, filled up with pad."""
    starts: Int[Tensor, " B"]
    """Length of each forced prefix: where the search begins."""
    no_repeat_ngram: int
    max_loops: int
    allow: Allow | None = None
    """A rule of the task."""

    @classmethod
    def of(cls, request: Request[State], options: DecodingConfig) -> "Rules":
        """Collect the rules of a request and the options."""
        prefixes = [list(prefix) for prefix in request.prefixes or [()] * len(request.max_lengths)]
        starts = [len(prefix) for prefix in prefixes]
        width = max(starts, default=0)
        filled = [prefix + [request.specials.pad] * (width - len(prefix)) for prefix in prefixes]

        def tensor(values: list[int] | list[list[int]]) -> Tensor:
            return send(torch.tensor(values, dtype=torch.long), request.device)

        return cls(
            specials=request.specials,
            limits=tensor(list(request.max_lengths)),
            prefixes=tensor(filled).reshape(len(prefixes), width),
            starts=tensor(starts),
            no_repeat_ngram=options.no_repeat_ngram,
            max_loops=options.max_loops,
            allow=request.allow,
        )


@dataclass(frozen=True, slots=True)
class Prediction(Generic[State]):
    """One step of the model for R rows."""

    log_probs: Float[Tensor, "R V"]
    """Of what may follow; minus infinity for what may not."""
    state: State
    """The decoder's next state."""
    is_broken: Bool[Tensor, " R"]
    """Rows whose logits were not finite."""


def predict(
    request: Request[State],
    rules: Rules,
    sentences: Int[Tensor, " R"],
    tokens: Int[Tensor, "R T"],
    state: State,
) -> Prediction[State]:
    """Run one step of the model and apply the rules."""
    first = tokens.new_full((len(tokens),), request.specials.bos)
    logits, state = request.step(tokens[:, -1] if tokens.shape[1] else first, state)
    log_probs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    # One NaN or infinity among the logits makes NaN of all log-probabilities, the first too.
    is_broken = log_probs[:, 0].isnan()
    constrain_(log_probs, tokens, sentences, rules)
    return Prediction(log_probs, state, is_broken)


def constrain_(
    log_probs: Float[Tensor, "R V"],
    tokens: Int[Tensor, "R T"],
    sentences: Int[Tensor, " R"],
    rules: Rules,
) -> None:
    """Apply all rules; inside a forced prefix that one decides alone."""
    length, starts = tokens.shape[1], rules.starts[sentences]
    if length < rules.prefixes.shape[1]:
        forced = (length < starts).nonzero().squeeze(1)
        leave_only_(log_probs, forced, rules.prefixes[sentences[forced], length])
    # Some vocabularies have one token for two purposes (GPT-2's bos is its eos).
    for special in {rules.specials.pad, rules.specials.bos} - {rules.specials.eos}:
        log_probs[:, special] = -torch.inf
    if rules.allow is not None:
        log_probs[~rules.allow(tokens, sentences, log_probs.shape[1])] = -torch.inf
    if rules.no_repeat_ngram:
        forbid_repeats_(log_probs, tokens, length >= starts, rules.no_repeat_ngram)
    if rules.max_loops:
        looping = find_loops(tokens, starts, rules.max_loops).nonzero().squeeze(1)
        leave_only_(log_probs, looping, torch.full_like(looping, rules.specials.eos))


def leave_only_(
    log_probs: Float[Tensor, "R V"], rows: Int[Tensor, " K"], tokens: Int[Tensor, " K"]
) -> None:
    """Set the scores of all but one token in each of the given rows to minus infinity."""
    kept = log_probs[rows, tokens]
    log_probs[rows] = -torch.inf
    log_probs[rows, tokens] = kept


def forbid_repeats_(
    log_probs: Float[Tensor, "R V"],
    tokens: Int[Tensor, "R T"],
    active: Bool[Tensor, " R"],
    n: int,
) -> None:
    """Forbid tokens that would repeat an n-gram, in the active rows."""
    length = tokens.shape[1]
    if length < n:
        return
    ngrams = tokens.unfold(1, n, 1)  # (R, T - n + 1, n)
    tail = tokens[:, length - n + 1 :]  # (R, n - 1)
    begun_again = (ngrams[:, :, :-1] == tail[:, None]).all(dim=-1) & active[:, None]
    rows, places = begun_again.nonzero(as_tuple=True)
    log_probs[rows, ngrams[rows, places, -1]] = -torch.inf


def find_loops(
    tokens: Int[Tensor, "R T"], starts: Int[Tensor, " R"], times: int
) -> Bool[Tensor, " R"]:
    """Find the rows that end with one block, `times` times in a row, all of it after the start."""
    length = tokens.shape[1]
    found = torch.zeros_like(starts, dtype=torch.bool)
    for block in range(1, min(LONGEST_LOOP, length // times) + 1):
        first = length - block * times
        tail = tokens[:, first:]
        # Every token equals the one a block earlier: then all the blocks are the same.
        found |= (tail[:, block:] == tail[:, :-block]).all(dim=1) & (first >= starts)
    return found
