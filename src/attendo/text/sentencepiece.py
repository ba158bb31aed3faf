"""SentencePiece's .model files (Kudo and Richardson 2018), as tokenizers of the usual library.

The package `sentencepiece` is needed to read such a file, and not to use what was read.
"""

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from attendo.errors import TokenizerError, install_command
from attendo.specials import NAMES
from attendo.text.limits import MOST_BYTES, MOST_TOKENS
from attendo.text.tokenizer import MARK

SUFFIXES = (".model", ".spm")
PAD = NAMES[0]

IMPOSSIBLE = -1e4
"""Score of each character of a token that text should not become if there is another way."""


class Kind(IntEnum):
    """What a piece is for, as in the files."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(IntEnum):
    """How text is split, as in the files."""

    UNIGRAM = 1
    BPE = 2


def load_sentencepiece(path: Path, ids: Mapping[str, int] | None = None) -> tokenizers.Tokenizer:
    """Read a .model file of the kinds unigram and bpe.

    Args:
        path: The file.
        ids: The id of every token where another file decides it (Marian's vocab.json). Tokens that
            only one of the two has are never, or hardly ever, produced.

    Raises:
        TokenizerError: It is something else.
    """
    model = _read(path)
    if ids is None:
        ids = {piece.piece: number for number, piece in enumerate(model.pieces)}
    if sorted(ids.values()) != list(range(len(ids))) or len(ids) > MOST_TOKENS:
        raise TokenizerError(
            f"tokenizer {str(path)!r}: its ids are not 0, 1, 2, ... up to {MOST_TOKENS:,} at most"
        )
    spec = model.trainer_spec
    if spec.unk_piece not in ids:
        raise TokenizerError(f"tokenizer {str(path)!r}: no token is called {spec.unk_piece!r}")
    builders = {Algorithm.UNIGRAM: _unigram, Algorithm.BPE: _bpe}
    if spec.model_type not in builders:
        raise TokenizerError(f"tokenizer {str(path)!r}: expected the kind unigram or bpe")
    backend = tokenizers.Tokenizer(builders[spec.model_type](model, ids))
    special = _special_tokens(model, ids)
    steps = list(_normalizers(model.normalizer_spec))
    if spec.model_type == Algorithm.UNIGRAM:  # no merge makes a special token
        steps += map(_broken, special)
    backend.normalizer = normalizers.Sequence(steps)
    always = "always" if model.normalizer_spec.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement=MARK, prepend_scheme=always, split=spec.split_by_whitespace
    )
    backend.decoder = _decoder(always, spec.byte_fallback)
    backend.add_special_tokens(special)
    if spec.model_type == Algorithm.BPE:  # what was defined by hand is never split
        own = [token for token in _of_kind(model, Kind.USER_DEFINED) if token in ids]
        backend.add_tokens([AddedToken(token, normalized=False) for token in own])
    return backend


def _read(path: Path) -> Any:
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece import sentencepiece_model_pb2 as files
    except ImportError:
        raise TokenizerError(
            f"tokenizer {str(path)!r}: reading it needs the packages sentencepiece and protobuf; "
            f"install them with: {install_command('sentencepiece', 'protobuf')}"
        ) from None
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"larger than {MOST_BYTES:,} bytes")
        model = files.ModelProto()  # type: ignore[attr-defined]
        model.ParseFromString(content)
    except (OSError, ValueError, DecodeError) as error:
        raise TokenizerError(f"tokenizer {str(path)!r} cannot be read: {error}") from None
    if not model.pieces:
        raise TokenizerError(f"tokenizer {str(path)!r}: expected SentencePiece's .model file")
    return model


def _unigram(model: Any, ids: Mapping[str, int]) -> models.Unigram:
    """Build the model that finds the most probable segmentation."""
    scores = {piece.piece: piece.score for piece in model.pieces if piece.type == Kind.NORMAL}
    # What was defined by hand is better than any tokens that it could be split into.
    best = max(scores.values(), default=0.0)
    own = _of_kind(model, Kind.USER_DEFINED)
    scores |= {token: len(token) * best - 0.1 for token in own}
    tokens = sorted(ids, key=ids.__getitem__)
    vocabulary = [(token, scores.get(token, IMPOSSIBLE * len(token))) for token in tokens]
    spec = model.trainer_spec
    return models.Unigram(vocabulary, unk_id=ids[spec.unk_piece], byte_fallback=spec.byte_fallback)


def _bpe(model: Any, ids: Mapping[str, int]) -> models.BPE:
    """Build the model that merges neighbours, the pair with the highest score first."""
    spec = model.trainer_spec
    return models.BPE(
        dict(ids),
        list(_merges(model, ids)),
        unk_token=spec.unk_piece,
        fuse_unk=True,
        byte_fallback=spec.byte_fallback,
    )


def _merges(model: Any, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """List the pairs that make each token, the first token to be made first."""
    normal = [piece for piece in model.pieces if piece.type == Kind.NORMAL and piece.piece in ids]
    known = {piece.piece for piece in normal}
    for piece in sorted(normal, key=lambda piece: -piece.score):
        for cut in range(1, len(piece.piece)):
            left, right = piece.piece[:cut], piece.piece[cut:]
            if left in known and right in known:
                yield left, right


def _normalizers(spec: Any) -> Iterator[normalizers.Normalizer]:
    if spec.precompiled_charsmap:
        yield normalizers.Precompiled(spec.precompiled_charsmap)
    if spec.remove_extra_whitespaces:
        yield normalizers.Replace(Regex("^ +| +$"), "")
        yield normalizers.Replace(Regex(" {2,}"), " ")
    elif spec.add_dummy_prefix:  # the pre-tokenizer adds none to a text that begins with a space
        yield normalizers.Prepend(MARK)


def _special_tokens(model: Any, ids: Mapping[str, int]) -> list[str]:
    """List the tokens that are never text; another file may have one for padding."""
    special = [*_of_kind(model, Kind.UNKNOWN, Kind.CONTROL), PAD]
    return [token for token in dict.fromkeys(special) if token in ids]


def _of_kind(model: Any, *kinds: Kind) -> list[str]:
    return [piece.piece for piece in model.pieces if piece.type in kinds]


def _broken(token: str) -> normalizers.Normalizer:
    """Return what keeps the characters of a special token in a text from becoming that token."""
    return normalizers.Replace(token, f"{token[:-1]} {token[-1]}")


def _decoder(prepend: str, byte_fallback: bool) -> decoders.Decoder:
    if not byte_fallback:
        return decoders.Metaspace(replacement=MARK, prepend_scheme=prepend)
    steps = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prepend == "always":
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)
