"""Noise: how people really write, made from clean text.

A model that has only seen edited text fails on capitals, typing errors and missing punctuation.
Each kind changes a pair of texts the way a person would have written the source; the target
follows where a translator would follow it (capitals, punctuation) and stays clean where not.
"""

import random
import re
from collections.abc import Callable

from attendo.errors import ConfigError, did_you_mean

TYPOS = 0.15
"""Probability of a typing error in a word."""

SPACES = 0.1
"""Probability that the space between two words is missing."""

_WORD = re.compile(r"[^\W\d_]{3,}")
_SPACE = re.compile(r"(?<=\S)\s+(?=\S)")
_END = re.compile(r"[.!?…。！？]+$")

Texts = tuple[str, str]
"""A source and its target."""


def write_in_capitals(texts: Texts, chance: random.Random) -> Texts:
    """Write both sides in capitals: A CAT SLEEPS."""
    return texts[0].upper(), texts[1].upper()


def write_as_title(texts: Texts, chance: random.Random) -> Texts:
    """Begin every word of both sides with a capital: A Cat Sleeps."""
    source, target = (
        re.sub(r"(?<![\w'’])\w", lambda found: found[0].upper(), text) for text in texts
    )
    return source, target


def add_typos(texts: Texts, chance: random.Random) -> Texts:
    """Make typing errors in some words of the source, at least one: A cta sleeps."""
    return _some(_WORD, texts[0], TYPOS, lambda word: _typo(word, chance), chance), texts[1]


def leave_out_end(texts: Texts, chance: random.Random) -> Texts:
    """Leave out the punctuation at the end of both sides: A cat sleeps."""
    source, target = (_END.sub("", text.rstrip()).rstrip() for text in texts)
    return source, target


def leave_out_spaces(texts: Texts, chance: random.Random) -> Texts:
    """Leave out some spaces of the source, at least one: Acat sleeps."""
    return _some(_SPACE, texts[0], SPACES, lambda space: "", chance), texts[1]


NOISES: dict[str, Callable[[Texts, random.Random], Texts]] = {
    "caps": write_in_capitals,
    "title": write_as_title,
    "typos": add_typos,
    "punctuation": leave_out_end,
    "spaces": leave_out_spaces,
}
"""By name, as in the section [noise] of a recipe."""


def add_noise(kind: str, texts: Texts, chance: random.Random) -> Texts:
    """Return a pair of texts with noise; as it was, if nothing would be left of a side."""
    if kind not in NOISES:
        raise ConfigError(f"no noise is called {kind!r}; {did_you_mean(kind, NOISES)}")
    changed = NOISES[kind](texts, chance)
    return changed if all(text.strip() for text in changed) else texts


def _some(
    pattern: re.Pattern[str],
    text: str,
    share: float,
    change: Callable[[str], str],
    chance: random.Random,
) -> str:
    """Change some matches of a pattern, at least one."""
    found = list(pattern.finditer(text))
    chosen = {place for place in range(len(found)) if chance.random() < share}
    if found and not chosen:
        chosen = {chance.randrange(len(found))}
    parts: list[str] = []
    end = 0
    for place in sorted(chosen):
        match = found[place]
        parts += text[end : match.start()], change(match[0])
        end = match.end()
    return "".join([*parts, text[end:]])


def _typo(word: str, chance: random.Random) -> str:
    """Swap two letters, leave one out, or write one twice; seldom the first one."""
    place = chance.randrange(1, len(word) - 1)
    before, letter, after = word[:place], word[place], word[place + 1 :]
    kind = chance.randrange(3)
    if kind == 0:
        return f"{before}{after[0]}{letter}{after[1:]}"
    return before + after if kind == 1 else f"{before}{letter}{letter}{after}"
