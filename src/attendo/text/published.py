"""Tokenizers that others have published, read from the files they come in."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from attendo.errors import TokenizerError
from attendo.files import read_text
from attendo.text.limits import MOST_BYTES
from attendo.text.sentencepiece import SUFFIXES, load_sentencepiece
from attendo.text.tokenizer import CONTINUES, Tokenizer, read_backend

_EXPECTED = (
    "a tokenizer.json, BERT's vocab.txt, SentencePiece's .model, or a folder with GPT-2's "
    "vocab.json and merges.txt (or encoder.json and vocab.bpe)"
)
_UNKNOWN = "[UNK]"
_GPT2 = (("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt"))
"""What GPT-2's vocabulary and merges are called by its authors, and by others."""


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer.json, BERT's vocab.txt, SentencePiece's .model, or a folder with GPT-2's.

    Special tokens that it lacks are appended; all other ids are unchanged.

    Raises:
        TokenizerError: The files are missing or hold something else.

    >>> tokenizer = attendo.load_tokenizer("runs/demo/tokenizer.json")
    >>> tokenizer.tokens([tokenizer.specials.eos])
    ['</s>']
    """
    backend = load_backend(Path(path))
    try:
        return Tokenizer(backend)
    except TokenizerError as error:
        raise TokenizerError(f"tokenizer {str(path)!r}: {error}") from None


def load_backend(path: Path, *, lowercase: bool | None = None) -> tokenizers.Tokenizer:
    """Read the same as it is, without more special tokens.

    Args:
        path: A file, or the folder of GPT-2's files.
        lowercase: Whether BERT's vocab.txt is for lower-case text; by default, if it has no
            upper-case letters.
    """
    if path.is_dir():
        return _load_folder(path)
    if path.suffix not in (".json", ".txt", *SUFFIXES):
        raise TokenizerError(f"tokenizer {str(path)!r}: expected {_EXPECTED}")
    if path.suffix in SUFFIXES:
        return load_sentencepiece(path)
    text = _read(path)
    try:
        return read_backend(text) if path.suffix == ".json" else _from_bert(text, lowercase)
    except TokenizerError as error:
        raise TokenizerError(f"tokenizer {str(path)!r}: {error}") from None


def _load_folder(folder: Path) -> tokenizers.Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return load_backend(folder / "tokenizer.json")
    # The first that is whole, or lacks least.
    names = min(_GPT2, key=lambda names: len(_missing(folder, names)))
    if missing := _missing(folder, names):
        raise TokenizerError(
            f"tokenizer folder {str(folder)!r} has no {' and no '.join(missing)}; "
            f"expected {_EXPECTED}"
        )
    return _from_gpt2(folder, *names)


def _missing(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _from_gpt2(folder: Path, vocabulary: str, merges: str) -> tokenizers.Tokenizer:
    try:
        model = models.BPE.from_file(str(folder / vocabulary), str(folder / merges))
    except Exception as error:  # the library raises nothing more precise
        raise TokenizerError(
            f"tokenizer folder {str(folder)!r}: {vocabulary} and {merges} are not GPT-2's "
            f"vocabulary and merges ({error})"
        ) from None
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _from_bert(text: str, lowercase: bool | None) -> tokenizers.Tokenizer:
    """Build BERT's tokenizer from its vocabulary, one token per line; the line number is the id."""
    tokens = text.removesuffix("\n").split("\n")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if _UNKNOWN not in vocabulary:
        raise TokenizerError(
            f"no line is {_UNKNOWN}; expected BERT's vocab.txt: one token per line, that one among "
            "them"
        )
    if len(vocabulary) < len(tokens):
        twice = next(token for number, token in enumerate(tokens) if vocabulary[token] != number)
        raise TokenizerError(f"two lines are {twice!r}; every token may have one id only")
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token=_UNKNOWN))
    is_lower = not _is_cased(tokens) if lowercase is None else lowercase
    backend.normalizer = normalizers.BertNormalizer(lowercase=is_lower)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUES)
    backend.add_special_tokens([_UNKNOWN])
    return backend


def _is_cased(tokens: list[str]) -> bool:
    """Return whether a vocabulary has upper-case letters, names such as [CLS] aside."""
    return any(token != token.lower() for token in tokens if not token.startswith("["))


def _read(path: Path) -> str:
    try:
        return read_text(path, MOST_BYTES)
    except FileNotFoundError:
        raise TokenizerError(
            f"tokenizer {str(path)!r} does not exist; expected {_EXPECTED}"
        ) from None
    except (OSError, ValueError) as error:  # not UTF-8, or too large
        raise TokenizerError(f"tokenizer {str(path)!r} cannot be read: {error}") from None
