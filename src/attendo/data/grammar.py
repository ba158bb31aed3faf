"""The built-in corpus: a small grammar that speaks English and German and never runs out.

Phrases are values that can be said in both languages; `sentences` draws them at random and yields
pairs whose translation needs what attention is good at: words that move (the German verb goes to
the end of a subordinate clause, its prefix to the end of a main clause), words that agree over a
distance, and pronouns that take the gender of a noun far back.

The English side determines the German side. Where English alone would not, these rules hold:

- "it" stands for the subject of the clause before it if it does or is something that the living can
  do or be (it was too tired), and else for the object (it was too wide); so do "he", "she", "they";
- a noun has one modifier, so that a relative clause or prepositional phrase belongs to the noun
  right before it; no adverb ends a relative clause, or a clause whose object has one;
- the English past is the Präteritum and the present perfect the Perfekt;
- nouns for people have one gender: the doctor is a woman (die Ärztin), the teacher a man (der
  Lehrer).

One in ten combinations of adjective and noun is held out: the training stream never has them, and
every sentence of the held-out stream has one.
"""

import random
import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Literal, NamedTuple, TypeVar

from attendo.data import lexicon
from attendo.data.lexicon import (
    LIVING,
    Adjective,
    Adverb,
    Case,
    Column,
    Determiner,
    Kind,
    Kinds,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)

Tense = Literal["present", "past", "perfect"]
Order = Literal["second", "inverted", "final"]
"""Where the German finite verb stands: after the subject, before it, or at the clause's end."""
Item = TypeVar("Item")

LONGEST = 30
"""The most English words of a sentence."""


class Sentence(NamedTuple):
    """An English sentence and its German translation."""

    source: str
    target: str
    distance: int
    """Source words between the ends of the longest dependency: from the head of a subject to its
    verbs, or from the noun that a pronoun stands for to the pronoun."""


class NounPhrase(NamedTuple):
    """A noun with its determiner, perhaps an adjective, perhaps a modifier.

    >>> a, dog = lexicon.DETERMINERS["a"], lexicon.NOUNS["dog"]
    >>> phrase = NounPhrase(a, dog, lexicon.ADJECTIVES["old"])
    >>> phrase.english(), phrase.german("nominative"), phrase.german("dative")
    ('an old dog', 'ein alter Hund', 'einem alten Hund')
    """

    determiner: Determiner
    noun: Noun
    adjective: Adjective | None = None
    modifier: "PrepositionalPhrase | RelativeClause | None" = None
    is_plural: bool = False

    @property
    def person(self) -> int:
        """Place of its form among the Persons of a verb."""
        return 2 if self.is_plural else 1

    @property
    def column(self) -> Column:
        """Column of the German endings."""
        return "p" if self.is_plural else self.noun.gender

    def english(self) -> str:
        """Say it in English."""
        noun = self.noun.english_plural if self.is_plural else self.noun.english
        words = f"{self.adjective.english} {noun}" if self.adjective else noun
        determiner = self.determiner.plural if self.is_plural else self.determiner.singular
        if determiner == "a" and words[0] in "aeiou":
            determiner = "an"
        return _join(determiner, words, self.english_modifier())

    def english_modifier(self) -> str:
        """Say the part after the noun in English."""
        if isinstance(self.modifier, RelativeClause):
            return self.modifier.english(self)
        return self.modifier.english() if self.modifier else ""

    def german(self, case: Case) -> str:
        """Say it in German."""
        form = (case, self.column)
        adjective = self.adjective and self.adjective.stem + self.determiner.endings[form]
        phrase = _join(self.determiner.german[form], adjective, self.noun.german(*form))
        if isinstance(self.modifier, RelativeClause):
            return f"{phrase}, {self.modifier.german(self)},"
        return f"{phrase} {self.modifier.german()}" if self.modifier else phrase


class PrepositionalPhrase(NamedTuple):
    """A preposition with the noun phrase it governs.

    >>> park = NounPhrase(lexicon.DETERMINERS["the"], lexicon.NOUNS["park"])
    >>> phrase = PrepositionalPhrase(lexicon.PREPOSITIONS["in"], park)
    >>> phrase.english(), phrase.german()
    ('in the park', 'im Park')
    """

    preposition: Preposition
    phrase: NounPhrase

    def english(self) -> str:
        """Say it in English."""
        return f"{self.preposition.english} {self.phrase.english()}"

    def german(self) -> str:
        """Say it in German: im Park, but before a relative clause in dem Park, der schön ist."""
        phrase = self.phrase.german(self.preposition.case)
        article, _, noun = phrase.partition(" ")
        short = lexicon.CONTRACTIONS.get(f"{self.preposition.german} {article}")
        if short is None or isinstance(self.phrase.modifier, RelativeClause):
            return f"{self.preposition.german} {phrase}"
        return f"{short} {noun}"


class Property(NamedTuple):
    """What is said with "to be": too tired, zu müde."""

    adjective: Adjective
    degree: str = ""

    def english(self) -> str:
        """Say it in English."""
        return _join(self.degree, self.adjective.english)

    def german(self) -> str:
        """Say it in German."""
        return _join(lexicon.DEGREES[self.degree], self.adjective.german)


Complement = NounPhrase | Pronoun | PrepositionalPhrase | Property | None


class Predicate(NamedTuple):
    """All of a clause but its subject."""

    verb: Verb
    tense: Tense | Modal = "present"
    complement: Complement = None
    adverb: Adverb | None = None
    is_negated: bool = False

    def english(self, person: int) -> str:
        """Say it in English, after I, it or they."""
        complement = self.complement
        if isinstance(complement, Pronoun):
            words = complement.english_object
        else:
            words = complement.english() if complement else ""
        return _join(self._english_verbs(person), words, self.english_end())

    def english_end(self) -> str:
        """Say what follows the complement in English."""
        return self.adverb.english if self.adverb and not self.adverb.is_early else ""

    def _english_verbs(self, person: int) -> str:
        verb, tense, no = self.verb, self.tense, "not" if self.is_negated else ""
        early = self.adverb.english if self.adverb and self.adverb.is_early else ""
        if isinstance(tense, Modal):
            return f"{(tense.negated if self.is_negated else tense.english)[person]} {verb.base}"
        if tense == "perfect":
            return _join("has" if person == 1 else "have", no, early, verb.participle)
        finite = (verb.past if tense == "past" else verb.present)[person]
        if verb is lexicon.BE:
            return _join(finite, no, early)
        if self.is_negated:
            helper = "did" if tense == "past" else "does" if person == 1 else "do"
            return f"{helper} not {verb.base}"
        return _join(early, finite)

    def german(self, subject: str, person: int, order: Order) -> str:
        """Say the clause that it makes with a subject in German."""
        finite, closing = self._german_verbs(person)
        if order == "second":
            return _join(subject, finite, self._middle(), closing)
        if order == "inverted":
            return _join(finite, subject, self._middle(), closing)
        # A verb at the end has its prefix back: er steht auf, but weil er aufsteht.
        gap = "" if self.tense in ("present", "past") else " "
        return _join(subject, self._middle(), f"{closing}{gap}{finite}")

    def _german_verbs(self, person: int) -> tuple[str, str]:
        """Give the finite verb and what closes a main clause: prefix, participle or infinitive."""
        verb, tense = self.verb, self.tense
        if isinstance(tense, Modal):
            return tense.german[person], verb.infinitive
        if tense == "perfect":
            return verb.auxiliary[person], verb.german_participle
        return (verb.german_past if tense == "past" else verb.german_present)[person], verb.prefix

    def _middle(self) -> str:
        """Say what stands between the verbs; an indefinite object is negated by "kein"."""
        adverb = self.adverb and self.adverb.german
        complement, no = self.complement, "nicht" if self.is_negated else ""
        if self.is_negated and (denied := _denied(complement)):
            complement, no = denied, ""
        if isinstance(complement, Pronoun):
            return _join(complement.german(self.verb.frame.case), adverb, no)
        if isinstance(complement, NounPhrase):
            return _join(adverb, complement.german(self.verb.frame.case), no)
        return _join(adverb, no, complement and complement.german())


class RelativeClause(NamedTuple):
    """A clause about a noun: its subject or, where the clause has another one, its object.

    The dog that the child helps: der Hund, dem das Kind hilft.
    """

    predicate: Predicate
    subject: NounPhrase | Pronoun | None = None

    def english(self, head: NounPhrase) -> str:
        """Say it in English, after its noun."""
        is_person = head.noun.kind == "person"
        if self.subject is None:
            return f"{'who' if is_person else 'that'} {self.predicate.english(head.person)}"
        clause = f"{self.subject.english()} {self.predicate.english(self.subject.person)}"
        return f"{'whom' if is_person else 'that'} {clause}"

    def german(self, head: NounPhrase) -> str:
        """Say it in German, without the commas around it."""
        if self.subject is None:
            pronoun = lexicon.RELATIVE_PRONOUNS["nominative", head.column]
            return self.predicate.german(pronoun, head.person, "final")
        pronoun = lexicon.RELATIVE_PRONOUNS[self.predicate.verb.frame.case, head.column]
        subject = self.subject.german("nominative")
        return f"{pronoun} {self.predicate.german(subject, self.subject.person, 'final')}"


class Clause(NamedTuple):
    """A subject and what is said of it, perhaps with a subordinate clause behind.

    The animal was tired because it did not sleep: das Tier war müde, weil es nicht schlief.
    """

    subject: NounPhrase | Pronoun
    predicate: Predicate
    tail: "Subordinate | None" = None

    def english(self) -> str:
        """Say it in English."""
        predicate = self.predicate.english(self.subject.person)
        return _join(self.subject.english(), predicate, self.tail and self.tail.english())

    def german(self, order: Order) -> str:
        """Say it in German."""
        subject = self.subject.german("nominative")
        clause = self.predicate.german(subject, self.subject.person, order)
        return f"{clause}, {self.tail.german()}," if self.tail else clause


class Subordinate(NamedTuple):
    """A conjunction and a clause, whose subject may stand for a noun of the main clause."""

    conjunction: str
    clause: Clause
    stands_for: Literal["subject", "object"] | None = None

    def english(self) -> str:
        """Say it in English."""
        return f"{self.conjunction} {self.clause.english()}"

    def german(self) -> str:
        """Say it in German, without the commas around it."""
        return f"{lexicon.SUBORDINATORS[self.conjunction]} {self.clause.german('final')}"


def statement(clause: Clause) -> Sentence:
    """Say a clause: The old dog gets up today. Der alte Hund steht heute auf."""
    return _sentence(clause.english(), clause.german("second"), _distance(clause))


def fronted(adverb: Adverb, clause: Clause) -> Sentence:
    """Begin with an adverb: Yesterday the child slept. Gestern schlief das Kind."""
    english, german = f"{adverb.english} {clause.english()}", clause.german("inverted")
    return _sentence(english, f"{adverb.german} {german}", _distance(clause))


def subordinate_first(first: Subordinate, main: Clause) -> Sentence:
    """Begin with a subordinate clause: If it sleeps, we wait. Wenn es schläft, warten wir.

    A pronoun is then the main clause's subject, and `first.stands_for` says what it stands for.
    """
    english, german = f"{first.english()}, {main.english()}", main.german("inverted")
    distance = max(_distance(first.clause), _distance(main))
    if first.stands_for == "subject":
        distance = max(distance, _words_after_subject(first.clause))
    return _sentence(english, f"{first.german()}, {german}", distance)


def coordinated(first: Clause, conjunction: str, second: Clause) -> Sentence:
    """Join two clauses: The dog sleeps, but we work. Der Hund schläft, aber wir arbeiten."""
    english, german = lexicon.COORDINATORS[conjunction]
    return _sentence(
        f"{first.english()}{english} {second.english()}",
        f"{first.german('second')}{german} {second.german('second')}",
        max(_distance(first), _distance(second)),
    )


def pronoun_for(phrase: NounPhrase) -> Pronoun:
    """Choose the pronoun that stands for a noun phrase: the street, it, sie."""
    if phrase.is_plural:
        return lexicon.PRONOUNS["they"]
    if phrase.noun.kind == "person" and phrase.noun.gender != "n":
        return lexicon.PRONOUNS["he" if phrase.noun.gender == "m" else "she"]
    return lexicon.IT[phrase.noun.gender]


def is_held_out(adjective: Adjective, noun: Noun) -> bool:
    """Tell whether this combination is kept from the training stream."""
    return zlib.crc32(f"{adjective.english} {noun.english}".encode()) % 10 == 0


def sentences(seed: int, *, held_out: bool = False) -> Iterator[Sentence]:
    """Yield sentences without end, the same for the same seed.

    In the held-out stream every sentence has an adjective before a noun, and all of these are held
    out with their nouns.

    >>> next(sentences(1)) == next(sentences(1))
    True
    """
    draw = _Draw(seed, held_out=held_out)
    while True:
        sentence = draw.sentence()
        if _count(sentence.source) <= LONGEST and (draw.n_adjectives or not held_out):
            yield sentence


def _join(*parts: str | None) -> str:
    return " ".join(filter(None, parts))


def _count(words: str) -> int:
    return words.count(" ") + 1 if words else 0


def _sentence(english: str, german: str, distance: int) -> Sentence:
    """Put capitals and periods; where German clauses end together, one comma ends them all."""
    german = re.sub(",,+", ",", german).rstrip(",")
    return Sentence(
        f"{english[0].upper()}{english[1:]}.", f"{german[0].upper()}{german[1:]}.", distance
    )


def _denied(complement: Complement) -> Complement:
    """Say "no" with an indefinite noun phrase, and None with anything else."""
    if isinstance(complement, PrepositionalPhrase):
        denied = _denied(complement.phrase)
        return complement._replace(phrase=denied) if isinstance(denied, NounPhrase) else None
    if isinstance(complement, NounPhrase) and complement.determiner is lexicon.DETERMINERS["a"]:
        return complement._replace(determiner=lexicon.DETERMINERS["no"])
    return None


def _reach(subject: NounPhrase | Pronoun) -> int:
    """Count the English words between the head of a subject and its verbs."""
    return _count(subject.english_modifier()) if isinstance(subject, NounPhrase) else 0


def _words_after_subject(clause: Clause) -> int:
    """Count the English words between the head of the subject and the end of the clause."""
    return _reach(clause.subject) + _count(clause.predicate.english(clause.subject.person))


def _distance(part: Clause | RelativeClause | Complement) -> int:
    """Measure the longest dependency inside a part of a sentence."""
    match part:
        case NounPhrase(modifier=PrepositionalPhrase() | RelativeClause() as modifier):
            return _distance(modifier)
        case PrepositionalPhrase(phrase=phrase):
            return _distance(phrase)
        case RelativeClause(predicate=predicate, subject=None):
            return max(1, _distance(predicate.complement))
        case RelativeClause(predicate, NounPhrase() | Pronoun() as subject):
            return max(_reach(subject), _distance(subject), _distance(predicate.complement))
        case Clause(subject, predicate, tail):
            inside = max(_reach(subject), _distance(subject), _distance(predicate.complement))
            return max(inside, _tail_distance(part, tail)) if tail else inside
    return 0


def _tail_distance(clause: Clause, tail: Subordinate) -> int:
    """Measure the longest dependency that ends in the subordinate clause."""
    distance = _distance(tail.clause)
    if tail.stands_for == "subject":
        return max(distance, _words_after_subject(clause) + _count(tail.conjunction))
    if tail.stands_for == "object" and isinstance(clause.predicate.complement, NounPhrase):
        words = _reach(clause.predicate.complement) + _count(clause.predicate.english_end())
        return max(distance, words + _count(tail.conjunction))
    return distance


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
    """Find what can be said of a kind, or what can be said of it and not of the living."""
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
    """The random choices that make sentences, each told in the past or in the present."""

    def __init__(self, seed: int, *, held_out: bool) -> None:
        # Of all methods of Random, random() alone is promised to stay the same in later versions.
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
        if kind < 0.3:
            return self._because_of_subject()
        if kind < 0.55:
            return self._because_of_object()
        return self._clause()._replace(tail=self._subordinate(self._clause()))

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
        kinds = lexicon.KINDS if kind < 0.5 else LIVING
        subject = self._noun_phrase(kinds, depth=3)
        return Clause(subject, self._predicate(subject.noun.kind, depth=2))

    def _person(self) -> NounPhrase | Pronoun:
        kind = self._random()
        if kind < 0.3:
            return self._one(tuple(lexicon.PRONOUNS.values()))
        if kind < 0.6:
            return self._one(tuple(lexicon.NAMES.values()))
        return self._noun_phrase(lexicon.PERSON, depth=1)

    def _noun_phrase(self, kinds: Kinds, depth: int) -> NounPhrase:
        """Draw a noun phrase with up to `depth` modifiers inside each other."""
        noun = self._one(_nouns(kinds))
        determiner = self._one(_DETERMINERS)
        adjective = self._adjective(noun)
        modifier = self._modifier(noun.kind, depth) if self._chance(0.35) else None
        is_plural = determiner.singular is None or self._chance(0.35)
        return NounPhrase(determiner, noun, adjective, modifier, is_plural)

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
        """Draw something said with "to be"."""
        what = Property(self._one(adjectives), self._one(tuple(lexicon.DEGREES)))
        is_negated = what.degree != "rather" and self._chance(0.2)
        return Predicate(lexicon.BE, "past" if self._past else "present", what, None, is_negated)
