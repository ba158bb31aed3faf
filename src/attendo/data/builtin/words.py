"""The words of two languages as values: what an English word and its German partner are made of.

The classes implement what is regular in a language; everything else is in the tables of `lexicon`.
"""

from typing import Literal, NamedTuple, get_args

Kind = Literal["person", "animal", "thing", "food", "place", "road"]
"""What a noun stands for."""
Kinds = tuple[Kind, ...]
Case = Literal["nominative", "accusative", "dative"]
Column = Literal["m", "f", "n", "p"]
"""A column of German endings: one for each gender, and the plural's, which has none."""
Forms = dict[tuple[Case, Column], str]
"""The forms of a German word for every case and column."""
Persons = tuple[str, str, str]
"""The forms of a verb after I, after it and after they."""

KINDS: Kinds = get_args(Kind)
CASES: tuple[Case, ...] = get_args(Case)
COLUMNS: tuple[Column, ...] = get_args(Column)
PERSON: Kinds = ("person",)
LIVING: Kinds = ("person", "animal")


class Noun(NamedTuple):
    """A noun with its plurals and its German gender."""

    english: str
    english_plural: str
    gender: Column
    singular: str
    plural: str
    is_weak: bool
    """Takes the form of its plural in all cases of the singular but the first: den Bären."""
    kind: Kind

    def german(self, case: Case, column: Column) -> str:
        """Decline the noun; the dative plural ends in -n, or in -s."""
        if column == "p":
            return self.plural + "n" * (case == "dative" and self.plural[-1] not in "ns")
        return self.plural if self.is_weak and case != "nominative" else self.singular


class Adjective(NamedTuple):
    """An adjective and the stem that its German endings are put to: teuer, ein teures Auto."""

    english: str
    german: str
    stem: str
    kinds: Kinds


class Determiner(NamedTuple):
    """What stands before a noun, and the endings of an adjective that stands between them."""

    singular: str | None
    plural: str
    german: Forms
    endings: Forms


class Preposition(NamedTuple):
    """A preposition, the German case it governs and the kinds of nouns that may stand around it."""

    english: str
    german: str
    case: Case
    objects: Kinds
    heads: Kinds = ()


class Frame(NamedTuple):
    """What stands around a verb: its object is in a case, or joined by one of the prepositions."""

    subjects: Kinds
    objects: Kinds = ()
    case: Case = "accusative"
    prepositions: tuple[Preposition, ...] = ()


class Verb(NamedTuple):
    """A verb; the German present and past come without the prefix that separates from them."""

    frame: Frame
    base: str
    present: Persons
    past: Persons
    participle: str
    infinitive: str
    prefix: str
    german_present: Persons
    german_past: Persons
    german_participle: str
    auxiliary: Persons


class Modal(NamedTuple):
    """A modal verb in the present."""

    english: Persons
    negated: Persons
    german: Persons


class Pronoun(NamedTuple):
    """A personal pronoun or a name: a noun phrase of one word."""

    english_subject: str
    english_object: str
    forms: dict[Case, str]
    person: int
    """Return the index of its form among the persons of a verb."""

    def english(self) -> str:
        """Return the English text, as a subject."""
        return self.english_subject

    def german(self, case: Case) -> str:
        """Return the German text."""
        return self.forms[case]


class Adverb(NamedTuple):
    """An adverb and the tenses it goes with."""

    english: str
    german: str
    is_early: bool
    """Stands before the English verb (it often sleeps) and not at the end (it sleeps today)."""
    tenses: tuple[str, ...]
