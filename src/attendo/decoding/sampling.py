"""Sampling: random hypotheses, each reproducible and independent of its batch.

Every sample has its own random numbers, one a step, from a generator on the CPU that is seeded with
the seed of the search, the number of the sentence and the number of the sample. They become tokens
by inverting the cumulative distribution, so that a GPU chooses what a CPU would choose.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.greedy import follow
from attendo.decoding.request import Request
from attendo.decoding.rows import State, repeat
from attendo.hypotheses import Hypothesis, rank


def sample(request: Request[State], options: DecodingConfig, n_best: int) -> list[list[Hypothesis]]:
    """Draw `n_best` outputs a sentence with temperature, top-k and top-p, and rank them."""
    copied = repeat_sentences(request, n_best)
    samples = list(range(n_best)) * len(request.max_lengths)
    numbers = draw_numbers(options.seed, copied, samples).to(request.device)
    found = follow(
        copied,
        options,
        lambda log_probs, sentences, time: choose(log_probs, numbers[sentences, time], options),
    )
    return [
        rank(found[first : first + n_best], options.alpha) for first in range(0, len(found), n_best)
    ]


def draw_numbers(
    seed: int, request: Request[State], samples: Sequence[int]
) -> Float[Tensor, "R T"]:
    """Draw the random numbers in [0, 1) of each row's every step, on the CPU; filled up with 0."""
    rows = [
        # As many as this sentence can need, whatever its neighbours need; one more for eos.
        torch.rand(limit + 1, generator=_generator(seed, number, sample), dtype=torch.float64)
        for number, sample, limit in zip(request.numbers, samples, request.max_lengths, strict=True)
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def choose(
    log_probs: Float[Tensor, "R V"], numbers: Float[Tensor, " R"], options: DecodingConfig
) -> Int[Tensor, " R"]:
    """Convert one random number per row to a token of the given distribution."""
    # With the highest at 0, no temperature is low enough to push all of them to minus infinity.
    logits = (log_probs - log_probs.amax(dim=1, keepdim=True)) / options.temperature
    if options.top_k:
        logits = keep_top_k(logits, options.top_k)
    if options.top_p < 1:
        logits = keep_top_p(logits, options.top_p)
    # In double precision a parallel sum is monotonic up to rounding.
    reached = logits.softmax(dim=1).cumsum(dim=1, dtype=torch.float64)
    wanted = numbers[:, None] * reached[:, -1:]
    # The first token that reaches beyond: one without probability never does.
    token = torch.searchsorted(reached, wanted, right=True).squeeze(1)
    # Where nothing at all may follow, the sums are NaN and the place is beyond the vocabulary.
    return token.clamp(max=log_probs.shape[1] - 1)


def keep_top_k(logits: Float[Tensor, "R V"], k: int) -> Float[Tensor, "R V"]:
    """Set all but the k highest of each row to minus infinity; the first of equals are kept."""
    lowest = logits.topk(min(k, logits.shape[1]), dim=1).values[:, -1:]
    is_higher, is_lowest = logits > lowest, logits == lowest
    n_left = k - is_higher.sum(dim=1, keepdim=True)
    is_kept = is_higher | (is_lowest & (is_lowest.cumsum(dim=1) <= n_left))
    return logits.masked_fill(~is_kept, -torch.inf)


def keep_top_p(logits: Float[Tensor, "R V"], p: float) -> Float[Tensor, "R V"]:
    """Keep the fewest most likely tokens that together have probability p or more."""
    ordered, places = logits.sort(dim=1, descending=True, stable=True)
    probabilities = ordered.softmax(dim=1)
    is_beyond = probabilities.cumsum(dim=1) - probabilities >= p
    return logits.masked_fill(torch.zeros_like(is_beyond).scatter(1, places, is_beyond), -torch.inf)


def _generator(seed: int, sentence: int, sample: int) -> torch.Generator:
    digest = hashlib.blake2b(f"{seed} {sentence} {sample}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "big"))


def repeat_sentences(request: Request[State], times: int) -> Request[State]:
    """Repeat every sentence."""
    return replace(
        request,
        state=repeat(request.state, len(request.max_lengths), times, request.device),
        max_lengths=[limit for limit in request.max_lengths for _ in range(times)],
        numbers=[number for number in request.numbers for _ in range(times)],
        prefixes=[prefix for prefix in request.prefixes for _ in range(times)],
    )
