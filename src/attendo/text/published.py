"""Tokenizers that others have published, read from the files they come in."""

from pathlib import Path

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from attendo.errors import TokenizerError
from attendo.files import read_text
from attendo.text.limits import MOST_BYTES
from attendo.text.tokenizer import CONTINUES, Tokenizer

_EXPECTED = (
    "a tokenizer.json, BERT's vocab.txt, or a folder with GPT-2's encoder.json and vocab.bpe"
)
_UNKNOWN = "[UNK]"


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Read a tokenizer.json, BERT's vocab.txt, or a folder with GPT-2's encoder.json and vocab.bpe.

    Special tokens that it lacks are appended; all other ids are unchanged.

    Raises:
        TokenizerError: The files are missing or hold something else.

    >>> tokenizer = attendo.load_tokenizer("runs/demo/tokenizer.json")
    >>> tokenizer.tokens([tokenizer.specials.eos])
    ['</s>']
    """
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    if path.suffix not in (".json", ".txt"):
        raise TokenizerError(f"tokenizer {str(path)!r}: expected {_EXPECTED}")
    text = _read(path)
    try:
        return Tokenizer.from_json(text) if path.suffix == ".json" else _from_bert(text)
    except TokenizerError as error:
        raise TokenizerError(f"tokenizer {str(path)!r}: {error}") from None


def _load_folder(folder: Path) -> Tokenizer:
    if (folder / "tokenizer.json").is_file():
        return load_tokenizer(folder / "tokenizer.json")
    files = [folder / "encoder.json", folder / "vocab.bpe"]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise TokenizerError(
            f"tokenizer folder {str(folder)!r} has no {' and no '.join(missing)}; "
            f"expected {_EXPECTED}"
        )
    try:
        model = models.BPE.from_file(*map(str, files))
    except Exception as error:  # the library raises nothing more precise
        raise TokenizerError(
            f"tokenizer folder {str(folder)!r}: encoder.json and vocab.bpe are not GPT-2's "
            f"vocabulary and merges ({error})"
        ) from None
    return _from_gpt2(model)


def _from_gpt2(model: models.BPE) -> Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def _from_bert(text: str) -> Tokenizer:
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
    backend.normalizer = normalizers.BertNormalizer(lowercase=not _is_cased(tokens))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix=CONTINUES)
    backend.add_special_tokens([_UNKNOWN])
    return Tokenizer(backend)


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
