"""Tokenizers learned from text, one function per kind.

Nothing is ever unknown: what a vocabulary lacks is spelled in bytes. All kinds share one normal
form, kept in the tokenizer.json: Unicode NFC, each run of white space (and of the word mark '▁')
one space, none at the ends. Text is cut between '<' and a letter or digit, so that no token learned
from it can be called '</s>' or '<0x41>'.

Lossless tokenizers have no normal form: every text is decoded to exactly itself.
"""

import json
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from attendo.errors import TokenizerError, did_you_mean
from attendo.specials import NAMES
from attendo.text.tokenizer import CONTINUES, MARK, Tokenizer, byte_alphabet, byte_name

_BYTE_NAMES = [byte_name(byte) for byte in range(256)]
_BYTE_CHARACTERS = list(byte_alphabet())

_COVERAGE = 0.9999
"""Share of a text's characters that get a token of their own; the rarest are spelled in bytes."""

_LEAST_COUNT = 2
"""Fewest occurrences of a token."""

_LONGEST_WORDPIECE = 100
"""Most bytes of a WordPiece word, since it takes cubic time; longer words are split."""

_WORD = r"▁?\p{L}[\p{L}\p{M}\x{200C}\x{200D}]*|▁?\p{N}+|▁?[^\p{L}\p{N}▁]+"
"""Letters (with their marks and joiners), digits or anything else, and the space before."""


_EXACT_WORD = r" ?\n|<(?=0x[0-9A-F]{2}>|/?s>|pad>)| ?[^\s]+|\s"
"""What white space separates, with the space before it; a line end is a word of its own.

What looks like the name of a byte or of a special token is cut behind its '<'.
"""


_CODE_WORD = (
    r"(?<=\n)[ \t]+"
    r"|[ .]?[\p{L}_][\p{L}\p{M}\p{N}_]*| ?\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}_]+(?:\r?\n)*|(?:\r?\n)+|[ \t]+|\s"
)
"""The indentation of a line; a name, with the space or dot before it; three digits; other signs,
with the line end behind them; other white space.

A line begins with the same word however deep it is, and a prompt can end behind any line end.
"""


Train = Callable[[Iterator[str], int], tokenizers.Tokenizer]
"""Learns at most so many tokens from texts, special tokens not counted."""


class Kind(NamedTuple):
    """A way to learn a vocabulary."""

    train: Train | None
    """None: the kind is always lossless."""
    least: int
    """The tokens it cannot do without: every byte, and what marks a word."""
    train_lossless: Train | None = None
    """The same without a normal form, where the kind allows that."""


def train_tokenizer(
    kind: str, texts: Iterable[str], vocabulary: int, *, lossless: bool = False
) -> Tokenizer:
    """Learn a tokenizer of at most `vocabulary` tokens; the same texts give the same tokenizer.

    Args:
        kind: bpe, byte-bpe, code-bpe, wordpiece, unigram, word or char.
        texts: The texts to learn from; read once, blank ones are skipped.
        vocabulary: The largest number of tokens, with bytes and special tokens.
        lossless: Keep all white space and line ends (byte-bpe, code-bpe, word and char).

    Raises:
        TokenizerError: No such kind, too small a vocabulary, or no text.

    >>> tokenizer = attendo.train_tokenizer("bpe", ["low lower lowest"] * 10, vocabulary=300)
    >>> tokenizer.tokens(tokenizer.encode("lower"))
    ['▁lower']
    """
    check_vocabulary(kind, vocabulary, lossless=lossless)
    train = TOKENIZERS[kind].train_lossless if lossless else TOKENIZERS[kind].train
    assert train is not None, "checked before"
    backend = train(_not_blank(texts), vocabulary - len(NAMES))
    tokenizer = Tokenizer(backend)
    assert tokenizer.size <= vocabulary, "a kind learned more tokens than it may"
    return tokenizer


def check_vocabulary(kind: str, vocabulary: int, *, lossless: bool = False) -> None:
    """Raise an error for an unknown kind, or for too few tokens for the kind."""
    if kind not in TOKENIZERS:
        raise TokenizerError(
            f"tokenizer kind {kind!r} is not known; {did_you_mean(kind, TOKENIZERS)}"
        )
    if lossless and TOKENIZERS[kind].train_lossless is None:
        fitting = [name for name, one in TOKENIZERS.items() if one.train_lossless is not None]
        raise TokenizerError(
            f"a tokenizer of kind {kind!r} cannot be lossless; use {' or '.join(fitting)}, "
            "or set tokenizer.lossless = false"
        )
    if not lossless and TOKENIZERS[kind].train is None:
        raise TokenizerError(
            f"a tokenizer of kind {kind!r} keeps all white space: set tokenizer.lossless = true"
        )
    least = TOKENIZERS[kind].least + len(NAMES)
    if vocabulary < least:
        raise TokenizerError(
            f"a vocabulary of {vocabulary} is too small for kind {kind!r}: give at least {least}, "
            "for all bytes and the special tokens"
        )


def _train_bpe(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train BPE over characters: Sennrich et al., 2016."""
    room -= len(_BYTE_NAMES)
    # The alphabet has to be known before the merges are learned, and texts can be read only once.
    with tempfile.TemporaryFile("w+", encoding="utf-8", newline="\n") as copy:
        counts: Counter[str] = Counter()
        for text in _counting(texts, counts):
            copy.write(text.replace("\n", " ") + "\n")
        copy.seek(0)
        # Half of the room at most: Chinese would otherwise fill it with characters alone.
        alphabet = _alphabet(counts, max(1, room // 2))
        trainer = trainers.BpeTrainer(
            vocab_size=room,
            min_frequency=_LEAST_COUNT,
            initial_alphabet=alphabet,
            limit_alphabet=len(alphabet),
            show_progress=False,
        )
        learned = _marked(models.BPE())
        learned.train_from_iterator(copy, trainer)
    merges = json.loads(learned.to_str())["model"]["merges"]
    return _marked(_with_bytes(_by_id(learned), merges=[(left, right) for left, right in merges]))


def _train_char(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train a vocabulary of characters."""
    counts: Counter[str] = Counter()
    for _ in _counting(texts, counts):
        pass
    return _marked(_with_bytes(_alphabet(counts, room - len(_BYTE_NAMES))))


def _train_word(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train a vocabulary of words; rare words are spelled."""
    room -= len(_BYTE_NAMES)
    counts: Counter[str] = Counter()
    trainer = trainers.WordLevelTrainer(
        vocab_size=room, min_frequency=_LEAST_COUNT, show_progress=False
    )
    learned = _marked(models.WordLevel())
    learned.train_from_iterator(_counting(texts, counts), trainer)
    alphabet = _alphabet(counts, max(1, room // 2))
    tokens = list(dict.fromkeys(alphabet + _by_id(learned)))[:room]
    # A model of BPE without merges: a word is looked up whole, or else spelled.
    return _marked(_with_bytes(tokens, whole_words=True))


def _train_char_lossless(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train a vocabulary of characters, white space among them."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    alphabet = _most_frequent(counts, room - len(_BYTE_NAMES))
    return _exact(_with_bytes(alphabet), Regex(r"[\s\S]"))


def _train_word_lossless(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train a vocabulary of words as white space separates them; rare words are spelled."""
    room -= len(_BYTE_NAMES)
    counts: Counter[str] = Counter()

    def counted() -> Iterator[str]:
        for text in texts:
            counts.update(text)
            yield text

    # Rare words, too: text prepared for word models has a closed vocabulary.
    trainer = trainers.WordLevelTrainer(vocab_size=room, min_frequency=1, show_progress=False)
    learned = _exact(models.WordLevel(), Regex(_EXACT_WORD))
    learned.train_from_iterator(counted(), trainer)
    alphabet = _most_frequent(counts, max(1, room // 2))
    tokens = list(dict.fromkeys(alphabet + _by_id(learned)))[:room]
    return _exact(_with_bytes(tokens, whole_words=True), Regex(_EXACT_WORD))


def _train_byte_bpe(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train BPE over bytes: Radford et al., 2019."""
    return _learn_byte_bpe(_byte_level(models.BPE()), texts, room)


def _train_byte_bpe_lossless(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train BPE over bytes as GPT-2 has it, with all white space."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _learn_byte_bpe(tokenizer, texts, room)


def _train_code_bpe(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train BPE over bytes, with all white space, split as suits programs."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_CODE_WORD), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _learn_byte_bpe(tokenizer, texts, room)


def _learn_byte_bpe(
    tokenizer: tokenizers.Tokenizer, texts: Iterator[str], room: int
) -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=room,
        min_frequency=_LEAST_COUNT,
        initial_alphabet=_BYTE_CHARACTERS,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _train_wordpiece(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train WordPiece over bytes: the longest known token first, as in BERT."""
    # Named as special tokens, the continuing bytes have ids before training: the trainer would
    # number them in an order that changes from run to run.
    continuing = [CONTINUES + character for character in _BYTE_CHARACTERS]
    trainer = trainers.WordPieceTrainer(
        vocab_size=room,
        min_frequency=_LEAST_COUNT,
        initial_alphabet=_BYTE_CHARACTERS,
        special_tokens=continuing,
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    learned = _wordpiece(models.WordPiece())
    learned.train_from_iterator(texts, trainer)
    vocabulary = _numbered(_by_id(learned))
    return _wordpiece(models.WordPiece(vocabulary, max_input_chars_per_word=_LONGEST_WORDPIECE))


def _train_unigram(texts: Iterator[str], room: int) -> tokenizers.Tokenizer:
    """Train a unigram language model over bytes: Kudo, 2018."""
    trainer = trainers.UnigramTrainer(
        vocab_size=room, initial_alphabet=_BYTE_CHARACTERS, show_progress=False
    )
    learned = _byte_level(models.Unigram())
    learned.train_from_iterator(texts, trainer)
    scores = dict(json.loads(learned.to_str())["model"]["vocab"])
    return _byte_level(models.Unigram(_steady(scores, room)))


def _steady(scores: dict[str, float], room: int) -> list[tuple[str, float]]:
    """Round and sort the scores of the trainer, which vary from run to run.

    The trainer sums in no fixed order, and gives bytes that it did not need the least score plus
    a ten-thousandth for each, in no fixed order either.
    """
    scores = {token: round(score, 6) for token, score in scores.items()}
    least = min(scores.values())
    unneeded = least + 1e-4 * (len(_BYTE_CHARACTERS) + 1)
    bytes_ = [
        (character, score if (score := scores.pop(character)) > unneeded else least)
        for character in _BYTE_CHARACTERS
    ]
    tokens = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
    return [*bytes_, *tokens][:room]


def _not_blank(texts: Iterable[str]) -> Iterator[str]:
    """Yield the texts that are not blank, and raise an error if there are none."""
    kept = (text for text in texts if text.replace(MARK, " ").strip())
    first = next(kept, None)
    if first is None:
        raise TokenizerError(
            "there is no text to learn a tokenizer from: every line is blank, or there is none; "
            "check the data files"
        )
    return chain([first], kept)


def _counting(texts: Iterator[str], counts: Counter[str]) -> Iterator[str]:
    """Yield texts, counting their characters."""
    for text in texts:
        counts.update("".join(unicodedata.normalize("NFC", text).split()))
        yield text


def _alphabet(counts: Counter[str], limit: int) -> list[str]:
    """Choose the word mark and the most frequent characters, as many as cover the text."""
    del counts[MARK]
    return [MARK, *_most_frequent(counts, limit - 1)]


def _most_frequent(counts: Counter[str], limit: int) -> list[str]:
    """Choose the most frequent characters, as many as cover the text."""
    missing = (1 - _COVERAGE) * counts.total()
    remaining = counts.total()
    chosen: list[str] = []
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if remaining <= missing or len(chosen) == limit:
            break
        chosen.append(character)
        remaining -= count
    return chosen


def _by_id(learned: tokenizers.Tokenizer) -> list[str]:
    vocabulary = learned.get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _numbered(tokens: list[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _with_bytes(
    tokens: list[str], merges: list[tuple[str, str]] | None = None, *, whole_words: bool = False
) -> models.BPE:
    return models.BPE(
        _numbered(_BYTE_NAMES + tokens),
        merges or [],
        byte_fallback=True,
        ignore_merges=whole_words,
    )


def _normalizer() -> normalizers.Normalizer:
    return normalizers.Sequence(
        [
            normalizers.NFC(),
            normalizers.Replace(Regex(r"[\s▁]+"), " "),
            normalizers.Strip(),
        ]
    )


def _marked(model: models.Model) -> tokenizers.Tokenizer:
    """Build a tokenizer that splits into words of characters that begin with '▁'."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = _normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Metaspace(MARK, prepend_scheme="always", split=False),
            pre_tokenizers.Split(Regex(_WORD), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


def _exact(model: models.Model, word: Regex) -> tokenizers.Tokenizer:
    """Build a tokenizer that splits into words of characters and keeps all of them."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(word, "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _byte_level(model: models.Model) -> tokenizers.Tokenizer:
    """Build a tokenizer that splits into words of bytes that begin with a space."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = _normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _wordpiece(model: models.WordPiece) -> tokenizers.Tokenizer:
    tokenizer = _byte_level(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            tokenizer.pre_tokenizer,
            # A '#' stands alone, or "##!" in a text would read as a '!' that continues a word.
            pre_tokenizers.Split(Regex(f"#|[^#]{{1,{_LONGEST_WORDPIECE}}}"), "isolated"),
        ]
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(Regex(f"^{CONTINUES}"), ""), tokenizer.decoder]
    )
    return tokenizer


TOKENIZERS: dict[str, Kind] = {
    "bpe": Kind(_train_bpe, least=256 + 1),
    "byte-bpe": Kind(_train_byte_bpe, least=256, train_lossless=_train_byte_bpe_lossless),
    "code-bpe": Kind(None, least=256, train_lossless=_train_code_bpe),
    "wordpiece": Kind(_train_wordpiece, least=2 * 256),
    "unigram": Kind(_train_unigram, least=256),
    "word": Kind(_train_word, least=256 + 1, train_lossless=_train_word_lossless),
    "char": Kind(_train_char, least=256 + 1, train_lossless=_train_char_lossless),
}
