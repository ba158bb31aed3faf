"""From texts to batches: nothing lost, nothing twice, and the same again after a stop."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, count, islice, starmap
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attendo.config import DataConfig
from attendo.data import batches
from attendo.data.batches import Batch, Layout, Position, Shaped, once, stream
from attendo.data.corpus import (
    CHUNK,
    Corpus,
    CorpusWriter,
    Numbers,
    Ragged,
    StoredSide,
    open_corpus,
    ragged,
    read_texts,
    write_texts,
)
from attendo.data.packing import Rows, pad_grid
from attendo.data.prefetch import prefetch
from attendo.data.readers import Pair
from attendo.data.texts import FEWEST, Texts, open_texts
from attendo.errors import BundleError, DataError
from attendo.nn.grid import Grid
from attendo.specials import IGNORE, Specials

SPECIALS = Specials(pad=0, bos=1, eos=2), Specials(pad=5, bos=3, eos=4)
IDS = st.lists(st.integers(0, 100_000), max_size=7)
LISTS = st.lists(IDS, max_size=9)
EncodedPairs = list[tuple[list[int], list[int]]]


PADS = {"source": SPECIALS[0].pad, "target": SPECIALS[1].pad}
SIDES = {"source": None, "target": None}


def shape(columns: Mapping[str, Ragged], chance: np.random.Generator) -> Shaped:
    """Shape pairs as translation does."""
    (_, _, source_eos), (_, bos, eos) = SPECIALS
    source, target = columns["source"], columns["target"]
    inputs = {"source": source.ended_with(source_eos), "target": target.begun_with(bos)}
    return Shaped(inputs, target.ended_with(eos))


class Listed:
    """One language as plain lists; perhaps some sentences are cut more finely, by chance."""

    def __init__(self, sentences: list[list[int]], finely: float = 0.0) -> None:
        self.sentences, self.finely = sentences, finely

    def take(self, numbers: Numbers, generator: np.random.Generator) -> Ragged:
        taken = [self.sentences[number] for number in numbers]
        if self.finely:
            again = generator.random(len(taken)) < self.finely
            taken = [2 * ids if twice else ids for ids, twice in zip(taken, again, strict=True)]
        return ragged(taken)


def corpus_of(pairs: EncodedPairs, finely: float = 0.0) -> Corpus:
    sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    columns = {"source": Listed(sources, finely), "target": Listed(targets, finely)}
    return Corpus(columns, len(pairs))


@dataclass(frozen=True, slots=True)
class SmallWindows(Layout):
    """A layout of which a few thousand pairs need several windows."""

    @property
    def window(self) -> int:
        return 2048


def layout(is_packed: bool, width: int = 31, budget: int = 211) -> Layout:
    return SmallWindows(width, budget, "packed" if is_packed else "padded", shape, PADS)


def pairs_of(lengths: Iterator[tuple[int, int]]) -> EncodedPairs:
    """Make sentences of these lengths in which no two tokens are the same."""
    token = count(10)
    return [(list(islice(token, left)), list(islice(token, right))) for left, right in lengths]


def like_wmt(n: int, width: int, seed: int = 7, mean: int = 27) -> EncodedPairs:
    """Draw lengths as in the news: many short, few long, both sides alike."""
    chance = np.random.default_rng(seed)
    source = chance.lognormal(np.log(mean) - 0.6**2 / 2, 0.6, n)
    target = source * chance.lognormal(0, 0.15, n)
    sides = [np.clip(side.round(), 1, width - 1).astype(int).tolist() for side in (source, target)]
    return pairs_of(zip(*sides, strict=True))


def epoch_of(corpus: Corpus, layout: Layout, seed: int = 1) -> list[Batch]:
    found = []
    for position, batch in stream(corpus, layout, seed, Position()):
        if position.epoch:
            break
        found.append(batch)
    return found


def fill(batch: Batch) -> list[float]:
    return [float((grid.segments > 0).float().mean()) for grid in batch.inputs.values()]


def are_equal(one: Batch, other: Batch) -> bool:
    tensors = zip(one.tensors(), other.tensors(), strict=True)
    return one.records == other.records and all(torch.equal(left, right) for left, right in tensors)


LENGTHS = st.tuples(st.integers(0, 30), st.integers(0, 30))  # with its end, 31 just fits
PAIRS = st.lists(LENGTHS, min_size=1, max_size=60).map(pairs_of)


# Batches.


def sentences_in(grid: Grid, pad: int) -> Iterator[list[list[int]]]:
    """Return the sentences of each row, after a check of the padding around them."""
    for ids, segments, positions in zip(*(tensor.tolist() for tensor in grid), strict=True):
        lengths = [segments.count(number) for number in range(1, max(segments) + 1)]
        empty = len(ids) - sum(lengths)
        assert segments == [n for n, length in enumerate(lengths, 1) for _ in range(length)] + (
            [0] * empty
        )
        assert positions == [place for length in lengths for place in range(length)] + [0] * empty
        assert ids[sum(lengths) :] == [pad] * empty
        rest = iter(ids)
        yield [list(islice(rest, length)) for length in lengths]


@pytest.mark.parametrize("is_packed", [True, False])
@given(pairs=PAIRS, seed=st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_every_segment_is_a_whole_sentence_beside_its_partner(
    is_packed: bool, pairs: EncodedPairs, seed: int
) -> None:
    in_source, in_target = SPECIALS
    for batch in epoch_of(corpus_of(pairs), layout(is_packed), seed):
        sources = list(sentences_in(batch.inputs["source"], in_source.pad))
        targets = list(sentences_in(batch.inputs["target"], in_target.pad))
        assert list(map(len, sources)) == list(map(len, targets))
        chosen = [pairs[number] for number in batch.records]
        assert list(chain(*sources)) == [[*left, in_source.eos] for left, _ in chosen]
        assert list(chain(*targets)) == [[in_target.bos, *right] for _, right in chosen]


@pytest.mark.parametrize("is_packed", [True, False])
@given(pairs=PAIRS)
@settings(deadline=None, max_examples=40)
def test_labels_are_the_targets_one_place_on(is_packed: bool, pairs: EncodedPairs) -> None:
    for batch in epoch_of(corpus_of(pairs), layout(is_packed)):
        is_text = batch.inputs["target"].segments > 0
        labels = [[*pairs[number][1], SPECIALS[1].eos] for number in batch.records]
        assert batch.labels[is_text].tolist() == list(chain(*labels))
        assert batch.labels[~is_text].eq(IGNORE).all()
        assert batch.n_labels == int(is_text.sum())


@pytest.mark.parametrize("is_packed", [True, False])
@given(pairs=PAIRS)
@settings(deadline=None, max_examples=40)
def test_every_pair_comes_exactly_once_an_epoch(is_packed: bool, pairs: EncodedPairs) -> None:
    found = epoch_of(corpus_of(pairs), layout(is_packed))
    assert sorted(n for batch in found for n in batch.records) == list(range(len(pairs)))


@pytest.mark.parametrize("is_packed", [True, False])
def test_fewer_large_records_are_in_memory_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_packed: bool
) -> None:
    pairs = like_wmt(3 * batches.WINDOW_RECORDS, 128)
    corpus = write_corpus(tmp_path, pairs, max(max(target) for _, target in pairs))
    largest = 0
    opened = batches._open

    def count(corpus: Corpus, layout: Layout, numbers: Numbers, *rest: Any) -> Any:
        nonlocal largest
        largest = max(largest, len(numbers))
        return opened(corpus, layout, numbers, *rest)

    monkeypatch.setattr(batches, "_open", count)
    plan = layout(is_packed, width=128, budget=4096)
    epoch_of(corpus, plan)
    assert largest == plan.window
    largest = 0
    monkeypatch.setattr(batches, "WINDOW_BYTES", int(1200 * corpus.record_bytes))
    found = epoch_of(corpus, plan)
    assert 1100 < largest < plan.window
    assert sorted(n for batch in found for n in batch.records) == list(range(len(pairs)))


@pytest.mark.parametrize("is_packed", [True, False])
def test_no_pair_is_lost_between_windows(is_packed: bool) -> None:
    plan = layout(is_packed, width=128, budget=4096)
    pairs = like_wmt(3 * plan.window + 77, plan.width)
    found = epoch_of(corpus_of(pairs), plan)
    assert sorted(n for batch in found for n in batch.records) == list(range(len(pairs)))


@pytest.mark.parametrize(
    ("width", "budget", "mean"), [(128, 4096, 27), (128, 25_000, 27), (64, 8192, 13)]
)
def test_packed_batches_have_one_shape_and_full_rows(width: int, budget: int, mean: int) -> None:
    plan = Layout(width, budget, "packed", shape, PADS)
    found = epoch_of(corpus_of(like_wmt(20_000, width, mean=mean)), plan)
    shapes = {grid.ids.shape for batch in found for grid in batch.inputs.values()}
    assert shapes == {(plan.n_rows, width)} == {batch.labels.shape for batch in found}
    *whole, _ = found  # the last one takes what is left
    assert np.mean([fill(batch) for batch in whole], axis=0).min() >= 0.97


@pytest.mark.parametrize("n", [5000, 20_000])
def test_long_and_short_sentences_are_mixed_in_every_packed_batch(n: int) -> None:
    pairs = like_wmt(n, 128)
    lengths = np.array([len(target) for _, target in pairs])
    *whole, _ = epoch_of(corpus_of(pairs), Layout(128, 8192, "packed", shape, PADS))
    numbers = [np.array(batch.records) for batch in whole]
    chance = np.random.default_rng(5)
    by_chance = [lengths[chance.choice(n, len(few), replace=False)] for few in numbers]
    for statistic in (np.mean, np.std):
        spread = np.std([statistic(lengths[few]) for few in numbers])
        assert spread <= np.std([statistic(few) for few in by_chance])


def test_padded_batches_keep_to_their_budget_and_have_like_lengths() -> None:
    plan = layout(is_packed=False, width=128, budget=4096)
    found = epoch_of(corpus_of(like_wmt(5000, plan.width)), plan)
    assert max(batch.labels.numel() for batch in found) <= plan.budget
    assert np.mean([fill(batch) for batch in found]) >= 0.8


def test_lengths_that_do_not_go_together_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # More than half a row each: no row is ever full, and none gets fuller by waiting.
    plan = layout(is_packed=True, budget=4096)
    pairs = pairs_of(iter([(17, 16)] * (4 * plan.window)))
    packed = []

    def pack(lengths: list[Numbers], width: int) -> Rows:
        n = len(lengths[0])
        packed.append(n)
        return Rows(np.arange(n), np.arange(n + 1))

    monkeypatch.setattr(batches, "pack", pack)
    found = epoch_of(corpus_of(pairs), plan)
    assert max(packed) <= 2 * plan.window
    assert sum(len(batch.records) for batch in found) == len(pairs)


N_KNOWN = 90


@cache
def known(is_packed: bool) -> tuple[Corpus, Layout, list[tuple[Position, Batch]]]:
    """Draw the first batches of a few epochs without a stop."""
    plan = layout(is_packed, width=128, budget=4096)
    corpus = corpus_of(like_wmt(plan.window + 999, 64), finely=0.1)
    drawn = list(islice(stream(corpus, plan, 3, Position()), N_KNOWN))
    assert drawn[-1][0].epoch >= 2
    return corpus, plan, drawn


@pytest.mark.parametrize("is_packed", [True, False])
@given(done=st.integers(0, N_KNOWN - 3))
@settings(deadline=None, max_examples=15)
def test_going_on_from_any_position_gives_the_same_batches(is_packed: bool, done: int) -> None:
    corpus, plan, drawn = known(is_packed)
    position = drawn[done - 1][0] if done else Position()
    again = stream(corpus, plan, 3, position)
    for (place, batch), (same_place, same) in zip(drawn[done : done + 3], again, strict=False):
        assert place == same_place
        assert are_equal(batch, same)


@pytest.mark.parametrize("is_packed", [True, False])
def test_batches_that_are_skipped_are_not_filled(
    is_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, plan, drawn = known(is_packed)
    filled = []

    def fill(*arguments: object) -> str:
        filled.append(arguments)
        return "a batch"

    monkeypatch.setattr(batches, "_fill", fill)
    assert next(stream(corpus, plan, 3, drawn[6][0])) == (drawn[7][0], "a batch")
    assert len(filled) == 1


@pytest.mark.parametrize("is_packed", [True, False])
def test_other_seeds_and_other_epochs_give_another_order(is_packed: bool) -> None:
    corpus, plan, drawn = known(is_packed)
    first = next(stream(corpus, plan, 4, Position()))[1]
    second = next(batch for position, batch in drawn if position.epoch == 1)
    assert len({first.records, second.records, drawn[0][1].records}) == 3


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_pair_that_is_cut_too_finely_is_left_out_and_no_other(is_packed: bool) -> None:
    fits, does_not = (30, 7), (7, 31)
    pairs = pairs_of(iter([*[fits] * 9, does_not, *[fits] * 9]))
    found = epoch_of(corpus_of(pairs), layout(is_packed))
    assert sorted(n for batch in found for n in batch.records) == [*range(9), *range(10, 19)]


@pytest.mark.parametrize("is_packed", [True, False])
def test_a_pair_cut_too_finely_today_may_come_tomorrow(is_packed: bool) -> None:
    # Once is short enough, twice is too long.
    corpus = corpus_of(pairs_of(iter([(20, 20)] * 50)), finely=0.3)
    epochs: dict[int, list[int]] = {}
    for position, batch in islice(stream(corpus, layout(is_packed), 1, Position()), 200):
        epochs.setdefault(position.epoch, []).extend(batch.records)
    assert all(len(numbers) == len(set(numbers)) < 50 for numbers in epochs.values())
    assert set().union(*epochs.values()) == set(range(50))


@pytest.mark.parametrize("pairs", [[], pairs_of(iter([(7, 40)] * 3))])
def test_a_stream_without_pairs_says_so_instead_of_waiting(pairs: EncodedPairs) -> None:
    with pytest.raises(DataError, match=rf"none of the {len(pairs)} .* data\.max_length = 31"):
        next(stream(corpus_of(pairs), layout(is_packed=True), 1, Position()))


@given(pairs=PAIRS)
@settings(deadline=None, max_examples=20)
def test_once_gives_every_pair_once_in_rows_of_its_own(pairs: EncodedPairs) -> None:
    found = list(once(corpus_of(pairs), layout(is_packed=True)))
    assert sorted(n for batch in found for n in batch.records) == list(range(len(pairs)))
    assert all(int(batch.inputs["source"].segments.max()) == 1 for batch in found)
    assert sum(len(batch.labels) for batch in found) == len(pairs)


@pytest.mark.parametrize("n_parts", [1, 2, 5, 6, 100])
def test_parts_of_a_batch_make_the_whole_again(n_parts: int) -> None:
    batch = epoch_of(corpus_of(like_wmt(200, 31)), layout(is_packed=True))[0]
    parts = batch.split(n_parts)
    assert len(parts) == min(n_parts, len(batch.labels))
    rows = [len(part.labels) for part in parts]
    assert max(rows) - min(rows) <= 1
    whole = map(torch.cat, zip(*(part.tensors() for part in parts), strict=True))
    assert all(starmap(torch.equal, zip(whole, batch.tensors(), strict=True)))


# Grids and ragged arrays.


@given(st.lists(IDS, min_size=1, max_size=9))
def test_a_padded_grid_has_one_sequence_in_each_row(lists: list[list[int]]) -> None:
    grid = pad_grid(lists, pad=9)
    width = max(map(len, lists))
    for row, ids in enumerate(lists):
        empty = width - len(ids)
        assert grid.ids[row].tolist() == ids + [9] * empty
        assert grid.segments[row].tolist() == [1] * len(ids) + [0] * empty
        assert grid.positions[row].tolist() == [*range(len(ids))] + [0] * empty


def lists_of(sequences: Ragged) -> list[list[int]]:
    ends = sequences.offsets[1:]
    return [ids.tolist() for ids in np.split(sequences.ids, ends[:-1])] if len(ends) else []


@given(LISTS, st.data())
def test_ragged_does_what_lists_do(lists: list[list[int]], data: st.DataObject) -> None:
    sequences = ragged(lists)
    assert lists_of(sequences) == lists
    assert sequences.lengths().tolist() == [len(ids) for ids in lists]
    assert lists_of(sequences.begun_with(7)) == [[7, *ids] for ids in lists]
    assert lists_of(sequences.ended_with(7)) == [[*ids, 7] for ids in lists]
    numbers = data.draw(st.lists(st.sampled_from(range(len(lists))))) if lists else []
    taken = sequences.take(np.array(numbers, dtype=np.int64))
    assert lists_of(taken) == [lists[number] for number in numbers]
    assert sequences.positions().tolist() == [place for ids in lists for place in range(len(ids))]


# Corpora on disk.


def write_corpus(folder: Path, pairs: EncodedPairs, max_id: int) -> Corpus:
    writer = CorpusWriter(folder, {"source": max_id, "target": max_id})
    writer.add(pairs)
    writer.close()
    return open_corpus(folder, SIDES)


@pytest.mark.parametrize("max_id", [99, 2**16 - 1, 2**16, 2**32 - 1])
@pytest.mark.parametrize("n", [0, 1, 2 * CHUNK + 3])
def test_a_written_corpus_is_read_back(tmp_path: Path, n: int, max_id: int) -> None:
    chance = Random(n)
    pairs = [
        tuple([chance.randint(0, max_id) for _ in range(chance.randint(0, 5))] for _ in range(2))
        for _ in range(n)
    ]
    corpus = write_corpus(tmp_path / "corpus", pairs, max_id)
    assert corpus.size == n
    numbers = np.array(chance.sample(range(n), n), dtype=np.int64)
    for side, stored in enumerate(corpus.columns.values()):
        assert isinstance(stored, StoredSide)
        assert stored.stored.ids.itemsize == (2 if max_id < 2**16 else 4)
        taken = stored.take(numbers, np.random.default_rng(0))
        assert taken.ids.dtype == np.int64
        assert lists_of(taken) == [pairs[number][side] for number in numbers]
    assert {path.suffix for path in (tmp_path / "corpus").iterdir()} == {".npy"}


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [Path.unlink, cut_off, empty])
def test_a_damaged_corpus_says_what_to_do(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    write_corpus(tmp_path, [([1], [2, 3])], 9)
    damage(tmp_path / "target.ids.npy")
    with pytest.raises(BundleError, match=r"target\.\*\.npy cannot be read .* delete its folder"):
        open_corpus(tmp_path, SIDES)


def test_sides_of_different_length_are_refused(tmp_path: Path) -> None:
    write_corpus(tmp_path / "one", [([1], [2])], 9)
    write_corpus(tmp_path / "two", [([1], [2])] * 3, 9)
    for name in ("ids", "offsets"):
        (tmp_path / "two" / f"source.{name}.npy").replace(tmp_path / "one" / f"source.{name}.npy")
    with pytest.raises(BundleError, match="source 3, target 1"):
        open_corpus(tmp_path / "one", SIDES)


@given(pairs=st.lists(st.tuples(st.text(), st.text()), max_size=9))
@settings(deadline=None)
def test_kept_texts_come_back_letter_by_letter(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "kept.jsonl"
    kept = [Pair(*pair) for pair in [*pairs, ("a\r\nb\u2028", "\x85\x00")]]
    write_texts(path, kept)
    assert read_texts(path, Pair) == kept


# Batches ahead.


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "attendo-prefetch"]


@pytest.mark.parametrize("n", [0, 1, 100])
def test_prefetched_items_keep_their_order(n: int) -> None:
    assert list(prefetch(iter(range(n)))) == list(range(n))
    assert not workers()


def test_an_error_comes_after_the_items_before_it() -> None:
    def failing() -> Iterator[int]:
        yield from range(9)
        raise DataError("the tenth is broken")

    items = prefetch(failing())
    assert list(islice(items, 9)) == list(range(9))
    with pytest.raises(DataError, match="the tenth is broken"):
        next(items)
    assert not workers()


def test_prefetching_stays_a_little_ahead_and_ends_when_it_is_closed() -> None:
    drawn = []
    items = prefetch((drawn.append(number) or number for number in count()), depth=3)
    assert list(islice(items, 5)) == list(range(5))
    assert len(workers()) == 1
    items.close()
    assert not workers()
    assert len(drawn) <= 5 + 3 + 1  # taken, ready, and the one that waits for its place


# Texts.


def save(folder: Path, pairs: list[Pair], name: str = "train") -> str:
    path = folder / f"{name}.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in pairs), "utf-8")
    return str(path)


def several(n: int, most: int = 4, seed: int = 5) -> list[Pair]:
    """Make sources with one to a few translations each, in any order."""
    chance = Random(seed)
    pairs = [
        Pair(f"source {number}", f"target {number} {variant}")
        for number in range(n)
        for variant in range(chance.randint(1, most))
    ]
    chance.shuffle(pairs)
    return pairs


def parts_of(texts: Texts) -> list[list[Pair]]:
    return [list(texts.train()), texts.valid, texts.test]


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize(("n", "hold_out"), [(10, 1000), (500, 1000), (500, 7)])
def test_split_off_parts_have_all_translations_of_their_sources(
    tmp_path: Path, most: int, n: int, hold_out: int
) -> None:
    pairs = several(n, most)
    texts = open_texts(DataConfig(pairs=(save(tmp_path, pairs),), hold_out=hold_out))
    parts = parts_of(texts)
    assert Counter(pair for part in parts for pair in part) == Counter(pairs)
    sources = [{pair.source for pair in part} for part in parts]
    assert sum(map(len, sources)) == len(set().union(*sources))
    share = min(hold_out, max(1, len(pairs) // 20))
    for part in parts[1:]:
        # Never more than requested, and no more than one source less.
        assert share - most < len(part) <= share
        assert part
    assert texts.n_train == len(parts[0])


def test_the_split_is_the_same_for_any_order_of_the_lines(tmp_path: Path) -> None:
    pairs = several(300)
    first = open_texts(DataConfig(pairs=(save(tmp_path, pairs),)))
    assert parts_of(first) == parts_of(first)
    second = open_texts(DataConfig(pairs=(save(tmp_path, pairs[::-1], "other"),)))
    assert parts_of(second) == [part[::-1] for part in parts_of(first)]


def test_a_very_frequent_source_leaves_something_to_validate_with(tmp_path: Path) -> None:
    often = [Pair(f"often {n}", f"{n} {variant}") for n in range(9) for variant in range(40)]
    texts = open_texts(DataConfig(pairs=(save(tmp_path, often + several(60, most=1)),)))
    assert len(texts.valid) == len(texts.test) == (9 * 40 + 60) // 20
    assert not any(pair.source.startswith("often") for pair in texts.valid + texts.test)


def test_given_validation_and_test_files_are_taken_whole(tmp_path: Path) -> None:
    pairs, valid, test = several(100), several(11, seed=6), several(3, seed=7)
    config = DataConfig(
        pairs=(save(tmp_path, pairs),),
        valid_pairs=(save(tmp_path, valid, "valid"),),
        test_pairs=(save(tmp_path, test, "test"),),
    )
    assert parts_of(open_texts(config)) == [pairs, valid, test]
    partly = open_texts(config.model_copy(update={"test_pairs": ()}))
    assert partly.valid == valid
    assert Counter([*partly.train(), *partly.test]) == Counter(pairs)
    assert partly.n_train == len(pairs) - len(partly.test) < len(pairs)


def test_given_pairs_that_are_trained_on_too_are_counted(tmp_path: Path) -> None:
    pairs = several(200, most=2)
    config = DataConfig(pairs=(save(tmp_path, pairs),))
    split = open_texts(config)
    assert (split.n_known_valid, split.n_known_test) == (0, 0)
    taken = next(split.train())
    given = [Pair(taken.source, "another translation"), split.valid[0], Pair("new", "neu")]
    files = (save(tmp_path, given, "given"),)
    texts = open_texts(config.model_copy(update={"test_pairs": files}))
    # What is split off for validation is not trained on.
    is_trained_on = {pair.source for pair in texts.train()}
    known = sum(pair.source in is_trained_on for pair in given)
    assert known in (1, 2)
    assert (texts.n_known_valid, texts.n_known_test) == (0, known)
    both = open_texts(config.model_copy(update={"test_pairs": files, "valid_pairs": files}))
    assert (both.n_known_valid, both.n_known_test) == (2, 2)


def test_texts_are_measured_and_reported(tmp_path: Path) -> None:
    pairs = [Pair(f"{number:06}", f"{number:010}") for number in range(40)]
    texts = open_texts(DataConfig(pairs=(save(tmp_path, [*pairs, Pair("only one", "")]),)))
    assert texts.mean_characters == 8
    assert texts.report.dropped == {"empty target": 1}


def test_too_little_data_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no training data: give --source and --target"):
        open_texts(DataConfig())
    few = save(tmp_path, several(FEWEST - 1, most=1), "few")
    with pytest.raises(DataError, match=rf"usable pairs in .*few\.tsv: 9 of at least {FEWEST}"):
        open_texts(DataConfig(pairs=(few,)))
    same = save(tmp_path, [Pair("again", f"{number}") for number in range(50)], "same")
    with pytest.raises(DataError, match=r"too few different sources .*same\.tsv.*--valid"):
        open_texts(DataConfig(pairs=(same,)))


def test_aligned_files_of_different_length_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("one\n" * 20)
    (tmp_path / "a.de").write_text("eins\n" * 19)
    with pytest.raises(DataError, match="has 20 lines and"):
        open_texts(DataConfig(source=str(tmp_path / "a.en"), target=str(tmp_path / "a.de")))


def test_the_builtin_texts_are_disjoint_and_as_many_as_asked_for() -> None:
    texts = open_texts(DataConfig(builtin=100, hold_out=20))
    train, valid, test = parts_of(texts)
    assert texts.n_train == len(train) == 100
    assert len(valid) == len(test) == 20
    sources = [{pair.source for pair in part} for part in (train, valid, test)]
    assert sum(map(len, sources[1:])) == len(sources[1] | sources[2]) == 40
    assert not sources[0] & (sources[1] | sources[2])
    assert parts_of(open_texts(DataConfig(builtin=100, hold_out=20))) == [train, valid, test]
