"""Words that depend on other words, some way off, in the test sentences of the built-in corpus.

Two kinds can be found in the text alone, with the words of the grammar, and their translation can
be checked word by word:

- "it" is er, sie or es, as the gender of the noun it stands for demands; the distance is the number
  of English words between the two;
- a verb in two parts (hat ... geschlafen, muss ... schlafen, steht ... auf) opens early and closes
  at the end of the clause; the distance is the number of German words between the two.

A sentence in which either is not certain is left out. Of other corpora nothing is known.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from attendo.data.builtin import lexicon
from attendo.data.builtin.words import LIVING, Noun

Kind = Literal["pronoun", "verb"]

GENDERS = {"er": "m", "sie": "f", "es": "n"}
"""What "it" becomes, and the gender that it shows."""


class Dependency(NamedTuple):
    """A word of a translation that depends on another."""

    kind: Kind
    sentence: int
    """Number of the test sentence."""
    distance: int
    """Words between the two."""
    expected: str

    def is_met(self, translation: str) -> bool:
        """Return whether a translation has the right word at its position."""
        words = _words(translation)
        if self.kind == "pronoun":
            return [word for word in words if word in GENDERS] == [self.expected]
        return words[-1:] == [self.expected]


def find_dependencies(sources: Sequence[str], references: Sequence[str]) -> list[Dependency]:
    """Find all dependencies of test sentences that are certain."""
    return [
        dependency
        for number, (source, reference) in enumerate(zip(sources, references, strict=True))
        for dependency in (
            *_pronoun(number, _words(source), _words(reference)),
            *_verb(number, reference.rstrip(".").split()),
        )
    ]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _pronoun(number: int, source: list[str], reference: list[str]) -> Iterator[Dependency]:
    """Find the noun that "it" stands for: the only one before it of that gender and kind."""
    shown = [word for word in reference if word in GENDERS]
    if source.count("it") != 1 or len(shown) != 1:
        return
    place = source.index("it")
    quality = lexicon.ADJECTIVES.get(source[-1])
    is_living = quality is None or bool(set(LIVING) & set(quality.kinds))
    nouns = [
        before
        for before, word in enumerate(source[:place])
        if word in lexicon.NOUNS and _fits(lexicon.NOUNS[word], GENDERS[shown[0]], is_living)
    ]
    if len(nouns) == 1:
        yield Dependency("pronoun", number, place - nouns[0] - 1, shown[0])


def _fits(noun: Noun, gender: str, is_living: bool) -> bool:
    """Return whether "it" may refer to a noun; people are he or she, except the neuter ones."""
    is_it = noun.kind != "person" or noun.gender == "n"
    return is_it and noun.gender == gender and (noun.kind in LIVING) == is_living


def _verb(number: int, reference: list[str]) -> Iterator[Dependency]:
    """Find the verb that opens early and closes at the end of the sentence.

    A verb that ends a relative clause has a comma behind it, so that it is no opener here.
    """
    openers = _OPENERS.get(reference[-1], set()) if reference else set()
    places = [place for place, word in enumerate(reference) if word in openers]
    if len(places) == 1 and not _ends_otherwise(reference, places[0]):
        yield Dependency("verb", number, len(reference) - places[0] - 2, reference[-1])


def _ends_otherwise(reference: list[str], opener: int) -> bool:
    """Return whether the last clause is another one, with a verb of its own."""
    is_subordinate = any(word in reference for word in lexicon.SUBORDINATORS.values())
    return is_subordinate or any(word in reference[opener:] for word in ("und", "aber"))


def _openers() -> dict[str, set[str]]:
    """List for every word that can close a clause the words that can open it."""
    openers: dict[str, set[str]] = {}
    modals = {form for modal in lexicon.MODALS.values() for form in modal.german}
    for verb in (*lexicon.VERBS.values(), *lexicon.REPORTING_VERBS.values()):
        openers.setdefault(verb.german_participle, set()).update(verb.auxiliary)
        openers.setdefault(verb.infinitive, set()).update(modals)
        if verb.prefix:
            finite = {*verb.german_present, *verb.german_past}
            openers.setdefault(verb.prefix, set()).update(finite)
    return openers


_OPENERS = _openers()
