"""Sentences drawn at random, without end, and the rule that keeps some of them for testing."""

import random
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, TypeVar

from attendo.data.builtin import lexicon
from attendo.data.builtin.constructs import (
    Sentence,
    coordinated,
    fronted,
    statement,
    subordinate_first,
)
from attendo.data.builtin.phrases import (
    Clause,
    Complement,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Property,
    RelativeClause,
    Subordinate,
    Tense,
    pronoun_for,
)
from attendo.data.builtin.words import (
    KINDS,
    LIVING,
    PERSON,
    Adjective,
    Adverb,
    Kind,
    Kinds,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)

Item = TypeVar("Item")

LONGEST = 30
"""The most English words of a sentence."""


def is_held_out(adjective: Adjective, noun: Noun) -> bool:
    """Return whether this combination is held out from training."""
    return zlib.crc32(f"{adjective.english} {noun.english}".encode()) % 10 == 0


def sentences(seed: int, *, held_out: bool = False) -> Iterator[Sentence]:
    """Yield sentences without end, the same for the same seed.

    Every held-out sentence has an adjective before a noun, and all of these are held
    out with their nouns.

    >>> next(sentences(1)) == next(sentences(1))
    True
    """
    draw = _Draw(seed, held_out=held_out)
    while True:
        sentence = draw.sentence()
        if len(sentence.source.split()) <= LONGEST and (draw.n_adjectives or not held_out):
            yield sentence


@cache
def _nouns(kinds: Kinds) -> tuple[Noun, ...]:
    return tuple(noun for noun in lexicon.NOUNS.values() if noun.kind in kinds)


@cache
def _prepositions(head: Kind) -> tuple[Preposition, ...]:
    return tuple(each for each in lexicon.PREPOSITIONS.values() if head in each.heads)


@cache
def _verbs(subject: Kind, objects: Kinds = ()) -> tuple[Verb, ...]:
    """Find the verbs of a kind of subject; where objects are given, those with such an object."""
    return tuple(
        verb
        for verb in lexicon.VERBS.values()
        if subject in verb.frame.subjects
        and (not objects or set(objects) & set(verb.frame.objects))
    )


@cache
def _adjectives(noun: Noun, *, held_out: bool) -> tuple[Adjective, ...]:
    """Find the adjectives of a noun, those held out or all others."""
    return tuple(
        adjective
        for adjective in lexicon.ADJECTIVES.values()
        if noun.kind in adjective.kinds and is_held_out(adjective, noun) == held_out
    )


@cache
def _properties(kind: Kind, *, things_only: bool = False) -> tuple[Adjective, ...]:
    """Return the properties of a kind, or only those that the living do not have."""
    return tuple(
        adjective
        for adjective in lexicon.ADJECTIVES.values()
        if kind in adjective.kinds and not (things_only and set(LIVING) & set(adjective.kinds))
    )


@cache
def _adverbs(tense: Tense | Modal, *, early: bool, late: bool) -> tuple[Adverb, ...]:
    """Find the adverbs that go with a tense and may stand in these places."""
    name = "modal" if isinstance(tense, Modal) else tense
    return tuple(
        adverb
        for adverb in lexicon.ADVERBS.values()
        if name in adverb.tenses and (early if adverb.is_early else late)
    )


_LIFELESS: Kinds = ("thing", "food", "place", "road")
_DETERMINERS = tuple(
    lexicon.DETERMINERS[name]
    for name in (*["the"] * 5, *["a"] * 4, "this", "this", "my", "my", "our", "two", "many", "some")
)
_COUNTING = tuple(lexicon.DETERMINERS[name] for name in ("two", "many", "some"))
_TENSES: tuple[Tense | Modal, ...] = (
    *("present", "present", "present", "present", "perfect", "perfect"),
    *lexicon.MODALS.values(),
)
_CONJUNCTIONS = ("because", "because", "although", "while", "before", "if")


class _Draw:
    """The random choices that make sentences, each in the past or in the present."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        # Of all methods of Random, only random() is guaranteed to be the same in later versions.
        self._random = random.Random(seed).random
        self._held_out = held_out
        self._past = False
        self.n_adjectives = 0  # before nouns, in the last sentence

    def sentence(self) -> Sentence:
        """Draw a sentence of any kind."""
        self.n_adjectives = 0
        self._past = self._chance(0.4)
        kind = self._random()
        if kind < 0.25:
            return statement(self._clause())
        if kind < 0.4:
            return self._fronted()
        if kind < 0.5:
            return self._subordinate_first()
        if kind < 0.6:
            conjunction = self._one(tuple(lexicon.COORDINATORS))
            return coordinated(self._clause(), conjunction, self._clause())
        if kind < 0.7:
            return statement(self._reported())
        return statement(self._complex())

    def _one(self, items: Sequence[Item]) -> Item:
        return items[int(self._random() * len(items))]

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _fronted(self) -> Sentence:
        clause = self._complex() if self._chance(0.3) else self._clause()
        tense = clause.predicate.tense
        predicate = clause.predicate._replace(adverb=None)
        adverb = self._one(_adverbs(tense, early=False, late=True))
        return fronted(adverb, clause._replace(predicate=predicate))

    def _subordinate_first(self) -> Sentence:
        if self._chance(0.5):
            return subordinate_first(self._subordinate(self._clause()), self._clause())
        subject = self._noun_phrase(LIVING, depth=2)
        first = Clause(subject, self._predicate(subject.noun.kind, depth=1))
        main = Clause(pronoun_for(subject), self._predicate(subject.noun.kind, depth=1))
        return subordinate_first(self._subordinate(first, "subject"), main)

    def _complex(self) -> Clause:
        """Draw a clause with a subordinate clause behind it, often about the same noun."""
        kind = self._random()
        if kind < 0.4:  # hard to learn, so there are many
            return self._puzzle()
        if kind < 0.55:
            return self._because_of_subject()
        if kind < 0.7:
            return self._because_of_object()
        return self._clause()._replace(tail=self._subordinate(self._clause()))

    def _puzzle(self) -> Clause:
        """Draw a clause whose "it" could be either noun, except for its predicate."""
        subject = self._singular(("animal",))
        verb = self._one(_verbs("animal", _LIFELESS))
        thing = self._singular(tuple(kind for kind in verb.frame.objects if kind in _LIFELESS))
        main = Clause(subject, self._inflected(verb, thing))
        if self._chance(0.5):
            tail = Clause(pronoun_for(subject), self._state(_properties("animal")))
            return main._replace(tail=Subordinate("because", tail, "subject"))
        reason = self._state(_properties(thing.noun.kind, things_only=True))
        tail = Clause(pronoun_for(thing), reason)
        return main._replace(tail=Subordinate("because", tail, "object"))

    def _because_of_subject(self) -> Clause:
        subject = self._noun_phrase(LIVING, depth=3)
        kind = subject.noun.kind
        main = Clause(subject, self._predicate(kind, depth=2))
        if self._chance(0.5):
            reason = self._state(_properties(kind))
        else:
            reason = self._predicate(kind, depth=1)
        tail = Clause(pronoun_for(subject), reason)
        return main._replace(tail=self._subordinate(tail, "subject"))

    def _because_of_object(self) -> Clause:
        subject = self._noun_phrase(LIVING, depth=2)
        verb = self._one(_verbs(subject.noun.kind, _LIFELESS))
        kinds = tuple(kind for kind in verb.frame.objects if kind in _LIFELESS)
        thing = self._noun_phrase(kinds, depth=2)
        main = Clause(subject, self._inflected(verb, thing))
        reason = self._state(_properties(thing.noun.kind, things_only=True))
        tail = Clause(pronoun_for(thing), reason)
        return main._replace(tail=Subordinate("because", tail, "object"))

    def _reported(self) -> Clause:
        verb = self._one(tuple(lexicon.REPORTING_VERBS.values()))
        subject = self._person()
        clause = self._complex() if self._chance(0.4) else self._clause()
        predicate = self._inflected(verb, None, late=False)
        return Clause(subject, predicate, Subordinate("that", clause))

    def _subordinate(
        self, clause: Clause, stands_for: Literal["subject"] | None = None
    ) -> Subordinate:
        # "If" would make the past unreal, and nothing can happen before what does not.
        conjunction = self._one(_CONJUNCTIONS[:-1] if self._past else _CONJUNCTIONS)
        if conjunction == "before":
            clause = clause._replace(predicate=clause.predicate._replace(is_negated=False))
        return Subordinate(conjunction, clause, stands_for)

    def _clause(self) -> Clause:
        kind = self._random()
        if kind < 0.3:
            return Clause(self._person(), self._predicate("person", depth=2))
        kinds = KINDS if kind < 0.5 else LIVING
        subject = self._noun_phrase(kinds, depth=3)
        return Clause(subject, self._predicate(subject.noun.kind, depth=2))

    def _person(self) -> NounPhrase | Pronoun:
        kind = self._random()
        if kind < 0.3:
            return self._one(tuple(lexicon.PRONOUNS.values()))
        if kind < 0.6:
            return self._one(tuple(lexicon.NAMES.values()))
        return self._noun_phrase(PERSON, depth=1)

    def _noun_phrase(self, kinds: Kinds, depth: int) -> NounPhrase:
        """Draw a noun phrase with up to `depth` modifiers inside each other."""
        noun = self._one(_nouns(kinds))
        determiner = self._one(_DETERMINERS)
        adjective = self._adjective(noun)
        modifier = self._modifier(noun.kind, depth) if self._chance(0.35) else None
        is_plural = determiner.singular is None or self._chance(0.35)
        return NounPhrase(determiner, noun, adjective, modifier, is_plural)

    def _singular(self, kinds: Kinds) -> NounPhrase:
        """Draw a noun phrase that "it" can stand for."""
        phrase = self._noun_phrase(kinds, depth=1)
        determiner = phrase.determiner
        if determiner.singular is None:
            determiner = lexicon.DETERMINERS["the"]
        return phrase._replace(determiner=determiner, is_plural=False)

    def _adjective(self, noun: Noun) -> Adjective | None:
        adjectives = _adjectives(noun, held_out=self._held_out)
        if not adjectives or self._chance(0.6):
            return None
        self.n_adjectives += 1
        return self._one(adjectives)

    def _modifier(self, kind: Kind, depth: int) -> PrepositionalPhrase | RelativeClause | None:
        """Draw a modifier; only a relative clause may hold a further relative clause."""
        if depth >= 2 and self._chance(0.5):
            return self._relative_clause(kind, depth - 1)
        prepositions = _prepositions(kind)
        if depth == 0 or not prepositions:
            return None
        return self._prepositional(self._one(prepositions), min(depth - 1, 1))

    def _prepositional(self, preposition: Preposition, depth: int) -> PrepositionalPhrase:
        return PrepositionalPhrase(preposition, self._noun_phrase(preposition.objects, depth))

    def _relative_clause(self, kind: Kind, depth: int) -> RelativeClause:
        if kind in LIVING and self._chance(0.5):
            return RelativeClause(self._predicate(kind, depth, late=False))
        verb = self._one(_verbs("person", (kind,)))
        subject = self._person()
        return RelativeClause(self._inflected(verb, None, late=False), subject)

    def _predicate(self, kind: Kind, depth: int, *, late: bool = True) -> Predicate:
        verbs = _verbs(kind)
        if not verbs or self._chance(0.15):
            return self._state(_properties(kind))
        verb = self._one(verbs)
        return self._inflected(verb, self._complement(verb, depth), late=late)

    def _complement(self, verb: Verb, depth: int) -> Complement:
        frame = verb.frame
        if frame.prepositions:
            return self._prepositional(self._one(frame.prepositions), depth)
        if "person" in frame.objects and self._chance(0.15):
            return lexicon.PRONOUNS[self._one(("he", "she", "they"))]
        return self._noun_phrase(frame.objects, depth) if frame.objects else None

    def _inflected(self, verb: Verb, complement: Complement, *, late: bool = True) -> Predicate:
        """Draw tense, negation and adverb; `late` allows an adverb at the end."""
        tense = "past" if self._past else self._one(_TENSES)
        phrase = complement.phrase if isinstance(complement, PrepositionalPhrase) else complement
        is_negated, adverb = self._chance(0.25), None
        if isinstance(phrase, NounPhrase):
            late = late and not isinstance(phrase.modifier, RelativeClause)
            is_negated = is_negated and phrase.determiner not in _COUNTING
        adverbs = _adverbs(tense, early=not is_negated, late=late)
        if adverbs and self._chance(0.4):
            adverb = self._one(adverbs)
        return Predicate(verb, tense, complement, adverb, is_negated)

    def _state(self, adjectives: Sequence[Adjective]) -> Predicate:
        """Draw a predicate with "to be"."""
        what = Property(self._one(adjectives), self._one(tuple(lexicon.DEGREES)))
        is_negated = what.degree != "rather" and self._chance(0.2)
        return Predicate(lexicon.BE, "past" if self._past else "present", what, None, is_negated)
