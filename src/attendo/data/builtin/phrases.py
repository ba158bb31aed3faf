"""Phrases and clauses as values with an English and a German text.

Each implements the agreement and the order of its parts; none makes a random choice.
"""

from typing import Literal, NamedTuple

from attendo.data.builtin import lexicon
from attendo.data.builtin.words import (
    Adjective,
    Adverb,
    Case,
    Column,
    Determiner,
    Modal,
    Noun,
    Preposition,
    Pronoun,
    Verb,
)

Tense = Literal["present", "past", "perfect"]
Order = Literal["second", "inverted", "final"]
"""Where the German finite verb stands: after the subject, before it, or at the clause's end."""


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
        """Return the index of its form among the persons of a verb."""
        return 2 if self.is_plural else 1

    @property
    def column(self) -> Column:
        """Return the column of the German endings."""
        return "p" if self.is_plural else self.noun.gender

    def english(self) -> str:
        """Return the English text."""
        noun = self.noun.english_plural if self.is_plural else self.noun.english
        words = f"{self.adjective.english} {noun}" if self.adjective else noun
        determiner = self.determiner.plural if self.is_plural else self.determiner.singular
        if determiner == "a" and words[0] in "aeiou":
            determiner = "an"
        return _join(determiner, words, self.english_modifier())

    def english_modifier(self) -> str:
        """Return the English text after the noun."""
        if isinstance(self.modifier, RelativeClause):
            return self.modifier.english(self)
        return self.modifier.english() if self.modifier else ""

    def german(self, case: Case) -> str:
        """Return the German text."""
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
        """Return the English text."""
        return f"{self.preposition.english} {self.phrase.english()}"

    def german(self) -> str:
        """Return the German text: im Park, but in dem Park, der schön ist."""
        phrase = self.phrase.german(self.preposition.case)
        article, _, noun = phrase.partition(" ")
        short = lexicon.CONTRACTIONS.get(f"{self.preposition.german} {article}")
        if short is None or isinstance(self.phrase.modifier, RelativeClause):
            return f"{self.preposition.german} {phrase}"
        return f"{short} {noun}"


class Property(NamedTuple):
    """The complement of "to be": too tired, zu müde."""

    adjective: Adjective
    degree: str = ""

    def english(self) -> str:
        """Return the English text."""
        return _join(self.degree, self.adjective.english)

    def german(self) -> str:
        """Return the German text."""
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
        """Return the English text after I, it or they."""
        complement = self.complement
        if isinstance(complement, Pronoun):
            words = complement.english_object
        else:
            words = complement.english() if complement else ""
        return _join(self._english_verbs(person), words, self.english_end())

    def english_end(self) -> str:
        """Return the English text after the complement."""
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
        """Return the German clause with a subject."""
        finite, closing = self._german_verbs(person)
        if order == "second":
            return _join(subject, finite, self._middle(), closing)
        if order == "inverted":
            return _join(finite, subject, self._middle(), closing)
        # A verb at the end has its prefix back: er steht auf, but weil er aufsteht.
        gap = "" if self.tense in ("present", "past") else " "
        return _join(subject, self._middle(), f"{closing}{gap}{finite}")

    def _german_verbs(self, person: int) -> tuple[str, str]:
        """Return the finite verb and the end of a main clause: prefix, participle or infinitive."""
        verb, tense = self.verb, self.tense
        if isinstance(tense, Modal):
            return tense.german[person], verb.infinitive
        if tense == "perfect":
            return verb.auxiliary[person], verb.german_participle
        return (verb.german_past if tense == "past" else verb.german_present)[person], verb.prefix

    def _middle(self) -> str:
        """Return the words between the verbs; an indefinite object is negated by "kein"."""
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
        """Return the English text, which follows the noun."""
        is_person = head.noun.kind == "person"
        if self.subject is None:
            return f"{'who' if is_person else 'that'} {self.predicate.english(head.person)}"
        clause = f"{self.subject.english()} {self.predicate.english(self.subject.person)}"
        return f"{'whom' if is_person else 'that'} {clause}"

    def german(self, head: NounPhrase) -> str:
        """Return the German text, without the commas around it."""
        if self.subject is None:
            pronoun = lexicon.RELATIVE_PRONOUNS["nominative", head.column]
            return self.predicate.german(pronoun, head.person, "final")
        pronoun = lexicon.RELATIVE_PRONOUNS[self.predicate.verb.frame.case, head.column]
        subject = self.subject.german("nominative")
        return f"{pronoun} {self.predicate.german(subject, self.subject.person, 'final')}"


class Clause(NamedTuple):
    """A subject and its predicate, perhaps followed by a subordinate clause.

    The animal was tired because it did not sleep: das Tier war müde, weil es nicht schlief.
    """

    subject: NounPhrase | Pronoun
    predicate: Predicate
    tail: "Subordinate | None" = None

    def english(self) -> str:
        """Return the English text."""
        predicate = self.predicate.english(self.subject.person)
        return _join(self.subject.english(), predicate, self.tail and self.tail.english())

    def german(self, order: Order) -> str:
        """Return the German text."""
        subject = self.subject.german("nominative")
        clause = self.predicate.german(subject, self.subject.person, order)
        return f"{clause}, {self.tail.german()}," if self.tail else clause


class Subordinate(NamedTuple):
    """A conjunction and a clause, whose subject may stand for a noun of the main clause."""

    conjunction: str
    clause: Clause
    stands_for: Literal["subject", "object"] | None = None

    def english(self) -> str:
        """Return the English text."""
        return f"{self.conjunction} {self.clause.english()}"

    def german(self) -> str:
        """Return the German text, without the commas around it."""
        return f"{lexicon.SUBORDINATORS[self.conjunction]} {self.clause.german('final')}"


def pronoun_for(phrase: NounPhrase) -> Pronoun:
    """Choose the pronoun that stands for a noun phrase: the street, it, sie."""
    if phrase.is_plural:
        return lexicon.PRONOUNS["they"]
    if phrase.noun.kind == "person" and phrase.noun.gender != "n":
        return lexicon.PRONOUNS["he" if phrase.noun.gender == "m" else "she"]
    return lexicon.IT[phrase.noun.gender]


def _join(*parts: str | None) -> str:
    return " ".join(filter(None, parts))


def _denied(complement: Complement) -> Complement:
    """Return an indefinite noun phrase with "no", or None for any other phrase."""
    if isinstance(complement, PrepositionalPhrase):
        denied = _denied(complement.phrase)
        return complement._replace(phrase=denied) if isinstance(denied, NounPhrase) else None
    if isinstance(complement, NounPhrase) and complement.determiner is lexicon.DETERMINERS["a"]:
        return complement._replace(determiner=lexicon.DETERMINERS["no"])
    return None
