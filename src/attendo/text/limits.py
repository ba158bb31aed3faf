"""What a tokenizer file may contain: bounds that keep a file from a stranger harmless.

A tokenizer.json is a program: normalizers can lengthen a text by any factor, and its regular
expressions can take exponential time. Every published tokenizer known to us is far within these
bounds.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from attendo.errors import TokenizerError

MOST_BYTES = 1 << 26
"""Largest file; one with 256,000 tokens has half of that."""

MOST_TOKENS = 1_000_000
MOST_ADDED = 10_000
"""Tokens outside of the model: special tokens and the like."""

MOST_PARTS = 100
"""Normalizers, pre-tokenizers and decoders together."""

MOST_CHARACTERS = 2000
"""Longest regular expression, replacement or added token."""

MOST_GROWTH = 1000
"""Largest factor by which the normalizers may lengthen a text."""

LONGEST_WORD = 1000
"""Longest word for WordPiece, in characters: it takes quadratic time."""

_LENGTHENING = {"NFKC": 18, "NFKD": 18, "NFD": 4, "NFC": 3, "ByteLevel": 4, "Precompiled": 18}
"""Most characters, or bytes, that Unicode allows these to make of one."""


def check_content(text: str) -> None:
    """Raise an error if the content of a tokenizer.json exceeds the bounds.

    Raises:
        TokenizerError: It does, or it is not the JSON of a tokenizer.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TokenizerError(
            f"not JSON ({error}); expected the content of a tokenizer.json"
        ) from None
    if not isinstance(values, dict) or not isinstance(model := values.get("model"), dict):
        raise TokenizerError("JSON, but not of a tokenizer; expected a tokenizer.json")
    _check_size("tokens", len(model.get("vocab") or ()), MOST_TOKENS)
    _check_size("merges", len(model.get("merges") or ()), MOST_TOKENS)
    _check_size("added tokens", len(values.get("added_tokens") or ()), MOST_ADDED)
    longest = model.get("max_input_chars_per_word")
    _check_size("characters per word", longest if isinstance(longest, int) else 0, LONGEST_WORD)
    parts = [part for key in _PIPELINE for part in _parts(values.get(key))]
    _check_size("normalizers, pre-tokenizers and decoders", len(parts), MOST_PARTS)
    for part in (*parts, *_parts(values.get("added_tokens"))):
        _check_texts(part)
    growth = 1.0
    for part in _parts(values.get("normalizer")):
        growth *= _growth(part)
    if growth > MOST_GROWTH:
        raise TokenizerError(f"its normalizers lengthen a text by more than {MOST_GROWTH} times")


_PIPELINE = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def _check_size(what: str, size: int, limit: int) -> None:
    if size > limit:
        raise TokenizerError(f"it has {size:,} {what}; at most {limit:,} are allowed")


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """List the objects inside a part of the file, outermost first."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else _items(value):
        yield from _parts(inner)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _check_texts(part: dict[str, Any]) -> None:
    for key, text in part.items():
        # A compiled table of characters: large, but one lookup per character.
        if isinstance(text, str) and key != "precompiled_charsmap":
            _check_size(f"characters in {key!r}", len(text), MOST_CHARACTERS)
            if key == "Regex" and _can_explode(text):
                raise TokenizerError(
                    f"its regular expression {text:.60} repeats a group that itself has "
                    "repetitions or alternatives, which can take exponential time"
                )


def _growth(part: dict[str, Any]) -> float:
    """Return the largest factor by which a normalizer can lengthen a text of one character."""
    kind = part.get("type")
    if kind == "Replace":
        pattern = part.get("pattern") or {}
        matched = len(pattern["String"]) if isinstance(pattern.get("String"), str) else 0
        return max(1.0, len(str(part.get("content", ""))) / (matched or 1) + (not matched))
    if kind == "Prepend":
        return 1.0 + len(str(part.get("prepend", "")))
    return float(_LENGTHENING.get(str(kind), 1))


_PIECE = re.compile(r"\\.|\[|\]|\(|\)|\||[*+?]|\{\d*,?\d*\}|.", re.DOTALL)


def _can_explode(pattern: str) -> bool:
    """Return whether a group with repetitions or alternatives inside is itself repeated."""
    is_ambiguous = [False]  # for each open group
    closed, depth = False, 0  # the group that has just ended; nesting of character classes
    for piece in _PIECE.findall(pattern):
        if piece in "[]":
            depth += 1 if piece == "[" else -1 if depth else 0
            closed = False
        elif depth:
            continue
        elif piece == "(":
            is_ambiguous.append(False)
            closed = False
        elif piece == ")":
            closed = is_ambiguous.pop() if len(is_ambiguous) > 1 else False
            is_ambiguous[-1] |= closed
        elif piece in "*+" or (piece[0] == "{" and len(piece) > 1):
            if closed:
                return True
            is_ambiguous[-1] = True
        else:
            is_ambiguous[-1] |= piece == "|"
            closed = False
    return False
