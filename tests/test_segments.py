"""Running text divided into sentences, words and segments."""

import subprocess
import sys
import time
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.data.builtin import sentences
from attendo.text import (
    Segment,
    WordCounter,
    divide,
    fold_case,
    iterate_words,
    split_sentences,
    train_tokenizer,
)
from attendo.text.streams import Streaming, _sorted_batches, segments

ONE_SENTENCE = [
    "Dr. Smith and Mrs. Jones met J. R. R. Tolkien.",
    "It costs 3.50 euros, e.g. at St. Paul's, vs. 4.20 before.",
    "Wir treffen uns am 3. Mai, z. B. um 12 Uhr bzw. später.",
    "Im 19. Jahrhundert war das d. h. ca. Hundert Jahre lang so.",
    "Der 2. Versuch gelang.",
    "See fig. 3 and p. 12, no. 5.",
    "Vaswani et al. (2017) wrote it.",
    '"Go away!" he said.',
    "«Vraiment ?» dit-il.",
    "Well... that is it.",
    "1. The dog sleeps",
    "version 1.2.3 of example.com is out",
    "「行く。」と彼は言った。",
    "...",
    "MR. SMITH CAME.",
    "The end?!",
]

SEVERAL = [
    ["The old dog sleeps.", "The cat saw the big dog.", "The farmer waited for the train."],
    ["Is it?", "Yes!", "Then go…", "Now."],
    ['"Go away!"', "She left.", "(It rained.)", "“Why?”", "He knew."],
    ["He was 19.", "The dog was 2.", "It cost $5."],
    ["It is 5 p.m.", "The train came."],
    ["Er kam am 3. Mai.", "Er blieb bis zum 4. Juni."],
    ["hello there.", "how are you?", "fine."],
    ["Great! 😀", "The dog sleeps. 👍🏽", "Bye."],
    ["Кот спит.", "Собака ест."],
    ["यह कुत्ता है।", "वह बिल्ली है।"],
    ["هل هذا كلب؟", "نعم."],
    ["¿Dónde está?", "¡Aquí!"],
    ["A dog .", "A cat ."],
]


@pytest.mark.parametrize("text", ONE_SENTENCE)
def test_abbreviations_numbers_and_quotations_do_not_end_a_sentence(text):
    assert split_sentences(text) == [Segment(text, "")]


@pytest.mark.parametrize("expected", SEVERAL, ids=[parts[0] for parts in SEVERAL])
@pytest.mark.parametrize("gap", [" ", "  ", "\t", "\n", " \r\n\n "])
def test_sentences_are_found_with_the_white_space_between_them(expected, gap):
    found = split_sentences(gap.join(expected))
    assert [segment.text for segment in found] == expected
    assert [segment.gap for segment in found] == [gap] * (len(expected) - 1) + [""]


def test_ideographic_full_stops_need_no_space():
    found = split_sentences("これは犬です。猫！？「はい。」「いいえ。」")
    assert [one.text for one in found] == ["これは犬です。", "猫！？", "「はい。」", "「いいえ。」"]


def test_every_line_break_ends_a_sentence():
    found = split_sentences("  A title\n\nthe text\u2028goes on \n")
    expected = [("", "  "), ("A title", "\n\n"), ("the text", "\u2028"), ("goes on", " \n")]
    assert found == [Segment(*one) for one in expected]


@given(st.text(st.sampled_from(list("aA1.!?…。” \"'(\n\t\u3000猫😀z")), max_size=60) | st.text())
def test_no_character_is_lost(text):
    found = split_sentences(text)
    assert "".join(one.text + one.gap for one in found) == text
    assert all(one.text == one.text.strip() and one.text for one in found[1:])
    assert all(not one.gap.strip() for one in found)


@given(
    text=st.text(st.sampled_from(list("ab. A\n")), max_size=80),
    sentences=st.integers(1, 4),
    limit=st.integers(3, 12),
)
def test_segments_hold_so_many_sentences_of_a_line_and_no_more_characters(text, sentences, limit):
    found = list(divide(text, sentences, limit))
    assert "".join(one.text + one.gap for one in found) == text.lstrip()
    assert all("\n" not in one.text for one in found)
    assert all(len(one.text) <= sentences * (limit + 40) for one in found)


def test_groups_of_sentences_keep_their_spacing():
    text = " One.  Two. Three.\nFour. Five."
    assert list(divide(text, 2, 100)) == [
        Segment("One.  Two.", " "),
        Segment("Three.", "\n"),
        Segment("Four. Five.", ""),
    ]


@pytest.mark.parametrize("part", [".", " ", ". ", "\n ", '"', ".'", "😀 ", "(", "1.", "Dr. ", "a"])
def test_time_grows_with_the_length_and_not_with_its_square(part):
    text = part * (100_000 // len(part)) + "."
    begin = time.process_time()
    split_sentences(text)
    list(iterate_words(text))
    assert time.process_time() - begin < 20  # well under a second; a square would take an hour


def test_words_of_all_scripts():
    text = "Don't l’été हिन्दी cafe\u0301 猫が 'quoted' well-known x1y 12"
    expected = ["Don't", "l’été", "हिन्दी", "café", "猫", "が", "quoted", "well", "known", "x", "y"]
    assert list(iterate_words(text)) == expected
    assert [fold_case(word) for word in ("L’ÉTÉ", "Straße")] == ["l'été", "strasse"]


def test_the_most_frequent_words_are_kept(monkeypatch):
    monkeypatch.setattr(WordCounter, "LIMIT", 3)
    counter = WordCounter()
    counter.add(["The the THE dog", "a dog a", "cat"])
    assert counter.words() == ["the", "dog", "a"]
    for n in range(10):
        counter.add([f"rare{'x' * n} the"])
    assert counter.words()[:2] == ["the", "dog"]


@pytest.mark.slow
def test_a_huge_line_is_divided_and_encoded_in_little_memory():
    """In a process of its own, since the highest memory use of a process never goes down."""
    code = """
import resource
from attendo.text.streams import Streaming, segments
from attendo.text import train_tokenizer
tokenizer = train_tokenizer("bpe", ["The old dog sleeps."] * 9, 300)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
def jobs(text):
    streaming = Streaming(
        (tokenizer, tokenizer), sentences=1, max_length=50, batch_size=64, window=4
    )
    return sum(map(len, segments([(text, "")], streaming)))
jobs("The old dog sleeps. " * 1000)
texts = "The old dog sleeps. " * 100_000, "x" * 2_000_000
before = peak()
print(*[jobs(text) for text in texts], peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    n_sentences, n_parts, kilobytes = map(int, done.stdout.split())
    assert n_sentences == 100_000
    assert n_parts > 2_000_000 // 50 // 50
    assert kilobytes < 80_000  # all tokens at once take several times as much


def test_the_sentences_of_the_builtin_corpus_are_one_each():
    for sentence in islice(sentences(seed=2), 500):
        assert len(split_sentences(sentence.source)) == 1


@pytest.mark.parametrize("is_eager", [False, True])
def test_batches_are_full_and_sorted_within_windows(is_eager):
    tokenizer = train_tokenizer("bpe", ["a b c d"] * 9, 300)
    streaming = Streaming((tokenizer, tokenizer), 1, 100, 30, window=4, is_eager=is_eager)
    texts = [("a b c d " * (1 + number % 7), "") for number in range(1000)]
    batches = list(_sorted_batches(segments(texts, streaming), streaming))
    assert [] in batches  # where more had to be read
    filled = [batch for batch in batches if batch]
    assert sorted(job.number for batch in filled for job in batch) == list(range(1000))
    assert [len(batch) for batch in filled] == [30] * 33 + [10]
    first = [len(job.ids) for batch in filled[: 2 if is_eager else 4] for job in batch]
    assert first == sorted(first, reverse=True)
    # No segment waits for more than a window and what was read with it.
    for number, batch in enumerate(filled):
        assert all(abs(job.number // 30 - number) <= 6 for job in batch)
