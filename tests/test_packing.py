"""Packing: every pair in one row, no row too full, few places empty."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attendo.data.corpus import Numbers
from attendo.data.packing import Rows, filled, group_by_length, pack

WIDTH = 31
SIZES = st.lists(st.tuples(st.integers(1, WIDTH), st.integers(1, WIDTH)), max_size=80)
FEW_KINDS = st.lists(st.sampled_from([(1, 2), (2, 1), (15, 16), (WIDTH, 1), (7, 7)]), max_size=200)
Sides = tuple[Numbers, Numbers]


def sides_of(sizes: list[tuple[int, int]]) -> Sides:
    source, target = np.array(sizes, dtype=np.int64).reshape(-1, 2).T
    return source, target


def like_wmt(n: int, width: int, mean: int) -> Sides:
    chance = np.random.default_rng(7)
    source = chance.lognormal(np.log(mean) - 0.6**2 / 2, 0.6, n)
    target = source * chance.lognormal(0, 0.15, n)
    source, target = (np.clip(side.round(), 2, width).astype(np.int64) for side in (source, target))
    return source, target


def members(rows: Rows) -> list[list[int]]:
    return [row.tolist() for row in np.split(rows.ids, rows.offsets[1:])[:-1]]


def share_filled(sides: Sides, width: int) -> list[float]:
    rows = pack(sides, width)
    return [float(filled(rows, side).mean() / width) for side in sides]


@given(SIZES | FEW_KINDS)
@settings(deadline=None)
def test_every_pair_is_in_one_row_that_holds_it(sizes: list[tuple[int, int]]) -> None:
    sides = sides_of(sizes)
    rows = pack(sides, WIDTH)
    assert sorted(rows.ids.tolist()) == list(range(len(sizes)))
    assert rows.lengths().all()
    for side in sides:
        n_tokens = filled(rows, side)
        assert n_tokens.tolist() == [side[row].sum() for row in members(rows)]
        assert (n_tokens <= WIDTH).all()


@given(SIZES | FEW_KINDS)
@settings(deadline=None)
def test_the_same_lengths_make_the_same_rows(sizes: list[tuple[int, int]]) -> None:
    source, target = sides_of(sizes)
    before = source.tolist(), target.tolist()
    assert members(pack((source, target), WIDTH)) == members(pack((source, target), WIDTH))
    assert (source.tolist(), target.tolist()) == before


@pytest.mark.parametrize(("width", "mean"), [(128, 27), (64, 13), (256, 27)])
@pytest.mark.parametrize("n", [2000, 16_384])
def test_rows_are_full(n: int, width: int, mean: int) -> None:
    assert min(share_filled(like_wmt(n, width, mean), width)) >= 0.975


def test_sides_that_differ_much_are_balanced() -> None:
    chance = np.random.default_rng(5)
    short = chance.integers(1, 5, 10_000), chance.integers(1, 5, 10_000)
    assert min(share_filled(short, 128)) >= 0.98
    any_length = chance.integers(1, 129, 10_000), chance.integers(1, 129, 10_000)
    assert min(share_filled(any_length, 128)) >= 0.94


def test_opposites_go_together() -> None:
    sides = sides_of([(30, 1), (1, 30)] * 500)
    assert pack(sides, WIDTH).lengths().tolist() == [2] * 500


def test_what_finds_no_partner_is_alone() -> None:
    sides = sides_of([(16, 3), (16, 16), (17, 31), (31, 1)] * 100)
    assert pack(sides, WIDTH).lengths().tolist() == [1] * 400


def test_rows_of_few_long_sentences_come_first() -> None:
    n_pairs = pack(like_wmt(16_384, 128, 27), 128).lengths()
    tenths = [tenth.mean() for tenth in np.array_split(n_pairs, 10)]
    assert tenths == sorted(tenths)


@given(st.lists(st.integers(1, 9), max_size=30), st.integers(1, 20))
def test_groups_by_length_are_within_the_budget_or_alone(lengths: list[int], budget: int) -> None:
    source = np.array(lengths, dtype=np.int64)
    groups = group_by_length((source, source[::-1]), budget)
    assert sorted(place for rows in groups for place in rows.ids) == list(range(len(lengths)))
    longest = np.maximum(source, source[::-1])
    for rows in groups:
        assert rows.lengths().tolist() == [1] * len(rows.ids)
        assert len(rows.ids) == 1 or len(rows.ids) * longest[rows.ids].max() <= budget
    # No batch could have taken the next sentence as well.
    for rows, after in pairwise(groups):
        assert (len(rows.ids) + 1) * longest[after.ids].min() > budget
