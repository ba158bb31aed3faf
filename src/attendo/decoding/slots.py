"""Search in fixed shapes: every sentence has a slot, and all slots advance by one step at once.

Nothing here depends on a value on the device, so a step can be recorded once and replayed. After
each step, slots that are done report what they have found and take the next sentence. The results
are those of `greedy.py`, `sampling.py` and `beam.py`, which define the searches.

Shapes: B slots, N hypotheses of each (1 in greedy search and sampling), R = B · N
rows, T tokens, V vocabulary.
"""

from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.config import DecodingConfig
from attendo.decoding.beam import Candidates, find_ended, find_survivors
from attendo.decoding.entries import NONE, Entries
from attendo.decoding.reports import CUT, ENDED, NOTHING, Reports
from attendo.hypotheses import LONGEST_LOOP
from attendo.specials import Specials

FREE = -1
"""In place of a token: any may follow."""


@dataclass(frozen=True)
class Slots:
    """The state of a search, changed in place."""

    tokens: Int[Tensor, "B N T"]
    """What has been chosen so far."""
    last: Int[Tensor, "B N"]
    """The newest token, which the model reads next: bos at first."""
    lengths: Int[Tensor, " B"]
    """Number of tokens, without bos and eos."""
    scores: Float[Tensor, "B N"]
    """Sum of the log-probabilities of the tokens; minus infinity where there is no hypothesis."""
    shifts: Float[Tensor, "B N"]
    """The scores relative to the highest of the slot."""
    only: Int[Tensor, "B N"]
    """The one token that may follow, or FREE."""
    origins: Int[Tensor, "B N T"]
    """For each position of a hypothesis, the hypothesis whose cache holds it."""
    repeats: Int[Tensor, "B N L"]
    """For each distance up to `LONGEST_LOOP`, how many of the newest tokens equal those before."""
    is_open: Bool[Tensor, " B"]
    """Whether the sentence is not done."""
    entry: Int[Tensor, " B"]
    """The entry of the sentence, or NONE."""
    entries: Entries
    ended_tokens: Int[Tensor, "B E T"]
    """Hypotheses that have ended with eos; the last place is for those that have not."""
    ended_scores: Float[Tensor, "B E"]
    ended_lengths: Int[Tensor, "B E"]
    n_ended: Int[Tensor, " B"]
    is_cut: Bool[Tensor, "B N"]
    """Hypotheses without eos when their sentence was done."""

    @classmethod
    def empty(cls, n_slots: int, n_beams: int, length: int, entries: Entries) -> "Slots":
        """Return slots without sentences."""
        device = entries.queue.device

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> Tensor:
            return torch.zeros(n_slots, *shape, dtype=dtype, device=device)

        n_places = 2 * n_beams + 1  # fewer than N before the last step, at most N more in it
        return cls(
            tokens=zeros(n_beams, length),
            last=zeros(n_beams),
            lengths=zeros(),
            scores=zeros(n_beams, dtype=torch.float32),
            shifts=zeros(n_beams, dtype=torch.float32),
            only=zeros(n_beams),
            origins=zeros(n_beams, length),
            repeats=zeros(n_beams, LONGEST_LOOP),
            is_open=zeros(dtype=torch.bool),
            entry=zeros() + NONE,
            entries=entries,
            ended_tokens=zeros(n_places, length),
            ended_scores=zeros(n_places, dtype=torch.float32),
            ended_lengths=zeros(n_places),
            n_ended=zeros(),
            is_cut=zeros(n_beams, dtype=torch.bool),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors that have a row for each slot."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "entries"
        }

    def first(self, n_slots: int) -> "Slots":
        """Return a view of the first slots."""
        tensors = {name: tensor[:n_slots] for name, tensor in self.tensors().items()}
        return Slots(**tensors, entries=self.entries)

    @property
    def limits(self) -> Int[Tensor, " B"]:
        """Return the most tokens, eos not counted."""
        return self.entries.limits[self.entry]

    @property
    def starts(self) -> Int[Tensor, " B"]:
        """Return the number of forced tokens."""
        return self.entries.starts[self.entry]

    @property
    def prefixes(self) -> Int[Tensor, "B T"]:
        """Return the forced tokens."""
        return self.entries.prefixes[self.entry]

    @property
    def numbers(self) -> Float[Tensor, "B T"]:
        """Return random numbers for sampling, one a step."""
        return self.entries.numbers[self.entry]

    def move_to_first(self, n_slots: int) -> tuple[Int[Tensor, " K"], Int[Tensor, " K"]]:
        """Move all sentences to the first slots, which are enough; return from where to where.

        Nothing moves where both are equal.
        """
        places = torch.arange(len(self.entry), device=self.entry.device)
        is_source = (self.entry != NONE) & (places >= n_slots)
        is_target = (self.entry == NONE) & (places < n_slots)
        count = min(n_slots, len(places) - n_slots)
        sources, targets = (
            torch.argsort(~chosen, stable=True)[:count] for chosen in (is_source, is_target)
        )
        sources = torch.where(places[:count] < is_source.sum(), sources, targets)
        for tensor in self.tensors().values():
            tensor[targets] = tensor[sources]
        self.is_open[n_slots:] = False
        self.entry[n_slots:] = NONE
        return sources, targets

    def grow(
        self,
        goes_on: Bool[Tensor, " B"],
        parents: Int[Tensor, "B N"],
        chosen: Int[Tensor, "B N"],
        scores: Float[Tensor, "B N"],
    ) -> None:
        """In some slots, replace the hypotheses by others with one more token each."""
        newest = self.lengths[:, None, None].expand(*chosen.shape, 1)
        grown = self.tokens.gather(1, parents[:, :, None].expand_as(self.tokens))
        grown.scatter_(2, newest, chosen[:, :, None])
        repeats = self._count_repeats(parents, chosen)
        origins = self.origins.gather(1, parents[:, :, None].expand_as(self.origins))
        # The newest position lies in the cache of the parent itself.
        origins.scatter_(2, newest, parents[:, :, None])
        for tensor, value in (
            (self.tokens, grown),
            (self.repeats, repeats),
            (self.origins, origins),
        ):
            tensor.copy_(torch.where(goes_on[:, None, None], value, tensor))
        self.scores.copy_(torch.where(goes_on[:, None], scores, self.scores))
        self.last.copy_(torch.where(goes_on[:, None], chosen, self.last))
        self.lengths.add_(goes_on)
        self.shifts.copy_(self.scores - self.highest())

    def highest(self) -> Float[Tensor, "B 1"]:
        """Return the highest score of each slot; 0 where there is no hypothesis."""
        highest = self.scores.amax(dim=1, keepdim=True)
        return torch.where(highest > -torch.inf, highest, 0.0)

    def _count_repeats(
        self, parents: Int[Tensor, "B N"], chosen: Int[Tensor, "B N"]
    ) -> Int[Tensor, "B N L"]:
        distances = torch.arange(1, LONGEST_LOOP + 1, device=chosen.device)
        places = self.lengths[:, None] - distances  # (B, L)
        is_inside = places >= self.starts[:, None]
        index = places.clamp(min=0)[:, None].expand(*chosen.shape, -1)
        parent_tokens = self.tokens.gather(1, parents[:, :, None].expand_as(self.tokens))
        is_equal = parent_tokens.gather(2, index) == chosen[:, :, None]
        before = self.repeats.gather(1, parents[:, :, None].expand_as(self.repeats))
        return torch.where(is_equal & is_inside[:, None], before + 1, 0)


@dataclass(frozen=True)
class FixedRules:
    """Rules that are the same for all sentences."""

    specials: Specials
    no_repeat_ngram: int
    max_loops: int

    @classmethod
    def of(cls, specials: Specials, options: DecodingConfig) -> "FixedRules":
        """Collect the rules of some options."""
        return cls(specials, options.no_repeat_ngram, options.max_loops)

    def limit(self, slots: Slots) -> None:
        """Find the one token that may follow a hypothesis, in a forced prefix or after a loop."""
        place = slots.lengths.clamp(max=slots.prefixes.shape[1] - 1)
        forced = slots.prefixes.gather(1, place[:, None])
        only = torch.where((slots.lengths < slots.starts)[:, None], forced, FREE)
        only = only.expand_as(slots.last)
        if self.max_loops:
            blocks = torch.arange(1, LONGEST_LOOP + 1, device=only.device)
            is_loop = (slots.repeats >= blocks * (self.max_loops - 1)).any(dim=2)
            if self.max_loops == 1:  # every token is a block that has occurred once
                is_loop = is_loop & (slots.lengths > slots.starts)[:, None]
            only = torch.where(is_loop, self.specials.eos, only)
        slots.only.copy_(only)

    def apply_(self, log_probs: Float[Tensor, "R V"], slots: Slots) -> None:
        """Set the log-probabilities of all tokens that may not follow to minus infinity."""
        single = slots.only.flatten()[:, None]
        tokens = torch.arange(log_probs.shape[1], device=log_probs.device)
        log_probs.masked_fill_((single != FREE) & (tokens != single), -torch.inf)
        for special in {self.specials.pad, self.specials.bos} - {self.specials.eos}:
            log_probs[:, special] = -torch.inf
        if self.no_repeat_ngram:
            forbid_repeats_(log_probs, slots, self.no_repeat_ngram)


def forbid_repeats_(log_probs: Float[Tensor, "R V"], slots: Slots, n: int) -> None:
    """Forbid tokens that would repeat an n-gram, after the forced prefix."""
    n_tokens = slots.tokens.shape[2]
    if n_tokens < n:
        return
    lengths = slots.lengths[:, None]
    ngrams = slots.tokens.unfold(2, n, 1)  # (B, N, T - n + 1, n)
    tail_places = (lengths - n + 1 + torch.arange(n - 1, device=lengths.device)).clamp(min=0)
    tail = slots.tokens.gather(2, tail_places[:, None].expand(-1, slots.tokens.shape[1], -1))
    begun_again = (ngrams[..., :-1] == tail[:, :, None]).all(dim=-1)
    ends = torch.arange(n - 1, n_tokens, device=lengths.device)
    is_active = (ends < lengths) & (lengths >= slots.starts[:, None]) & (lengths >= n)
    forbidden = torch.where(begun_again & is_active[:, None], -torch.inf, torch.inf)
    log_probs.scatter_reduce_(1, ngrams[..., -1].flatten(0, 1), forbidden.flatten(0, 1), "amin")


class Ranked(NamedTuple):
    """The k best tokens of R hypotheses, best first; among equals the lowest id is first."""

    values: Float[Tensor, "R k"]
    """Log-probability, plus a shift; minus infinity where nothing more may follow."""
    tokens: Int[Tensor, "R k"]
    eos: Float[Tensor, " R"]
    """Log-probability of eos."""
    is_broken: Bool[Tensor, " R"]
    """Rows whose logits were not finite."""


def follow(slots: Slots, ranked: Ranked, rules: FixedRules) -> None:
    """Add the best token to the only hypothesis of each slot, as `greedy.follow` does."""
    chosen = ranked.tokens[:, :1]
    scores = slots.scores + ranked.values[:, :1]
    is_possible = slots.is_open & (scores[:, 0] > -torch.inf) & ~ranked.is_broken
    is_ended = is_possible & (chosen[:, 0] == rules.specials.eos)
    goes_on = is_possible & ~is_ended & (slots.lengths < slots.limits)
    kept = slots.scores.masked_fill((slots.is_open & ranked.is_broken)[:, None], torch.nan)
    slots.scores.copy_(torch.where(is_ended[:, None], scores, kept))
    slots.n_ended.add_(is_ended)
    slots.grow(goes_on, torch.zeros_like(chosen), chosen, scores)
    slots.is_open.copy_(goes_on)
    rules.limit(slots)


def branch(slots: Slots, ranked: Ranked, rules: FixedRules) -> None:
    """Add a token to the best continuations of all hypotheses, as `beam_search` does."""
    (n_slots, n_beams), eos = slots.last.shape, rules.specials.eos
    is_broken = ranked.is_broken.view(n_slots, -1).any(dim=1)
    candidates = _merge(slots, ranked)

    is_ended = find_ended(candidates, eos, n_beams) & slots.is_open[:, None]
    _store_ended(slots, is_ended, slots.scores + ranked.eos.view(n_slots, -1))
    survivors = find_survivors(candidates, eos, n_beams)
    goes_on = slots.is_open & (slots.n_ended < n_beams) & (survivors.scores > -torch.inf).any(dim=1)
    goes_on &= (slots.lengths < slots.limits) & ~is_broken
    closes = slots.is_open & ~goes_on
    is_cut = closes[:, None] & ~is_ended & (slots.scores > -torch.inf)
    slots.is_cut.copy_(torch.where(closes[:, None], is_cut, slots.is_cut))
    slots.scores.masked_fill_((closes & is_broken)[:, None], torch.nan)
    slots.grow(goes_on, survivors.parents, survivors.tokens, survivors.scores)
    slots.is_open.copy_(goes_on)
    rules.limit(slots)


def _merge(slots: Slots, ranked: Ranked) -> Candidates:
    """Find the 2N best continuations of each slot among the 2N best of each hypothesis."""
    (n_slots, n_beams), n_each = slots.last.shape, ranked.values.shape[1]
    values, tokens = ranked.values.view(n_slots, -1), ranked.tokens.view(n_slots, -1)
    best, order = values.sort(dim=1, descending=True, stable=True)
    best, order = best[:, : 2 * n_beams], order[:, : 2 * n_beams]
    return Candidates(best + slots.highest(), order // n_each, tokens.gather(1, order))


def _store_ended(slots: Slots, is_ended: Bool[Tensor, "B N"], scores: Float[Tensor, "B N"]) -> None:
    """Store hypotheses that end behind those that have ended before."""
    n_places = slots.ended_scores.shape[1]
    places = slots.n_ended[:, None] + is_ended.cumsum(dim=1) - 1
    places = torch.where(is_ended, places, n_places - 1)
    slots.ended_tokens.scatter_(1, places[:, :, None].expand_as(slots.tokens), slots.tokens)
    slots.ended_scores.scatter_(1, places, scores)
    slots.ended_lengths.scatter_(1, places, slots.lengths[:, None].expand_as(places))
    slots.n_ended.add_(is_ended.sum(dim=1))


def exchange(slots: Slots, reports: Reports, number: Int[Tensor, " 1"], bos: int) -> None:
    """Report what was found in the slots that are done, and let them take the next sentences."""
    entries = slots.entries
    for slot in (~slots.is_open).nonzero().flatten().tolist():
        if (entry := int(slots.entry[slot])) != NONE:
            _report(slots, slot, reports, entry, int(number))
        n_taken = int(entries.n_taken)
        is_empty = n_taken == int(entries.n_added)
        slots.entry[slot] = NONE if is_empty else entries.queue[n_taken % len(entries.queue)]
        if not is_empty:
            entries.n_taken.add_(1)
            _begin(slots, slot, bos)


def _begin(slots: Slots, slot: int, bos: int) -> None:
    """Open a slot with one empty hypothesis; the other beams are filled by what follows."""
    for tensor in (slots.lengths, slots.repeats, slots.n_ended, slots.is_cut):
        tensor[slot] = 0
    slots.last[slot] = bos
    slots.scores[slot] = -torch.inf
    slots.scores[slot, 0] = 0.0
    slots.shifts[slot] = slots.scores[slot]
    slots.is_open[slot] = True
    slots.only[slot] = slots.prefixes[slot, 0] if slots.starts[slot] > 0 else FREE


def _report(slots: Slots, slot: int, reports: Reports, entry: int, number: int) -> None:
    """Report the hypotheses of a slot: those that have ended, then those that were cut."""
    n_ended, n_cut = int(slots.n_ended[slot]), slots.is_cut.shape[1]
    columns = (reports.tokens, reports.lengths, reports.scores, reports.kinds)
    tokens, lengths, scores, kinds = (column[entry] for column in columns)
    if len(kinds) == 1:
        tokens[0], lengths[0] = slots.tokens[slot, 0], slots.lengths[slot]
        scores[0], kinds[0] = slots.scores[slot, 0], ENDED if n_ended else CUT
    else:
        tokens[:n_ended] = slots.ended_tokens[slot, :n_ended]
        lengths[:n_ended] = slots.ended_lengths[slot, :n_ended]
        scores[:n_ended] = slots.ended_scores[slot, :n_ended]
        tokens[-n_cut:] = slots.tokens[slot]
        lengths[-n_cut:] = slots.lengths[slot]
        scores[-n_cut:] = slots.scores[slot]
        kinds.fill_(NOTHING)
        kinds[:n_ended] = ENDED
        kinds[-n_cut:] = slots.is_cut[slot] * CUT
    reports.done_at[entry] = number
