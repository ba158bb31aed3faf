"""A tokenizer: text to ids and back.

The work is done by Hugging Face `tokenizers`, and `tokenizer.json` is its plain standard file. What
this class adds is one guarantee for every kind: three special tokens with known ids, which text can
never produce and which are never part of decoded text.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import tokenizers
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import TemplateProcessing

from attendo.errors import TokenizerError
from attendo.specials import NAMES, Specials
from attendo.text.limits import MOST_TOKENS, check_content

MARK = "▁"
"""Starts a word: what the space before it becomes."""

CONTINUES = "##"
"""Starts a WordPiece token that continues a word."""

_KNOWN = (
    ("<pad>", "[PAD]", "<|pad|>"),
    ("<s>", "[CLS]", "[BOS]", "<|startoftext|>"),
    ("</s>", "[SEP]", "[EOS]", "<|endoftext|>"),
)
"""What published tokenizers call the special tokens, in the order of `specials.NAMES`."""

_MASKS = ("<mask>", "[MASK]", "<|mask|>")
"""What tokenizers call the mask token, where they have one; the first is ours."""


class Merge(NamedTuple):
    """One learned step of BPE: two neighbours that become one token."""

    left: int
    right: int
    product: int


class Tokenizer:
    """Encodes text as ids and decodes ids to text.

    Attributes:
        specials: The ids of padding, beginning and end of sentence.
        size: One more than the highest id.
        mask: The id of the mask token, which stands for a token to guess; None without one.

    For the kinds trained here `decode(encode(text)) == normal_form(text)` for any text. A published
    tokenizer is used as it is: it may drop what its vocabulary lacks, and its spacing is its own.

    >>> tokenizer = attendo.load_tokenizer("runs/demo/tokenizer.json")
    >>> tokenizer.decode(tokenizer.encode("The dog sleeps."))
    'The dog sleeps.'
    """

    def __init__(self, backend: tokenizers.Tokenizer, ends: tuple[str, str] | None = None) -> None:
        """Prepare a backend.

        Args:
            backend: A tokenizer of the library, which is changed.
            ends: The tokens that begin and end a sequence. Without them, those of its template, or
                the usual names; what a vocabulary lacks is added to it.
        """
        if ends is not None:
            backend.post_processor = _template(backend, *ends)
        # The ids of a text depend on the text alone, whatever else a published file contains.
        backend.no_padding()
        backend.no_truncation()
        if isinstance(backend.model, tokenizers.models.BPE):
            backend.model.dropout = None
        # The characters "</s>" in a text are characters.
        backend.encode_special_tokens = True
        names = _special_names(backend)
        # Known tokens keep their ids; new ones come after the vocabulary of the text model.
        backend.add_special_tokens(names)
        vocabulary = backend.get_vocab()
        ids = vocabulary.values()
        if max(ids) >= MOST_TOKENS:
            raise TokenizerError(f"the id {max(ids):,} is too high; at most {MOST_TOKENS:,} tokens")
        if len(set(ids)) < len(ids):
            raise TokenizerError(
                f"the vocabulary leaves out ids below {max(ids)}, so that new tokens such as "
                f"{names} would share ids with old ones; number its tokens 0, 1, 2, ..."
            )
        self.specials = Specials(*(vocabulary[name] for name in names))
        self.size: int = max(ids) + 1
        self.mask_name = next((name for name in _MASKS if name in vocabulary), _MASKS[0])
        self.mask: int | None = vocabulary.get(self.mask_name)
        self._backend = backend
        self._byte_level = "ByteLevel" in repr(backend.decoder)

    def encode(self, text: str) -> list[int]:
        """Encode a text as ids, without special tokens."""
        with _library_errors():
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def with_mask(self) -> "Tokenizer":
        """Return a tokenizer that has a mask token; all other ids are the same."""
        if self.mask is not None:
            return self
        backend = tokenizers.Tokenizer.from_str(self.to_json())
        backend.add_special_tokens([_MASKS[0]])
        return Tokenizer(backend)

    def encode_masked(self, text: str) -> list[int]:
        """Encode a text in which the name of the mask token stands for the tokens to guess."""
        assert self.mask is not None, "the tokenizer has no mask token"
        first, *rest = text.split(self.mask_name)
        ids = self.encode(first.rstrip() if rest else first)
        for number, part in enumerate(rest, start=1):
            last = number == len(rest)
            ids += [self.mask, *self._encode_continued(part if last else part.rstrip())]
        return ids

    def _encode_continued(self, text: str) -> list[int]:
        """Encode a text that continues another one: without a space, it begins no word."""
        if not text or text[0].isspace():
            return self.encode(text)
        before, ids = self.encode("0"), self.encode("0" + text)
        return ids[len(before) :] if ids[: len(before)] == before else self.encode(text)

    def continuing(self) -> list[bool]:
        """Return for each id whether its token continues the word of the token before it.

        A token begins a word if a space or punctuation does, or, in a WordPiece vocabulary, if it
        is not marked as continuing.
        """
        tokens = self.tokens(range(self.size))
        if any(token.startswith(CONTINUES) for token in tokens):
            return [token.startswith(CONTINUES) for token in tokens]
        return [_is_part_of_word(token) for token in tokens]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode many texts as ids, on all cores."""
        with _library_errors():
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_words(self, texts: Sequence[str]) -> list[list[tuple[int, ...]]]:
        """Encode texts word by word; no token is part of two words."""
        with _library_errors():
            encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return [_split_words(encoding.ids, encoding.word_ids) for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """Decode ids to text, without special tokens; every sequence of ids gives a text."""
        with _library_errors():
            text: str = self._backend.decode(list(ids), skip_special_tokens=True)
        return text

    def decode_batch(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """Decode several sequences of ids at once, on all cores."""
        with _library_errors():
            texts: list[str] = self._backend.decode_batch(
                [list(one) for one in ids], skip_special_tokens=True
            )
        return texts

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the tokens of ids in readable form, such as '▁Haus'."""
        return [self._token(token_id) for token_id in ids]

    def vocabulary(self, size: int | None = None) -> list[str]:
        """Return the token of each id as it is stored; ids without one get a name of their own.

        Args:
            size: How many, where a model has more embeddings than there are tokens.
        """
        known = {number: token for token, number in self._backend.get_vocab().items()}
        return [known.get(number, f"<unused {number}>") for number in range(size or self.size)]

    def normal_form(self, text: str) -> str:
        """Return the text after the tokenizer's normalizer."""
        normalizer = self._backend.normalizer
        with _library_errors():
            return normalizer.normalize_str(text) if normalizer else text

    def fingerprint(self) -> str:
        """Return a hash of the vocabulary: which token has which id."""
        vocabulary = sorted(self._backend.get_vocab().items(), key=lambda item: item[::-1])
        return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()

    def merges(self) -> list[Merge]:
        """List the merges of a BPE tokenizer, the most important first.

        Raises:
            TokenizerError: The tokenizer has none.
        """
        model = json.loads(self._backend.to_str())["model"]
        if model["type"] != "BPE" or not model["merges"]:
            raise TokenizerError(
                "this tokenizer has no BPE merges; they are learned by the kinds 'bpe' and "
                "'byte-bpe' and found in a published BPE tokenizer.json or GPT-2's files"
            )
        vocabulary, prefix = model["vocab"], model["continuing_subword_prefix"] or ""
        return [
            Merge(
                vocabulary[left],
                vocabulary[right],
                vocabulary[left + right.removeprefix(prefix)],
            )
            for left, right in model["merges"]
        ]

    def to_json(self) -> str:
        """Write the content of `tokenizer.json`."""
        text: str = self._backend.to_str()
        return text

    @classmethod
    def from_json(cls, text: str) -> "Tokenizer":
        """Read the content of a `tokenizer.json`, ours or a published one.

        Raises:
            TokenizerError: It is something else, or exceeds the bounds of `limits`.
        """
        with _library_errors("JSON, but not of a tokenizer"):
            return cls(read_backend(text))

    def _token(self, token_id: int) -> str:
        token: str = self._backend.id_to_token(token_id) or ""
        if token_id in (*self.specials, self.mask):
            return token
        if not self._byte_level:
            return _visible(token)
        start = CONTINUES if token.startswith(CONTINUES) else ""
        return start + _readable(token.removeprefix(start))


def read_backend(text: str) -> tokenizers.Tokenizer:
    """Read the content of a `tokenizer.json` as it is.

    Raises:
        TokenizerError: It is something else, or exceeds the bounds of `limits`.
    """
    with _library_errors("JSON, but not of a tokenizer"):
        check_content(text)
        return tokenizers.Tokenizer.from_str(text)


def byte_alphabet() -> dict[str, int]:
    """Map each character of GPT-2's byte-level alphabet to the byte it stands for, 0 to 255."""
    alphabet = sorted(ByteLevel.alphabet())
    # Printable Latin-1 stands for itself; what comes behind it, in order, for the other bytes.
    themselves = [ord(character) for character in alphabet if ord(character) < 256]
    others = sorted(set(range(256)) - set(themselves))
    codes = zip(alphabet, themselves + others, strict=True)
    return dict(sorted(codes, key=lambda item: item[1]))


def byte_name(byte: int) -> str:
    """Return the name of a byte in byte fallback: '<0x0A>'."""
    return f"<0x{byte:02X}>"


_BYTES = byte_alphabet()
_BYTE_NAME = re.compile("<0x([0-9A-F]{2})>")


def _readable(token: str) -> str:
    """Return a byte-level token as text, with names for bytes that are no whole characters."""
    if not all(character in _BYTES for character in token):
        return token  # added after training, as text
    content = bytes(_BYTES[character] for character in token)
    # Bytes that are no whole characters are decoded to lone surrogates, which no text has.
    text = _visible(content.decode(errors="surrogateescape"))
    return "".join(
        byte_name(ord(character) - 0xDC00) if "\udc80" <= character <= "\udcff" else character
        for character in text
    )


def _visible(token: str) -> str:
    """Return a token with signs for white space."""
    return token.replace(" ", MARK).replace("\n", "⏎").replace("\t", "⇥")


def _is_part_of_word(token: str) -> bool:
    """Return whether a token begins with a letter or digit, or with a byte of one."""
    if found := _BYTE_NAME.match(token):
        byte = int(found[1], 16)
        return byte >= 0x80 or chr(byte).isalnum()
    return token[:1].isalnum()


def _special_names(backend: tokenizers.Tokenizer) -> list[str]:
    """Find what this vocabulary calls each special token; our name where it has none."""
    pad, bos, eos = [
        next((name for name in known if backend.token_to_id(name) is not None), ours)
        for ours, known in zip(NAMES, _KNOWN, strict=True)
    ]
    if ends := _template_ends(backend):
        # Some models use one token for two purposes; no token is needed for padding alone.
        bos, eos = ends
        pad = pad if backend.token_to_id(pad) is not None else eos
    return [pad, bos, eos]


def _template(backend: tokenizers.Tokenizer, bos: str, eos: str) -> TemplateProcessing:
    """Return the standard way to record which tokens begin and end a sequence."""
    ids = {name: backend.token_to_id(name) for name in (bos, eos)}
    return TemplateProcessing(single=[bos, "$A", eos], special_tokens=list(ids.items()))


def _template_ends(backend: tokenizers.Tokenizer) -> tuple[str, str] | None:
    """Return the tokens with which a template begins and ends a sequence, if it has one of each."""
    if not isinstance(backend.post_processor, TemplateProcessing):
        return None
    single = json.loads(backend.post_processor.__getstate__())["single"]
    match [part.get("SpecialToken", {}).get("id") for part in single]:
        case [str(bos), None, str(eos)]:
            return bos, eos
    return None


def _split_words(ids: list[int], words: list[int | None]) -> list[tuple[int, ...]]:
    starts = [at for at in range(len(ids)) if at == 0 or words[at] != words[at - 1]]
    return [tuple(ids[start:end]) for start, end in pairwise([*starts, len(ids)])]


@contextmanager
def _library_errors(what: str = "the tokenizer cannot process this text") -> Iterator[None]:
    """Convert the errors of the library, and its panics, to a TokenizerError."""
    try:
        yield
    except TokenizerError:
        raise
    except BaseException as error:
        # A panic in Rust has a class of its own that cannot be imported and is not an Exception;
        # the library raises nothing more precise than Exception otherwise.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise TokenizerError(f"{what} ({error}); expected a valid tokenizer.json") from None
        raise
