"""Sentences made of clauses: what opens them, what joins them, and how far they reach."""

import re
from typing import Any, NamedTuple

from attendo.data.builtin import lexicon
from attendo.data.builtin.phrases import (
    Clause,
    Complement,
    NounPhrase,
    PrepositionalPhrase,
    RelativeClause,
    Subordinate,
)
from attendo.data.builtin.words import Adverb, Pronoun


class Sentence(NamedTuple):
    """An English sentence and its German translation."""

    source: str
    target: str
    distance: int
    """Source words between the ends of the longest dependency: from the head of a subject to its
    verbs, or from the noun that a pronoun stands for to the pronoun."""
    parts: tuple[Any, ...] = ()
    """What it is made of: clauses, and what opens or joins them."""


def statement(clause: Clause) -> Sentence:
    """Build a clause: The old dog gets up today. Der alte Hund steht heute auf."""
    return _sentence(clause.english(), clause.german("second"), _distance(clause), clause)


def fronted(adverb: Adverb, clause: Clause) -> Sentence:
    """Build a clause with an adverb first: Yesterday the child slept. Gestern schlief das Kind."""
    english, german = f"{adverb.english} {clause.english()}", clause.german("inverted")
    return _sentence(english, f"{adverb.german} {german}", _distance(clause), adverb, clause)


def subordinate_first(first: Subordinate, main: Clause) -> Sentence:
    """Build a clause after a subordinate one: If it sleeps, we wait. Wenn es schläft, warten wir.

    A pronoun is then the main clause's subject, and `first.stands_for` is what it stands for.
    """
    english, german = f"{first.english()}, {main.english()}", main.german("inverted")
    distance = max(_distance(first.clause), _distance(main))
    if first.stands_for == "subject":
        distance = max(distance, _words_after_subject(first.clause))
    return _sentence(english, f"{first.german()}, {german}", distance, first, main)


def coordinated(first: Clause, conjunction: str, second: Clause) -> Sentence:
    """Join two clauses: The dog sleeps, but we work. Der Hund schläft, aber wir arbeiten."""
    english, german = lexicon.COORDINATORS[conjunction]
    return _sentence(
        f"{first.english()}{english} {second.english()}",
        f"{first.german('second')}{german} {second.german('second')}",
        max(_distance(first), _distance(second)),
        *(first, conjunction, second),
    )


def _count(words: str) -> int:
    return words.count(" ") + 1 if words else 0


def _sentence(english: str, german: str, distance: int, *parts: Any) -> Sentence:
    """Add capitals and periods; where German clauses end together, one comma ends them all."""
    german = re.sub(",,+", ",", german).rstrip(",")
    return Sentence(
        f"{english[0].upper()}{english[1:]}.", f"{german[0].upper()}{german[1:]}.", distance, parts
    )


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
