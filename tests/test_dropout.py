"""BPE-dropout: other tokens, the same text, and the same result with the same seed."""

import random
import time
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attendo.config import load_recipe
from attendo.data.corpus import CHUNK
from attendo.errors import TokenizerError
from attendo.text import TOKENIZERS, Tokenizer, train_tokenizer
from attendo.text.dropout import Segmentations, Words, sample_segmentations
from attendo.text.tokenizer import Merge
from small_runs import SETTINGS, open_workshop

CORPUS = [
    "Das Haus ist groß, und die Häuser sind größer als die Hütte.",
    "the houses of the householders are housed in a house",
    "walking, walked, walks: a walker walks and talks; talking, talked",
    "我们喜欢这个房子。我们喜欢猫。",
] * 3

KINDS = ("bpe", "byte-bpe", "code-bpe")
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
texts = st.lists(anything | st.sampled_from(CORPUS), min_size=1, max_size=4)
quick = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(kind, CORPUS, 401, lossless=kind == "code-bpe") for kind in KINDS}


def expand_all(tokenizer: Tokenizer, lines: list[str], rate: float, draws: int = 3) -> list[str]:
    """Number the words of texts, sample, expand, and decode every text again."""
    words = Words(tokenizer)
    numbers = words.add(lines)
    sampled = sample_segmentations(tokenizer, words.words, rate, draws, seed=5)
    generator = np.random.default_rng(7)
    return [
        tokenizer.decode(sampled.expand(np.array(text, dtype=np.int32), generator)[0].tolist())
        for text in numbers
    ]


@quick
@given(lines=texts, rate=st.sampled_from([0.0, 1e-300]))
def test_without_dropout_the_ids_are_the_tokenizers_own(
    trained: dict[str, Tokenizer], lines: list[str], rate: float
) -> None:
    # A rate of 1e-300 never leaves anything out, yet runs all merges.
    for tokenizer in trained.values():
        words = Words(tokenizer)
        numbers = np.fromiter(chain(*words.add(lines)), dtype=np.int32)
        sampled = sample_segmentations(tokenizer, words.words, rate, draws=2, seed=5)
        ids, _ = sampled.expand(numbers, np.random.default_rng(7))
        assert ids.tolist() == list(chain(*tokenizer.encode_batch(lines)))


@quick
@given(lines=texts, rate=st.floats(0, 1))
def test_every_sample_decodes_to_the_same_text(
    trained: dict[str, Tokenizer], lines: list[str], rate: float
) -> None:
    for tokenizer in trained.values():
        assert expand_all(tokenizer, lines, rate) == list(map(tokenizer.normal_form, lines))


@pytest.mark.parametrize("kind", KINDS)
def test_leaving_out_every_merge_leaves_single_symbols(
    trained: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = trained[kind]
    products = {merge.product for merge in tokenizer.merges()}
    words = Words(tokenizer)
    words.add(CORPUS)
    sampled = sample_segmentations(tokenizer, words.words, 1.0, draws=1, seed=5)
    assert not products & set(sampled.ids.tolist())
    assert products & set(sample_segmentations(tokenizer, words.words, 0.5, 1, 5).ids.tolist())


def sample_as_printed(
    symbols: list[int], merges: list[Merge], rate: float, generator: random.Random
) -> tuple[int, ...]:
    """Algorithm 1 of the paper, word for word: draw for every possible merge at every step."""
    ranks = {(merge.left, merge.right): rank for rank, merge in enumerate(merges)}
    tokens = list(symbols)
    while True:
        possible = [(ranks[pair], at) for at, pair in enumerate(pairwise(tokens)) if pair in ranks]
        kept = [merge for merge in possible if generator.random() >= rate]
        if not kept:
            return tuple(tokens)
        rank, at = min(kept)
        tokens[at : at + 2] = [merges[rank].product]


def test_samples_are_distributed_as_in_the_paper(trained: dict[str, Tokenizer]) -> None:
    tokenizer, draws, rate = trained["byte-bpe"], 6000, 0.3
    word = Words(tokenizer)
    word.add(["walking"])
    sampled = sample_segmentations(tokenizer, word.words, rate, draws, seed=5)
    ours = Counter(tuple(entry.tolist()) for entry in np.split(sampled.ids, sampled.offsets[1:-1]))
    single = sample_segmentations(tokenizer, word.words, 1.0, 1, seed=5).ids.tolist()
    generator, merges = random.Random(11), tokenizer.merges()
    printed = Counter(sample_as_printed(single, merges, rate, generator) for _ in range(draws))
    assert len(printed) > 5
    # Total variation between two samples of one distribution is of the order sqrt(ways / draws).
    assert sum(abs((ours - printed)[way]) for way in ours | printed) / draws < 0.05


@quick
@given(data=st.data())
def test_expand_picks_one_drawn_segmentation_a_word(data: st.DataObject) -> None:
    draws = data.draw(st.integers(1, 3))
    entries = data.draw(
        st.lists(st.lists(st.integers(0, 99), max_size=4), min_size=draws, max_size=7 * draws)
    )
    entries = entries[: len(entries) // draws * draws]
    offsets = np.cumsum([0, *map(len, entries)], dtype=np.int64)
    sampled = Segmentations(np.fromiter(chain(*entries), dtype=np.int32), offsets, draws)
    last = len(entries) // draws - 1
    words = data.draw(st.lists(st.integers(0, last), max_size=11))
    ids, lengths = sampled.expand(np.array(words, dtype=np.int64), np.random.default_rng(3))
    assert len(ids) == lengths.sum()
    ends = np.cumsum(lengths)
    for word, end, length in zip(words, ends, lengths, strict=True):
        assert ids[end - length : end].tolist() in entries[word * draws : (word + 1) * draws]


def test_expand_uses_all_draws_and_repeats_with_its_seed(trained: dict[str, Tokenizer]) -> None:
    words = Words(trained["bpe"])
    numbers = np.array(words.add(["householders"] * 50)).ravel()
    sampled = sample_segmentations(trained["bpe"], words.words, 0.5, draws=8, seed=5)
    first, second, other = (
        sampled.expand(numbers, np.random.default_rng(seed))[0].tolist() for seed in (3, 3, 4)
    )
    assert first == second != other


def test_sampling_repeats_with_its_seed(trained: dict[str, Tokenizer]) -> None:
    words = Words(trained["bpe"])
    words.add(CORPUS)
    first, second, other = (
        sample_segmentations(trained["bpe"], words.words, 0.3, 4, seed).ids.tolist()
        for seed in (3, 3, 4)
    )
    assert first == second != other


def test_words_keep_their_numbers(trained: dict[str, Tokenizer]) -> None:
    words = Words(trained["bpe"])
    first = words.add(CORPUS[:2])
    inventory = words.words
    words.add(CORPUS)
    assert words.add(CORPUS[:2]) == first
    assert words.words[: len(inventory)] == inventory
    assert len(set(words.words)) == len(words.words)


def test_segmentations_survive_saving(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    words = Words(trained["bpe"])
    words.add(CORPUS)
    sampled = sample_segmentations(trained["bpe"], words.words, 0.3, 4, seed=5)
    with (tmp_path / "words.npz").open("w+b") as file:
        sampled.save(file)
        file.seek(0)
        loaded = Segmentations.load(file)
    assert loaded.draws == sampled.draws
    np.testing.assert_array_equal(loaded.ids, sampled.ids, strict=True)
    np.testing.assert_array_equal(loaded.offsets, sampled.offsets, strict=True)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04"])
def test_what_is_no_file_of_segmentations_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "words.npz"
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(TokenizerError, match="not a file of segm"):
        Segmentations.load(file)


@pytest.mark.parametrize("kind", sorted(TOKENIZERS.keys() - KINDS))
def test_kinds_without_merges_are_refused(kind: str) -> None:
    tokenizer = train_tokenizer(kind, CORPUS, 601)
    with pytest.raises(TokenizerError, match=r"no BPE merges.*'bpe' and 'byte-bpe'"):
        sample_segmentations(tokenizer, [], 0.1, 1, seed=5)


@pytest.mark.parametrize(
    ("rate", "draws", "message"),
    [(1.5, 1, "dropout = 1.5"), (-0.1, 1, "probability"), (0.1, 0, "at least one")],
)
def test_arguments_out_of_range_are_refused(
    trained: dict[str, Tokenizer], rate: float, draws: int, message: str
) -> None:
    with pytest.raises(TokenizerError, match=message):
        sample_segmentations(trained["bpe"], [], rate, draws, seed=5)


def test_many_unusable_records_in_a_row_are_left_out(tmp_path: Path) -> None:
    long = [f"{number} {'a b ' * 20}\tc d" for number in range(CHUNK)]
    short = [f"the house {number}\tdas Haus {number}" for number in range(100)]
    files = {"data.files": [*long, *short], "data.valid_files": ["a\tb"]}
    files["data.test_files"] = ["c\td"]
    settings = {**SETTINGS, "data.builtin": 0, "data.max_length": 32}
    for name, lines in files.items():
        path = tmp_path / f"{name}.tsv"
        path.write_text("\n".join(lines), encoding="utf-8")
        settings[name] = [str(path)]
    settings["tokenizer.dropout"] = 0.1
    workshop = open_workshop(load_recipe("demo", settings), tmp_path / "run")
    assert workshop.data.n_train == workshop.data.train.size
    assert 0 < workshop.data.n_train <= 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sampling_is_fast_enough_for_a_corpus(trained: dict[str, Tokenizer], kind: str) -> None:
    words = Words(trained[kind])
    words.add([line for line in CORPUS if line.isascii()])
    begin = time.process_time()
    sample_segmentations(trained[kind], words.words, 0.1, draws=400, seed=5)
    per_second = 400 * len(words.words) / (time.process_time() - begin)
    # Many times less than measured: a busy machine has slower caches, too.
    assert per_second > 1_000
