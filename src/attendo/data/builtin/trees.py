"""The English sentences of the built-in corpus as constituency trees: a small treebank.

Labels and tags are those of the Penn Treebank. The structure is known, since the sentences are made
of phrases; nothing is guessed.
"""

from collections.abc import Iterable

from attendo.data.builtin import lexicon
from attendo.data.builtin.constructs import Sentence
from attendo.data.builtin.phrases import (
    Clause,
    Complement,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Property,
    RelativeClause,
    Subordinate,
)
from attendo.data.builtin.words import Adverb, Modal, Pronoun
from attendo.text.trees import Tree

_TAGS = {
    "my": "PRP$", "our": "PRP$", "two": "CD", "many": "JJ",
    "not": "RB", "can": "MD", "cannot": "MD", "should": "MD", "must": "MD", "to": "TO",
    "do": "VBP", "does": "VBZ", "did": "VBD", "has": "VBZ", "have": "VBP",
    "want": "VBP", "wants": "VBZ", "last": "JJ", "the": "DT", "Sunday": "NNP",
    "now": "RB", "in": "IN", "at": "IN", "on": "IN",
}  # fmt: skip
_AFTER_VERBS = {"asleep": ("ADJP", "JJ"), "TV": ("NP", "NN")}
_BEFORE_OBJECTS = ("for", "to", "after", "at")


def tree_of(sentence: Sentence) -> Tree:
    """Return the tree of the English side.

    >>> from attendo.data.builtin import sentences
    >>> print(tree_of(next(sentences(seed=1))))  # doctest: +ELLIPSIS
    (S ...(. .))
    """
    first, *rest = sentence.parts
    children: list[Tree]
    if isinstance(first, Adverb):
        children = [_adverb(first), *_clause(rest[0]).children]
    elif isinstance(first, Subordinate):
        children = [_subordinate(first), _leaf(",", ","), *_clause(rest[0]).children]
    elif rest:
        conjunction, second = rest
        joint = [_leaf(",", ","), _leaf("CC", conjunction)]
        children = [_clause(first), *joint, _clause(second)]
    else:
        children = list(_clause(first).children)
    return _capitalised(Tree("S", (*children, _leaf(".", "."))))


def _leaf(tag: str, word: str) -> Tree:
    return Tree(tag, (), word)


def _node(label: str, *children: Tree | None) -> Tree:
    return Tree(label, tuple(child for child in children if child is not None))


def _capitalised(tree: Tree) -> Tree:
    if not tree.children:
        return tree._replace(word=tree.word[0].upper() + tree.word[1:])
    return tree._replace(children=(_capitalised(tree.children[0]), *tree.children[1:]))


def _clause(clause: Clause) -> Tree:
    tail = _subordinate(clause.tail) if clause.tail else None
    predicate = _predicate(clause.predicate, clause.subject.person, tail)
    return _node("S", _noun_phrase(clause.subject), predicate)


def _subordinate(part: Subordinate) -> Tree:
    return _node("SBAR", _leaf("IN", part.conjunction), _clause(part.clause))


def _noun_phrase(phrase: NounPhrase | Pronoun, *, is_object: bool = False) -> Tree:
    if isinstance(phrase, Pronoun):
        tag = "NNP" if phrase.english_subject in lexicon.NAMES else "PRP"
        return _node("NP", _leaf(tag, phrase.english_object if is_object else phrase.english()))
    words = phrase._replace(modifier=None).english().split()
    noun = _leaf("NNS" if phrase.is_plural else "NN", words.pop())
    adjective = _leaf("JJ", words.pop()) if phrase.adjective else None
    determiners = (_leaf(_TAGS.get(word, "DT"), word) for word in words)
    inner = _node("NP", *determiners, adjective, noun)
    match phrase.modifier:
        case PrepositionalPhrase() as modifier:
            return _node("NP", inner, _prepositional(modifier))
        case RelativeClause() as modifier:
            return _node("NP", inner, _relative(modifier, phrase))
    return inner


def _prepositional(phrase: PrepositionalPhrase) -> Tree:
    words = (_leaf("IN", word) for word in phrase.preposition.english.split())
    return _node("PP", *words, _noun_phrase(phrase.phrase))


def _relative(clause: RelativeClause, head: NounPhrase) -> Tree:
    word = clause.english(head).split()[0]
    subject = clause.subject
    person = head.person if subject is None else subject.person
    inner = _node("S", subject and _noun_phrase(subject), _predicate(clause.predicate, person))
    return _node("SBAR", _node("WHNP", _leaf("WDT" if word == "that" else "WP", word)), inner)


def _predicate(predicate: Predicate, person: int, tail: Tree | None = None) -> Tree:
    """Return a verb phrase; each auxiliary has the rest of it inside."""
    bare = predicate._replace(complement=None, adverb=None)
    *helpers, verb = _verbs(bare, person)
    adverb = _adverb(predicate.adverb) if predicate.adverb else None
    is_early = predicate.adverb is not None and predicate.adverb.is_early
    early, late = (adverb, None) if is_early else (None, adverb)
    rest = (*_complements(verb, predicate.complement), late, tail)
    first = _leaf(_verb_tag(predicate, person, alone=not helpers), verb.split()[0])
    if predicate.verb is lexicon.BE:
        no = (_leaf("RB", word) for word in verb.split()[1:])
        return _node("VP", first, *no, early, *rest)
    if not helpers:
        return _node("VP", early, first, *rest)
    inner = _node("VP", first, *rest)
    leaves: list[Tree | None] = [_leaf(_TAGS[word], word) for word in helpers]
    return _node("VP", *leaves, early, inner)


def _verbs(bare: Predicate, person: int) -> list[str]:
    """Split a predicate into auxiliaries, with "not", and the verb with its particle."""
    words = bare.english(person).split()
    if bare.verb is lexicon.BE:
        return [" ".join(words)]
    form = bare.verb.participle if bare.tense == "perfect" else bare.verb.base
    n_last = len(form.split())
    return [*words[:-n_last], " ".join(words[-n_last:])]


def _verb_tag(predicate: Predicate, person: int, *, alone: bool) -> str:
    if alone:
        return "VBD" if predicate.tense == "past" else ("VBZ" if person == 1 else "VBP")
    is_perfect = predicate.tense == "perfect" and not isinstance(predicate.tense, Modal)
    return "VBN" if is_perfect else "VB"


def _complements(verb: str, complement: Complement) -> Iterable[Tree | None]:
    """Return what follows the verb: its particle and its complement."""
    phrase = _complement(complement) if complement else None
    _, _, particle = verb.partition(" ")
    if not particle or particle == "not":
        return (phrase,)
    if particle in _BEFORE_OBJECTS:
        return (_node("PP", _leaf("IN", particle), phrase),)
    label, tag = _AFTER_VERBS.get(particle, ("PRT", "RP"))
    return (_node(label, _leaf(tag, particle)), phrase)


def _complement(complement: NounPhrase | Pronoun | PrepositionalPhrase | Property) -> Tree:
    if isinstance(complement, PrepositionalPhrase):
        return _prepositional(complement)
    if isinstance(complement, Property):
        degree = _leaf("RB", complement.degree) if complement.degree else None
        return _node("ADJP", degree, _leaf("JJ", complement.adjective.english))
    return _noun_phrase(complement, is_object=True)


def _adverb(adverb: Adverb) -> Tree:
    words = adverb.english.split()
    if len(words) == 1:
        return _node("ADVP", _leaf("RB", words[0]))
    leaves = [_leaf(_TAGS.get(word, "NN"), word) for word in words]
    if words[0] == "last":
        return _node("NP", *leaves)
    return _node("PP", leaves[0], _node("NP", *leaves[1:]))
