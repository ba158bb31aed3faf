"""Tokenizers: every kind keeps the same promises, and published ones keep their ids."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel
from transformers import GPT2Tokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

import attendo.text
from attendo.errors import DataError, TokenizerError
from attendo.specials import NAMES
from attendo.text import TOKENIZERS, Tokenizer, load_tokenizer, train_tokenizer

CORPUS = [
    "Das Haus ist groß, und die Häuser sind größer.",
    "The house is big, and the houses are bigger.",
    '"Hallo," sagte er (leise). Wie geht\'s?',
    "A man is walking; a woman walks too: 3 dogs, 41 cats!",
    "x </s> <s> <pad> <0x41> </s> <s> <pad> <0x41> ## a## ##! </s> <0x41> ##!",
    "我们 喜欢 这个 房子。 我们 喜欢 猫。",
] * 3

ORDINARY = [
    "Das Haus ist groß.",
    '"Hallo," sagte er (leise).',
    "It's 3.14 % of $5 – isn't it?!",
    "我喜欢猫。",
    "Ça va, naïve Zoë ?",
    "مرحبا بالعالم",
]

DIFFICULT = [
    "",
    " \t\n ",
    " leading and  trailing \u00a0",
    "👩‍👩‍👧‍👦 ❤️ 🇩🇪",
    "a ▁ b▁c ▁",
    "<0x41><0x0A> </s> <s> <pad> </s></s>",
    "## a## ##a ##! #!# ###",
    "\x00\x01\x1c\x7f\x85",
    "e\u0301 \u0301 a\u0323\u0307 \u1100\u1161",
    "क्‍ष می‌خواهم",
    "\ufeff\u200b\ufffd\U0010ffff",
    "Rind" * 700,
    "#" * 500 + "!" * 500,
]

anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NORMALISING = [name for name, kind in TOKENIZERS.items() if kind.train is not None]
kinds = pytest.mark.parametrize("kind", NORMALISING)


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(kind, CORPUS, 700) for kind in NORMALISING}


@kinds
@pytest.mark.parametrize("text", ORDINARY + DIFFICULT)
def test_decoding_returns_the_normal_form(
    trained: dict[str, Tokenizer], kind: str, text: str
) -> None:
    tokenizer = trained[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normal_form(text)


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(text=anything | st.text(" ▁<>/#s0x41A\u0301'\n", max_size=30))
def test_any_text_survives_encoding(trained: dict[str, Tokenizer], text: str) -> None:
    for tokenizer in trained.values():
        normal = tokenizer.normal_form(text)
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == normal == tokenizer.normal_form(normal)
        assert not set(ids) & set(tokenizer.specials)
        assert tokenizer.encode(normal) == ids


@kinds
@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_sentences_are_in_normal_form(
    trained: dict[str, Tokenizer], kind: str, text: str
) -> None:
    assert trained[kind].normal_form(text) == text


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_ids_decode_and_have_pieces(trained: dict[str, Tokenizer], data: st.DataObject) -> None:
    for tokenizer in trained.values():
        ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
        assert isinstance(tokenizer.decode(ids), str)
        tokens = tokenizer.tokens(ids)
        assert len(tokens) == len(ids)
        assert all(tokens)


@kinds
def test_special_tokens_take_the_last_ids_and_are_not_text(
    trained: dict[str, Tokenizer], kind: str
) -> None:
    tokenizer = trained[kind]
    assert tokenizer.specials == tuple(range(tokenizer.size - len(NAMES), tokenizer.size))
    assert tokenizer.tokens(tokenizer.specials) == list(NAMES)
    ids = tokenizer.encode("Das Haus")
    assert tokenizer.decode([tokenizer.specials.bos, *ids, tokenizer.specials.eos]) == "Das Haus"


@kinds
def test_a_tokenizer_is_the_same_after_saving(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    again = Tokenizer.from_json(tokenizer.to_json())
    assert again.to_json() == tokenizer.to_json()
    assert (again.size, again.specials) == (tokenizer.size, tokenizer.specials)
    assert again.encode_batch(ORDINARY + DIFFICULT) == tokenizer.encode_batch(ORDINARY + DIFFICULT)


@kinds
def test_the_json_is_a_plain_file_of_the_library(
    trained: dict[str, Tokenizer], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(trained[kind].to_json(), encoding="utf-8")
    plain = tokenizers.Tokenizer.from_file(str(path))
    assert [plain.encode(text).ids for text in ORDINARY] == trained[kind].encode_batch(ORDINARY)
    assert plain.decode(plain.encode(ORDINARY[1]).ids) == ORDINARY[1]


@kinds
def test_a_batch_equals_its_texts_one_by_one(trained: dict[str, Tokenizer], kind: str) -> None:
    texts = ORDINARY + DIFFICULT
    assert trained[kind].encode_batch(texts) == [trained[kind].encode(text) for text in texts]


@kinds
def test_words_joined_are_the_text(trained: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = trained[kind]
    for text, words in zip(DIFFICULT, tokenizer.encode_words(DIFFICULT), strict=True):
        assert [token_id for word in words for token_id in word] == tokenizer.encode(text)


@kinds
def test_pieces_show_where_words_begin(trained: dict[str, Tokenizer], kind: str) -> None:
    tokens = trained[kind].tokens(trained[kind].encode("Das Haus, das Haus"))
    assert sum(token.startswith("▁") for token in tokens) == 4
    assert "".join(token.removeprefix("##") for token in tokens) == "▁Das▁Haus,▁das▁Haus"


def test_bytes_that_are_no_character_are_shown_by_name(trained: dict[str, Tokenizer]) -> None:
    for tokenizer in trained.values():
        tokens = tokenizer.tokens(tokenizer.encode("€"))
        assert "".join(token.removeprefix("##") for token in tokens) == "▁<0xE2><0x82><0xAC>"


def test_words_are_whole_where_they_are_known(trained: dict[str, Tokenizer]) -> None:
    tokenizer = trained["word"]
    tokens = tokenizer.tokens(tokenizer.encode('"Hallo," sagte er (leise).'))
    assert tokens == ['▁"', "Hallo", ',"', "▁sagte", "▁er", "▁(", "leise", ")."]


@kinds
@pytest.mark.parametrize("vocabulary", [515, 521, 601])
def test_the_vocabulary_is_never_larger_than_asked(kind: str, vocabulary: int) -> None:
    many_characters = [
        "".join(map(chr, range(0x4E00 + n, 0x4E00 + 97 * n, n))) for n in range(1, 9)
    ]
    for corpus in (CORPUS, many_characters * 2):
        tokenizer = train_tokenizer(kind, corpus, vocabulary)
        assert len(json.loads(tokenizer.to_json())["model"]["vocab"]) + 3 == tokenizer.size
        assert tokenizer.size <= vocabulary


def test_characters_do_not_take_the_room_of_merges() -> None:
    # 4000 different characters that come as words of two, each word often.
    words = [chr(0x4E00 + n) + chr(0x5E00 + n) for n in range(2000)]
    tokenizer = train_tokenizer("bpe", words * 2, 700)
    assert len(tokenizer.merges()) >= 200


@kinds
def test_training_is_repeatable(kind: str) -> None:
    first, second = (train_tokenizer(kind, iter(CORPUS), 601).to_json() for _ in range(2))
    assert first == second


@kinds
def test_training_reads_an_iterator_once(kind: str) -> None:
    def texts() -> Iterator[str]:
        yield from ["", "  "]
        yield from CORPUS

    assert train_tokenizer(kind, texts(), 601).to_json() == (
        train_tokenizer(kind, CORPUS, 601).to_json()
    )


@kinds
def test_an_error_while_reading_texts_comes_through(kind: str) -> None:
    def texts() -> Iterator[str]:
        yield from CORPUS
        raise DataError("line 19 is not UTF-8")

    with pytest.raises(DataError, match="line 19"):
        train_tokenizer(kind, texts(), 601)


@kinds
@pytest.mark.parametrize("corpus", [["a"], ["ab ab"], ["▁a"], ["\x00"], ["🙂" * 40], ["a " * 999]])
def test_tiny_corpora_are_enough(kind: str, corpus: list[str]) -> None:
    tokenizer = train_tokenizer(kind, corpus, 600)
    assert tokenizer.decode(tokenizer.encode("Other text.")) == "Other text."


@kinds
@pytest.mark.parametrize("texts", [[], ["", " \n▁"]])
def test_training_without_text_is_an_error(kind: str, texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match="there is no text"):
        train_tokenizer(kind, texts, 601)


@kinds
def test_too_small_a_vocabulary_is_an_error_that_names_the_least(kind: str) -> None:
    least = TOKENIZERS[kind].least + len(NAMES)
    with pytest.raises(TokenizerError, match=f"too small.* at least {least}"):
        train_tokenizer(kind, CORPUS, least - 1)
    assert train_tokenizer(kind, CORPUS, least).size == least


def test_an_unknown_kind_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(TokenizerError, match="'wordpeace' is not known; did you mean 'wordpiece'"):
        train_tokenizer("wordpeace", CORPUS, 601)


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    for kind in NORMALISING:
        train_tokenizer(kind, CORPUS, 601)
    assert capfd.readouterr() == ("", "")


def test_text_needs_no_torch() -> None:
    program = "import sys, attendo.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_public_names_are_there() -> None:
    assert all(hasattr(attendo.text, name) for name in attendo.text.__all__)


# Published tokenizers.

BERT = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij.,!", "haus", "##a"]
BERT += ["##es", "he", "##i", "##b", "##h", "中"]


@pytest.mark.parametrize("extra", [[], ["H", "Haus"]], ids=["uncased", "cased"])
def test_bert_ids_equal_those_of_transformers(tmp_path: Path, extra: list[str]) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(BERT + extra) + "\n", encoding="utf-8")
    tokenizer = load_tokenizer(path)
    oracle = BertTokenizerLegacy(str(path), do_lower_case=not extra)
    for text in ["Haus hauses, heib!", "a b  c中", "Häuses zz a", "habi\tj.", "", "h" * 101]:
        assert tokenizer.encode(text) == oracle.encode(text, add_special_tokens=False)
    assert tokenizer.specials == (0, 3, 4)
    assert tokenizer.size == len(BERT + extra)
    assert tokenizer.decode(tokenizer.encode("hauses a")) == "hauses a"
    assert not set(tokenizer.encode("[SEP] [CLS]")) & set(tokenizer.specials)


@pytest.fixture
def gpt2_folder(tmp_path: Path) -> Path:
    merges = ["h a", "u s", "Ġ ha", "Ġha us", "ha us", "e s", "Ã ¤"]
    tokens = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges)]
    vocabulary = {token: number for number, token in enumerate([*tokens, "<|endoftext|>"])}
    (tmp_path / "encoder.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "vocab.bpe").write_text("\n".join(["#version: 0.2", *merges, ""]), encoding="utf-8")
    return tmp_path


def test_gpt2_ids_equal_those_of_transformers(gpt2_folder: Path) -> None:
    tokenizer = load_tokenizer(gpt2_folder)
    oracle = GPT2Tokenizer(str(gpt2_folder / "encoder.json"), str(gpt2_folder / "vocab.bpe"))
    for text in ["haus hauses", " Häuses\n\nhaus's", "", "日本 🙂 \x00", *ORDINARY]:
        assert tokenizer.encode(text) == oracle(text)["input_ids"]
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gpt2_keeps_its_end_and_gets_the_missing_specials(gpt2_folder: Path) -> None:
    tokenizer = load_tokenizer(gpt2_folder)
    assert tokenizer.specials == (264, 265, 263)
    assert tokenizer.size == 266
    assert tokenizer.tokens(tokenizer.encode("haus haus ä")[:3]) == ["haus", "▁haus", "▁"]
    assert 263 not in tokenizer.encode("<|endoftext|>")


def test_a_published_file_keeps_its_ids(trained: dict[str, Tokenizer], tmp_path: Path) -> None:
    foreign = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, "[UNK]"))
    foreign.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    foreign.add_special_tokens(["[BOS]", "[EOS]"])
    foreign.enable_truncation(2)
    foreign.enable_padding()
    foreign.save(str(tmp_path / "tokenizer.json"))
    for path in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path)):
        tokenizer = load_tokenizer(path)
        assert tokenizer.specials == (4, 2, 3)
        assert tokenizer.encode_batch(["a a a b", "a"]) == [[0, 0, 0, 1], [0]]
        assert tokenizer.normal_form(" a ") == " a "


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "does not exist; expected a tokenizer.json, BERT's"),
        ("tokenizer.json", b"{", r"tokenizer '.*tokenizer.json': not JSON"),
        ("tokenizer.json", b'{"a": 1}', "JSON, but not of a tokenizer"),
        ("tokenizer.json", b"[]", "JSON, but not of a tokenizer"),
        ("vocab.txt", b"", r"vocab.txt': no line is \[UNK\]"),
        ("vocab.txt", b"[UNK]\na\na\n", "two lines are 'a'"),
        ("vocab.txt", b"\xff", "not UTF-8"),
        ("model.bin", b"", "model.bin': expected a tokenizer.json"),
        ("spm.model", b"", "expected SentencePiece's .model file"),
        ("spm.model", b"\x0a\xff", "spm.model' cannot be read"),
        ("encoder.json", b"{}", None),
    ],
)
def test_what_is_no_tokenizer_is_refused(
    tmp_path: Path, name: str, content: bytes | None, message: str | None
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    path = tmp_path / name if message else tmp_path
    with pytest.raises(TokenizerError, match=message or "has no vocab.bpe; expected"):
        load_tokenizer(path)


def test_gpt2_files_that_do_not_fit_are_refused(gpt2_folder: Path) -> None:
    (gpt2_folder / "encoder.json").write_text('{"a": 0}', encoding="utf-8")
    with pytest.raises(TokenizerError, match="are not GPT-2's vocabulary and merges"):
        load_tokenizer(gpt2_folder)
    (gpt2_folder / "encoder.json").unlink()
    (gpt2_folder / "vocab.bpe").unlink()
    with pytest.raises(TokenizerError, match=r"has no encoder.json and no vocab.bpe"):
        load_tokenizer(gpt2_folder)


def test_ids_with_gaps_are_refused() -> None:
    model = tokenizers.models.WordLevel({"a": 0, "b": 2}, unk_token="a")
    with pytest.raises(TokenizerError, match="leaves out ids below"):
        Tokenizer(tokenizers.Tokenizer(model))


# -- files from strangers ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "(a|a)*$", "(?:a|aa)+b", "((a)*)*", r"(\w+\s?)+", "(a{2,})+", "([ab]+)*"),
        "(?:x(a+)y)*",
    ],
)
def test_expressions_that_can_take_exponential_time_are_refused(
    trained: dict[str, Tokenizer], pattern: str
) -> None:
    with pytest.raises(TokenizerError, match="exponential time"):
        Tokenizer.from_json(with_expression(trained["bpe"], pattern))


def with_expression(tokenizer: Tokenizer, pattern: str) -> str:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
    values = json.loads(tokenizer.to_json())
    return json.dumps({**values, "pre_tokenizer": {**split, "invert": False}})


@pytest.mark.parametrize(
    "pattern",
    [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*",
        r"\s*[\r\n]|\s+(?!\S)|\s+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}]*[\p{Ll}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}",
        r" ?[^(\s|[.,!?…。，、।۔،])]+",
        r"\(a+\)+",
    ],
)
def test_expressions_of_published_tokenizers_are_accepted(
    trained: dict[str, Tokenizer], pattern: str
) -> None:
    tokenizer = Tokenizer.from_json(with_expression(trained["bpe"], pattern))
    assert tokenizer.encode("a text, with 3 words")


def test_a_panic_of_the_library_is_an_error_like_any_other(trained: dict[str, Tokenizer]) -> None:
    """Here the library gives up only when it meets a text that is hard to match."""
    text = with_expression(trained["bpe"], r"\w*\w*\w*\w*\w*\w*$")
    tokenizer = Tokenizer.from_json(text)
    assert tokenizer.encode("easy")
    for process in (tokenizer.encode, lambda hard: tokenizer.encode_batch([hard])):
        with pytest.raises(TokenizerError, match="cannot process this text"):
            process("a" * 300 + ".")


def test_the_fingerprint_depends_on_the_order_of_the_vocabulary(
    trained: dict[str, Tokenizer],
) -> None:
    values = json.loads(trained["bpe"].to_json())
    vocabulary = values["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    values["model"]["vocab"] = {
        **vocabulary, first: vocabulary[second], second: vocabulary[first]
    }  # fmt: skip
    other = Tokenizer.from_json(json.dumps(values))
    assert other.size == trained["bpe"].size
    assert other.fingerprint() != trained["bpe"].fingerprint()
    assert Tokenizer.from_json(trained["bpe"].to_json()).fingerprint() == (
        trained["bpe"].fingerprint()
    )
