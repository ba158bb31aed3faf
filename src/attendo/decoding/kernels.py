"""What `slots.py` and `entries.py` do, as one kernel each: a program for every slot."""

from typing import Any

import triton
from torch import Tensor
from triton import language as tl

from attendo.decoding.entries import Entering, Entries
from attendo.decoding.reports import CUT, ENDED, NOTHING, Reports
from attendo.decoding.slots import FixedRules, Ranked, Slots
from attendo.hypotheses import LONGEST_LOOP
from attendo.nn.fast.overlap import launch, wait

COLUMNS = 64
"""Tokens of a hypothesis that are copied at once."""
DISTANCES = 16
"""A power of two, at least `LONGEST_LOOP`."""
NO_HYPOTHESIS, WITHOUT_EOS, WITH_EOS = map(tl.constexpr, (NOTHING, CUT, ENDED))


def add(entries: Entries, entering: Entering, n_added: int) -> None:
    """Put sentences at the end of the queue, of which so many were added before."""
    _add[(len(entering.entries),)](
        entries.limits, entries.starts, entries.prefixes, entries.queue, entries.n_added,
        *entering, n_added, len(entering.entries), len(entries.queue),
        entries.prefixes.shape[1], entering.prefixes.shape[1], COLUMNS, num_warps=1,
    )  # fmt: skip


def follow(slots: Slots, ranked: Ranked, rules: FixedRules) -> None:
    """Add the best token to the only hypothesis of each slot."""
    _follow[(len(slots.lengths),)](
        *_tensors(slots), ranked.values, ranked.tokens, ranked.is_broken,
        *_numbers(slots, rules), num_warps=1, **launch(slots.tokens),
    )  # fmt: skip


def branch(slots: Slots, ranked: Ranked, rules: FixedRules) -> None:
    """Add a token to the best continuations of all hypotheses of each slot."""
    n_beams, n_each = slots.last.shape[1], ranked.values.shape[1]
    _branch[(len(slots.lengths),)](
        *_tensors(slots), slots.origins,
        slots.ended_tokens, slots.ended_scores, slots.ended_lengths, slots.is_cut,
        ranked.values, ranked.tokens, ranked.eos, ranked.is_broken,
        *_numbers(slots, rules),
        n_beams, n_each, slots.ended_scores.shape[1],
        triton.next_power_of_2(n_beams), triton.next_power_of_2(n_each), COLUMNS,
        num_warps=4, **launch(slots.tokens),
    )  # fmt: skip


def exchange(slots: Slots, reports: Reports, number: Tensor, bos: int) -> None:
    """Report what was found in the slots that are done, and let them take the next sentences."""
    entries = slots.entries
    n_beams, length = slots.tokens.shape[1:]
    _exchange[(len(slots.lengths),)](
        slots.tokens, slots.last, slots.lengths, slots.scores, slots.shifts, slots.only,
        slots.repeats, slots.is_open, slots.entry, slots.n_ended,
        slots.ended_tokens, slots.ended_scores, slots.ended_lengths, slots.is_cut,
        entries.starts, entries.prefixes, entries.queue, entries.n_added, entries.n_taken,
        reports.tokens, reports.lengths, reports.scores, reports.kinds, reports.done_at, number,
        bos, length, n_beams, slots.ended_scores.shape[1], len(entries.queue),
        LONGEST_LOOP, DISTANCES, triton.next_power_of_2(n_beams), COLUMNS,
        reports.kinds.shape[1] > 1, num_warps=1, **launch(slots.tokens),
    )  # fmt: skip


def _tensors(slots: Slots) -> tuple[Any, ...]:
    return (
        slots.tokens, slots.last, slots.lengths, slots.scores, slots.shifts, slots.only,
        slots.repeats, slots.is_open, slots.entry, slots.entries.limits, slots.entries.prefixes,
        slots.entries.starts, slots.n_ended,
    )  # fmt: skip


def _numbers(slots: Slots, rules: FixedRules) -> tuple[int, ...]:
    return slots.tokens.shape[2], rules.specials.eos, rules.max_loops, LONGEST_LOOP, DISTANCES


@triton.jit(do_not_specialize=["before", "count"])
def _add(
    limits, starts, prefixes, queue, n_added,
    places, rows, new_limits, new_starts, new_prefixes,
    before, count, n_entries, length, n_forced,
    C: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    entry = tl.load(places + number)
    row = tl.load(rows + number)
    tl.store(starts + entry, tl.load(new_starts + row))
    tl.store(limits + entry, tl.load(new_limits + row))
    for first in range(0, n_forced, C):
        column = first + tl.arange(0, C)
        is_forced = column < n_forced
        token = tl.load(new_prefixes + row * n_forced + column, mask=is_forced, other=0)
        tl.store(prefixes + entry * length + column, token, mask=is_forced)
    tl.store(queue + (before + number) % n_entries, entry)
    if number == 0:
        tl.store(n_added, (before + count).to(tl.int64))


@triton.jit
def _next_only(after, start, forced, is_loop, eos):
    """Return the only token that may follow, or -1."""
    single = tl.where(after < start, forced, -1)
    return tl.where(is_loop, eos, single)


@triton.jit
def _follow(
    tokens, last, lengths, scores, shifts, only,
    repeats, is_open, entries, limits, prefixes, starts, n_ended,
    values, chosen, is_broken,
    length, eos, max_loops, LONGEST: tl.constexpr, L: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    slot = tl.program_id(0)
    tokens += slot.to(tl.int64) * length
    entry = tl.maximum(tl.load(entries + slot), 0)
    position = tl.load(lengths + slot)
    start = tl.load(starts + entry)
    score = tl.load(scores + slot)
    token = tl.load(chosen + slot)
    opened = tl.load(is_open + slot) != 0
    broken = tl.load(is_broken + slot) != 0
    total = score + tl.load(values + slot)
    possible = opened & (total > -float("inf")) & (broken == 0)
    ended = possible & (token == eos)
    goes_on = possible & (token != eos) & (position < tl.load(limits + entry))
    kept = tl.where(opened & broken, float("nan"), score)
    kept = tl.where(ended | goes_on, total, kept)
    tl.store(scores + slot, kept)
    tl.store(shifts + slot, 0.0)
    tl.store(n_ended + slot, tl.load(n_ended + slot) + ended.to(tl.int64))
    tl.store(is_open + slot, goes_on)

    distance = tl.arange(0, L) + 1
    is_distance = distance <= LONGEST
    is_inside = is_distance & (position - distance >= start)
    before = tl.load(tokens + position - distance, mask=is_inside, other=-1)
    run = tl.load(repeats + slot * LONGEST + distance - 1, mask=is_distance, other=0)
    run = tl.where(is_inside & (before == token), run + 1, 0)
    tl.store(repeats + slot * LONGEST + distance - 1, run, mask=is_distance & goes_on)
    tl.store(tokens + position, token, mask=goes_on)
    tl.store(last + slot, token, mask=goes_on)
    after = position + goes_on.to(tl.int64)
    tl.store(lengths + slot, after)

    enough = (run >= distance * (max_loops - 1)) & is_distance & (max_loops > 0)
    is_loop = (tl.max(enough.to(tl.int32), 0) > 0) & ((max_loops != 1) | (after > start))
    place = tl.minimum(after, length - 1)
    forced = tl.load(prefixes + entry * length + place)
    tl.store(only + slot, _next_only(after, start, forced, is_loop, eos))


@triton.jit
def _branch(
    tokens, last, lengths, scores, shifts, only,
    repeats, is_open, entries, limits, prefixes, starts, n_ended,
    origins, ended_tokens, ended_scores, ended_lengths, is_cut,
    values, ranked, eos_scores, is_broken,
    length, eos, max_loops, LONGEST: tl.constexpr, L: tl.constexpr,
    n_beams, n_each, n_places,
    N: tl.constexpr, K: tl.constexpr, C: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    slot = tl.program_id(0).to(tl.int64)
    tokens += slot * n_beams * length
    origins += slot * n_beams * length
    repeats += slot * n_beams * LONGEST
    beam = tl.arange(0, N)
    is_beam = beam < n_beams
    row = slot * n_beams + beam
    entry = tl.maximum(tl.load(entries + slot), 0)
    position = tl.load(lengths + slot)
    start = tl.load(starts + entry)
    opened = tl.load(is_open + slot) != 0
    before = tl.load(n_ended + slot)
    score = tl.load(scores + row, mask=is_beam, other=-float("inf"))
    broken = tl.max(tl.load(is_broken + row, mask=is_beam, other=0).to(tl.int32), 0) > 0
    highest = tl.max(score, 0)
    highest = tl.where(highest > -float("inf"), highest, 0.0)

    # The 2N best continuations: an eos among the first N ends its hypothesis, the first N others
    # survive.
    place = tl.arange(0, N * K)
    parent = place // K
    rank = place % K
    is_one = (parent < n_beams) & (rank < n_each)
    source = (slot * n_beams + parent) * n_each + rank
    value = tl.load(values + source, mask=is_one, other=-float("inf"))
    value = tl.where(is_one, value, -float("inf"))
    token = tl.load(ranked + source, mask=is_one, other=0)
    is_left = is_one
    is_ended = beam < 0
    parents = tl.zeros((N,), tl.int64)
    chosen = tl.zeros((N,), tl.int64)
    grown = tl.full((N,), -float("inf"), tl.float32)
    n_survivors = 0
    for number in range(2 * n_beams):
        # Where all that is left is impossible, the first place that is left comes next.
        order = tl.where(is_left, tl.maximum(value, -3e38), -float("inf"))
        _, index = tl.max(order, 0, return_indices=True, return_indices_tie_break_left=True)
        is_best = place == index
        best = tl.max(tl.where(is_best, value, -float("inf")), 0)
        best_token = tl.sum(tl.where(is_best, token, 0), 0)
        best_parent = tl.sum(tl.where(is_best, parent, 0), 0)
        is_left = is_left & (is_best == 0)
        is_end = best_token == eos
        ends = is_end & (number < n_beams) & (best > -float("inf"))
        is_ended = is_ended | ((beam == best_parent) & ends)
        is_new = (beam == n_survivors) & (is_end == 0)
        parents = tl.where(is_new, best_parent, parents)
        chosen = tl.where(is_new, best_token, chosen)
        grown = tl.where(is_new, best + highest, grown)
        n_survivors += tl.where(is_end, 0, 1)

    is_ended = is_ended & opened
    ending = is_ended.to(tl.int64)
    target = slot * n_places + before + tl.cumsum(ending, 0) - 1
    after_ended = before + tl.sum(ending, 0)
    eos_score = score + tl.load(eos_scores + row, mask=is_beam, other=0.0)
    tl.store(ended_scores + target, eos_score, mask=is_ended)
    tl.store(ended_lengths + target, tl.zeros((N,), tl.int64) + position, mask=is_ended)
    tl.store(n_ended + slot, after_ended)
    is_possible = (tl.max(grown, 0) > -float("inf")) & (position < tl.load(limits + entry))
    goes_on = opened & (after_ended < n_beams) & is_possible & (broken == 0)
    closes = opened & (goes_on == 0)
    cut = (is_ended == 0) & (score > -float("inf"))
    tl.store(is_cut + row, cut, mask=is_beam & closes)
    tl.store(is_open + slot, goes_on)

    # What is read from the parents comes before anything is written.
    distance = tl.arange(0, L) + 1
    is_distance = distance <= LONGEST
    is_inside = is_distance & (position - distance >= start)
    earlier = tl.load(
        tokens + parents[:, None] * length + (position - distance)[None],
        mask=is_inside[None] & is_beam[:, None], other=-1,
    )  # fmt: skip
    cell = (distance - 1)[None]
    is_cell = is_distance[None] & is_beam[:, None]
    run = tl.load(repeats + parents[:, None] * LONGEST + cell, mask=is_cell, other=0)
    run = tl.where(is_inside[None] & (earlier == chosen[:, None]), run + 1, 0)
    tl.debug_barrier()
    tl.store(repeats + beam[:, None] * LONGEST + cell, run, mask=is_cell & goes_on)
    for first in range(0, position + 1, C):
        column = (first + tl.arange(0, C))[None]
        is_inside_row = (column < length) & is_beam[:, None]
        own = tl.load(tokens + beam[:, None] * length + column, mask=is_inside_row, other=0)
        tl.store(
            ended_tokens + target[:, None] * length + column,
            own,
            mask=is_inside_row & is_ended[:, None],
        )
        theirs = tl.load(tokens + parents[:, None] * length + column, mask=is_inside_row, other=0)
        origin = tl.load(origins + parents[:, None] * length + column, mask=is_inside_row, other=0)
        theirs = tl.where(column == position, chosen[:, None], theirs)
        origin = tl.where(column == position, parents[:, None], origin)
        tl.debug_barrier()
        tl.store(tokens + beam[:, None] * length + column, theirs, mask=is_inside_row & goes_on)
        tl.store(origins + beam[:, None] * length + column, origin, mask=is_inside_row & goes_on)

    kept = tl.where(closes & broken, float("nan"), score)
    kept = tl.where(goes_on, grown, kept)
    tl.store(scores + row, kept, mask=is_beam)
    new_highest = tl.max(tl.where(is_beam, grown, -float("inf")), 0)
    tl.store(shifts + row, grown - new_highest, mask=is_beam & goes_on)
    tl.store(last + row, chosen, mask=is_beam & goes_on)
    after = position + goes_on.to(tl.int64)
    tl.store(lengths + slot, after)
    enough = (run >= distance[None] * (max_loops - 1)) & is_distance[None] & (max_loops > 0)
    is_loop = (tl.max(enough.to(tl.int32), 1) > 0) & ((max_loops != 1) | (after > start))
    forced = tl.load(prefixes + entry * length + tl.minimum(after, length - 1))
    following = _next_only(after, start, forced, is_loop, eos)
    tl.store(only + row, following, mask=is_beam)


@triton.jit
def _exchange(
    tokens, last, lengths, scores, shifts, only,
    repeats, is_open, entries, n_ended,
    ended_tokens, ended_scores, ended_lengths, is_cut,
    starts, prefixes, queue, n_added, n_taken,
    found, found_lengths, found_scores, kinds, done_at, number,
    bos, length, n_beams, n_places, n_entries,
    LONGEST: tl.constexpr, L: tl.constexpr, N: tl.constexpr, C: tl.constexpr,
    IS_BEAM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    wait(EARLY)
    slot = tl.program_id(0).to(tl.int64)
    entry = tl.load(entries + slot)
    if tl.load(is_open + slot) == 0:
        if entry >= 0:
            _report(
                tokens, lengths, scores, n_ended, ended_tokens, ended_scores, ended_lengths, is_cut,
                found, found_lengths, found_scores, kinds, slot, entry, length, n_beams, n_places,
                C, IS_BEAM,
            )  # fmt: skip
            tl.store(done_at + entry, tl.load(number))
            tl.store(entries + slot, entry * 0 - 1)
            tl.debug_barrier()  # all has been read that the next sentence changes
        available = tl.load(n_added)
        if tl.atomic_add(n_taken, 0) < available:
            place = tl.atomic_add(n_taken, 1)
            if place < available:
                following = tl.load(queue + place % n_entries)
                tl.store(entries + slot, following)
                start = tl.load(starts + following)
                forced = tl.load(prefixes + following * length, mask=start > 0, other=-1)
                tl.store(is_open + slot, True)
                tl.store(lengths + slot, start * 0)
                tl.store(n_ended + slot, start * 0)
                _begin(
                    last, scores, shifts, only, repeats, is_cut, slot, forced, bos, n_beams,
                    LONGEST, L, N,
                )  # fmt: skip
            else:
                tl.atomic_add(n_taken, -1)


@triton.jit
def _begin(
    last, scores, shifts, only, repeats, is_cut, slot, forced, bos, n_beams,
    LONGEST: tl.constexpr, L: tl.constexpr, N: tl.constexpr,
):  # fmt: skip
    """Begin with one empty hypothesis; the other beams are filled by what follows."""
    beam = tl.arange(0, N)
    is_beam = beam < n_beams
    own = slot * n_beams + beam
    score = tl.where(beam == 0, 0.0, -float("inf"))
    tl.store(scores + own, score, mask=is_beam)
    tl.store(shifts + own, score, mask=is_beam)
    tl.store(last + own, tl.zeros((N,), tl.int64) + bos, mask=is_beam)
    tl.store(is_cut + own, beam < 0, mask=is_beam)
    tl.store(only + own, tl.zeros((N,), tl.int64) + forced, mask=is_beam)
    distance = tl.arange(0, L)[None]
    cell = own[:, None] * LONGEST + distance
    is_cell = is_beam[:, None] & (distance < LONGEST)
    tl.store(repeats + cell, tl.zeros((N, L), tl.int64), mask=is_cell)


@triton.jit
def _report(
    tokens, lengths, scores, n_ended, ended_tokens, ended_scores, ended_lengths, is_cut,
    found, found_lengths, found_scores, kinds, slot, entry, length, n_beams, n_places,
    C: tl.constexpr, IS_BEAM: tl.constexpr,
):  # fmt: skip
    """Report the hypotheses of a slot: those that have ended, then those that were cut."""
    count = tl.load(lengths + slot)
    ended = tl.load(n_ended + slot)
    if IS_BEAM:
        n_all = n_places + n_beams
        for place in range(n_places):
            kind = tl.where(place < ended, WITH_EOS, NO_HYPOTHESIS)
            source = slot * n_places + place
            own = tl.load(ended_lengths + source)
            score = tl.load(ended_scores + source)
            _write(
                ended_tokens + source * length, own, score, kind, entry * n_all + place,
                found, found_lengths, found_scores, kinds, length, C,
            )  # fmt: skip
        for beam in range(n_beams):
            source = slot * n_beams + beam
            cut = tl.load(is_cut + source) != 0
            kind = tl.where(cut, WITHOUT_EOS, NO_HYPOTHESIS)
            score = tl.load(scores + source)
            _write(
                tokens + source * length, count, score, kind, entry * n_all + n_places + beam,
                found, found_lengths, found_scores, kinds, length, C,
            )  # fmt: skip
    else:
        kind = tl.where(ended > 0, WITH_EOS, WITHOUT_EOS)
        _write(
            tokens + slot * length, count, tl.load(scores + slot), kind, entry,
            found, found_lengths, found_scores, kinds, length, C,
        )  # fmt: skip


@triton.jit
def _write(
    tokens, count, score, kind, target, found, found_lengths, found_scores, kinds, length,
    C: tl.constexpr,
):  # fmt: skip
    """Report one hypothesis."""
    tl.store(kinds + target, kind)
    if kind != NO_HYPOTHESIS:
        tl.store(found_lengths + target, count.to(tl.int32))
        tl.store(found_scores + target, score)
        for first in range(0, count, C):
            column = first + tl.arange(0, C)
            is_token = column < count
            token = tl.load(tokens + column, mask=is_token, other=0)
            tl.store(found + target * length + column, token.to(tl.int32), mask=is_token)
