"""The built-in corpus: right German, one reading for the English, nothing held out leaks."""

import json
import os
import re
import subprocess
import sys
from functools import cache
from itertools import islice, pairwise

import pytest

from attendo.data.builtin import Sentence, sentences
from attendo.data.builtin.constructs import coordinated, fronted, statement, subordinate_first
from attendo.data.builtin.drawing import LONGEST, is_held_out
from attendo.data.builtin.lexicon import (
    ADJECTIVES,
    ADVERBS,
    BE,
    DETERMINERS,
    MODALS,
    NAMES,
    NOUNS,
    PREPOSITIONS,
    PRONOUNS,
    REPORTING_VERBS,
    VERBS,
)
from attendo.data.builtin.phrases import (
    Clause,
    NounPhrase,
    Predicate,
    PrepositionalPhrase,
    Property,
    RelativeClause,
    Subordinate,
    pronoun_for,
)

N_TRAINING = 100_000
N_HELD_OUT = 4_000

PROGRAM = """
import itertools, json, sys
from attendo.data.builtin import sentences
seed, n, held_out = json.loads(sys.argv[1])
drawn = itertools.islice(sentences(seed, held_out=held_out), n)
print(json.dumps([sentence[:3] for sentence in drawn]))
"""


def drawn(seed: int, n: int, *, held_out: bool = False, hash_seed: int = 0) -> list[Sentence]:
    """Draw sentences in a process of their own, where no call is slowed down by type checks."""
    arguments = [sys.executable, "-c", PROGRAM, json.dumps([seed, n, held_out])]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    result = subprocess.run(arguments, env=environment, stdout=subprocess.PIPE, check=True)
    return [Sentence(*fields) for fields in json.loads(result.stdout)]


@cache
def stream(held_out: bool) -> list[Sentence]:
    return drawn(3, N_HELD_OUT if held_out else N_TRAINING, held_out=held_out)


# Shorthands for phrases: the English text is enough to find the words.

DETERMINER_OF = {
    form: determiner
    for determiner in DETERMINERS.values()
    for form in (determiner.singular, determiner.plural)
    if form
} | {"an": DETERMINERS["a"]}
NOUN_OF = {form: noun for noun in NOUNS.values() for form in (noun.english, noun.english_plural)}


def np(text: str, modifier: PrepositionalPhrase | RelativeClause | None = None) -> NounPhrase:
    *before, last = text.split()
    determiner = DETERMINER_OF[before.pop(0)] if before and before[0] in DETERMINER_OF else None
    adjective = ADJECTIVES[before[0]] if before else None
    noun = NOUN_OF[last]
    is_plural = last == noun.english_plural
    return NounPhrase(determiner or DETERMINERS["a"], noun, adjective, modifier, is_plural)


def pp(preposition: str, phrase: NounPhrase) -> PrepositionalPhrase:
    return PrepositionalPhrase(PREPOSITIONS[preposition], phrase)


def does(verb: str, *args, **kwargs) -> Predicate:
    return Predicate(VERBS[verb], *args, **kwargs)


def joined(verb: str, tense, phrase: NounPhrase, which: int = 0, **kwargs) -> Predicate:
    preposition = VERBS[verb].frame.prepositions[which]
    return Predicate(VERBS[verb], tense, PrepositionalPhrase(preposition, phrase), **kwargs)


def state(adjective: str, degree: str = "", tense="present", **kwargs) -> Predicate:
    return Predicate(BE, tense, Property(ADJECTIVES[adjective], degree), **kwargs)


def crossing(reason: Predicate, stands_for: str, animal: str = "the animal") -> Sentence:
    subject, street = np(animal), np("the street")
    pronoun = pronoun_for(subject if stands_for == "subject" else street)
    tail = Subordinate("because", Clause(pronoun, reason), stands_for)
    return statement(Clause(subject, does("cross", "past", street, is_negated=True), tail))


GOLD = {
    "the prefix goes to the end of a main clause": (
        statement(Clause(np("the old dog"), does("get up", adverb=ADVERBS["today"]))),
        "The old dog gets up today.",
        "Der alte Hund steht heute auf.",
        0,
    ),
    "the verb follows an adverb in front": (
        fronted(ADVERBS["yesterday"], Clause(np("the child"), does("sleep", "past"))),
        "Yesterday the child slept.",
        "Gestern schlief das Kind.",
        0,
    ),
    "a prefix comes back to its verb in a subordinate clause": (
        statement(
            Clause(
                NAMES["Anna"],
                does("laugh"),
                Subordinate(
                    "because", Clause(PRONOUNS["they"], does("invite", "present", PRONOUNS["she"]))
                ),
            )
        ),
        "Anna laughs because they invite her.",
        "Anna lacht, weil sie sie einladen.",
        0,
    ),
    "a main clause after a subordinate clause begins with its verb": (
        subordinate_first(
            Subordinate("if", Clause(np("my brother"), does("come back"))),
            Clause(PRONOUNS["I"], does("watch TV", is_negated=True)),
        ),
        "If my brother comes back, I do not watch TV.",
        "Wenn mein Bruder zurückkommt, sehe ich nicht fern.",
        0,
    ),
    "a pronoun of the main clause takes the gender of a noun in the clause before": (
        subordinate_first(
            Subordinate(
                "although", Clause(np("the mouse"), state("hungry", "very", "past")), "subject"
            ),
            Clause(pronoun_for(np("the mouse")), does("run away", "past")),
        ),
        "Although the mouse was very hungry, it ran away.",
        "Obwohl die Maus sehr hungrig war, lief sie weg.",
        3,
    ),
    "a modal verb sends the infinitive to the end": (
        statement(
            Clause(
                np("two students"),
                does("buy", MODALS["want to"], np("a new car"), ADVERBS["tomorrow"]),
            )
        ),
        "Two students want to buy a new car tomorrow.",
        "Zwei Studenten wollen morgen ein neues Auto kaufen.",
        0,
    ),
    "need not is not must not": (
        statement(Clause(PRONOUNS["he"], does("wait", MODALS["must"], is_negated=True))),
        "He does not have to wait.",
        "Er muss nicht warten.",
        0,
    ),
    "the participle closes the perfect, with sein for motion": (
        statement(
            Clause(
                np("some birds", pp("in", np("our garden"))),
                does("follow", "perfect", np("the queen"), ADVERBS["often"]),
            )
        ),
        "Some birds in our garden have often followed the queen.",
        "Einige Vögel in unserem Garten sind oft der Königin gefolgt.",
        3,
    ),
    "a verb agrees with its subject over a prepositional phrase": (
        statement(
            Clause(
                np("the key", pp("next to", np("the bottles", pp("in", np("the kitchen"))))),
                state("heavy", "too"),
            )
        ),
        "The key next to the bottles in the kitchen is too heavy.",
        "Der Schlüssel neben den Flaschen in der Küche ist zu schwer.",
        7,
    ),
    "a relative pronoun is a subject": (
        statement(
            Clause(
                np("the women", RelativeClause(does("sell", "past", np("expensive cars")))),
                does("work", "past"),
            )
        ),
        "The women who sold expensive cars worked.",
        "Die Frauen, die teure Autos verkauften, arbeiteten.",
        4,
    ),
    "a relative pronoun takes the case its verb governs": (
        statement(
            Clause(
                np("these bears", RelativeClause(does("help", "perfect"), np("a small boy"))),
                state("thirsty", "", is_negated=True),
            )
        ),
        "These bears that a small boy has helped are not thirsty.",
        "Diese Bären, denen ein kleiner Junge geholfen hat, sind nicht durstig.",
        6,
    ),
    "clauses that end together share a comma": (
        statement(
            Clause(
                PRONOUNS["we"],
                does(
                    "see",
                    "present",
                    np(
                        "a man",
                        RelativeClause(
                            does(
                                "look for",
                                "present",
                                np(
                                    "the hat",
                                    RelativeClause(does("lose", "perfect"), PRONOUNS["I"]),
                                ),
                            )
                        ),
                    ),
                ),
                Subordinate("while", Clause(NAMES["Paul"], does("eat", "present", np("an egg")))),
            )
        ),
        "We see a man who looks for the hat that I have lost while Paul eats an egg.",
        "Wir sehen einen Mann, der den Hut, den ich verloren habe, sucht, "
        "während Paul ein Ei isst.",
        1,
    ),
    "an indefinite object is negated by kein": (
        statement(
            Clause(
                np("my daughter"),
                does("throw away", "past", np("old letters"), ADVERBS["last week"], True),
            )
        ),
        "My daughter did not throw away old letters last week.",
        "Meine Tochter warf letzte Woche keine alten Briefe weg.",
        0,
    ),
    "a pronoun as object stands before the adverb": (
        statement(
            Clause(
                np("the doctor"), does("call", "past", PRONOUNS["he"], ADVERBS["at night"], True)
            )
        ),
        "The doctor did not call him at night.",
        "Die Ärztin rief ihn in der Nacht nicht an.",
        0,
    ),
    "nicht stands before a direction": (
        statement(
            Clause(np("the neighbour"), joined("go", "perfect", np("the park"), is_negated=True))
        ),
        "The neighbour has not gone into the park.",
        "Der Nachbar ist nicht in den Park gegangen.",
        0,
    ),
    "the article melts into a preposition": (
        statement(Clause(np("the ducks"), joined("hurry", "present", np("the old church"), 3))),
        "The ducks hurry to the old church.",
        "Die Enten eilen zur alten Kirche.",
        0,
    ),
    "a verb keeps its own preposition beside its prefix": (
        statement(
            Clause(
                PRONOUNS["I"],
                Predicate(REPORTING_VERBS["know"]),
                Subordinate(
                    "that", Clause(np("our aunt"), joined("look after", "present", np("the baby")))
                ),
            )
        ),
        "I know that our aunt looks after the baby.",
        "Ich weiß, dass unsere Tante auf das Baby aufpasst.",
        0,
    ),
    "and joins without a German comma": (
        coordinated(
            Clause(np("the lion"), does("fall asleep", "past")),
            "and",
            Clause(np("the soup"), state("cold", "rather", "past")),
        ),
        "The lion fell asleep, and the soup was rather cold.",
        "Der Löwe schlief ein und die Suppe war ziemlich kalt.",
        0,
    ),
    "but joins with a comma": (
        coordinated(
            Clause(np("the dog"), does("sleep")), "but", Clause(PRONOUNS["we"], does("work"))
        ),
        "The dog sleeps, but we work.",
        "Der Hund schläft, aber wir arbeiten.",
        0,
    ),
    "it is the animal when it is tired": (
        crossing(state("tired", "too", "past"), "subject"),
        "The animal did not cross the street because it was too tired.",
        "Das Tier überquerte die Straße nicht, weil es zu müde war.",
        6,
    ),
    "it is the street when it is wide": (
        crossing(state("wide", "too", "past"), "object"),
        "The animal did not cross the street because it was too wide.",
        "Das Tier überquerte die Straße nicht, weil sie zu breit war.",
        1,
    ),
    "it is masculine for a dog": (
        crossing(state("tired", "too", "past"), "subject", "the dog"),
        "The dog did not cross the street because it was too tired.",
        "Der Hund überquerte die Straße nicht, weil er zu müde war.",
        6,
    ),
}


@pytest.mark.parametrize("claim", GOLD)
def test_construct_is_said_as_a_speaker_would(claim: str):
    sentence, english, german, distance = GOLD[claim]
    assert sentence[:3] == (english, german, distance)


DECLENSIONS = {
    "the old dog": "der alte Hund, den alten Hund, dem alten Hund",
    "the young cat": "die junge Katze, die junge Katze, der jungen Katze",
    "the dark room": "das dunkle Zimmer, das dunkle Zimmer, dem dunklen Zimmer",
    "the tired boys": "die müden Jungen, die müden Jungen, den müden Jungen",
    "this brave boy": "dieser mutige Junge, diesen mutigen Jungen, diesem mutigen Jungen",
    "these houses": "diese Häuser, diese Häuser, diesen Häusern",
    "a sour apple": "ein saurer Apfel, einen sauren Apfel, einem sauren Apfel",
    "a narrow street": "eine schmale Straße, eine schmale Straße, einer schmalen Straße",
    "an expensive book": "ein teures Buch, ein teures Buch, einem teuren Buch",
    "white horses": "weiße Pferde, weiße Pferde, weißen Pferden",
    "cars": "Autos, Autos, Autos",
    "no lazy pig": "kein faules Schwein, kein faules Schwein, keinem faulen Schwein",
    "my clever sister": "meine kluge Schwester, meine kluge Schwester, meiner klugen Schwester",
    "our big elephant": "unser großer Elefant, unseren großen Elefanten, unserem großen Elefanten",
    "our old teachers": "unsere alten Lehrer, unsere alten Lehrer, unseren alten Lehrern",
    "two sad men": "zwei traurige Männer, zwei traurige Männer, zwei traurigen Männern",
    "many fresh eggs": "viele frische Eier, viele frische Eier, vielen frischen Eiern",
    "some new keys": "einige neue Schlüssel, einige neue Schlüssel, einigen neuen Schlüsseln",
}


@pytest.mark.parametrize("english", DECLENSIONS)
def test_noun_phrase_agrees_in_gender_case_and_number(english: str):
    phrase = np(english)
    german = [phrase.german(case) for case in ("nominative", "accusative", "dative")]
    assert phrase.english() == english
    assert ", ".join(german) == DECLENSIONS[english]


def test_article_stays_whole_before_a_relative_clause():
    beautiful = RelativeClause(state("beautiful"))
    assert pp("in", np("the park")).german() == "im Park"
    assert pp("in", np("the park", beautiful)).german() == "in dem Park, der schön ist,"


def test_pronouns_follow_people_by_sex_and_all_else_by_gender():
    chosen = {
        text: (pronoun_for(np(text)).english(), pronoun_for(np(text)).german("nominative"))
        for text in ("the man", "the doctor", "the child", "the key", "the lamp", "the keys")
    }
    assert chosen == {
        "the man": ("he", "er"),
        "the doctor": ("she", "sie"),
        "the child": ("it", "es"),
        "the key": ("it", "er"),
        "the lamp": ("it", "sie"),
        "the keys": ("they", "sie"),
    }


def test_english_forms_have_one_reading():
    assert all(noun.english != noun.english_plural for noun in NOUNS.values())
    assert all(not set(verb.past) & set(verb.present) for verb in VERBS.values())
    assert len(NOUN_OF) == 2 * len(NOUNS)
    assert len({noun.singular for noun in NOUNS.values()}) == len(NOUNS)


def test_every_gender_has_a_fair_share_of_nouns():
    genders = [noun.gender for noun in NOUNS.values()]
    assert all(genders.count(gender) >= len(genders) / 5 for gender in "mfn")


def test_same_seed_gives_the_same_sentences_and_another_seed_others():
    first = list(islice(sentences(1), 100))
    assert first == list(islice(sentences(1), 100))
    others = islice(sentences(2), 100)
    assert not {one.source for one in first} & {one.source for one in others}


def test_stream_does_not_depend_on_the_hashes_of_a_process():
    here = [Sentence(*one[:3]) for one in islice(sentences(1), 50)]
    assert here == drawn(1, 50, hash_seed=1) == drawn(1, 50, hash_seed=2)


def test_english_determines_the_german():
    german: dict[str, str] = {}
    for sentence in (*stream(False), *stream(True)):
        assert german.setdefault(sentence.source, sentence.target) == sentence.target


def combinations(sentence: Sentence) -> set[tuple[str, str]]:
    """Find each adjective that stands right before a noun, in the English text."""
    return {
        (before, NOUN_OF[after.rstrip(".,")].english)
        for before, after in pairwise(sentence.source.lower().split())
        if before in ADJECTIVES and after.rstrip(".,") in NOUN_OF
    }


def holds_out(sentence: Sentence) -> bool:
    return any(
        is_held_out(ADJECTIVES[adjective], NOUNS[noun])
        for adjective, noun in combinations(sentence)
    )


def test_training_stream_has_no_held_out_combination():
    assert not any(map(holds_out, stream(False)))


def test_every_held_out_sentence_has_a_held_out_combination():
    assert all(map(holds_out, stream(True)))


def test_one_in_ten_combinations_is_held_out_and_no_noun_is_left_without_adjectives():
    fitting = [
        (noun, is_held_out(adjective, noun))
        for noun in NOUNS.values()
        for adjective in ADJECTIVES.values()
        if noun.kind in adjective.kinds
    ]
    assert 0.07 < sum(held_out for _, held_out in fitting) / len(fitting) < 0.13
    assert {noun for noun, held_out in fitting if not held_out} == set(NOUNS.values())


def words(stream: list[Sentence]) -> set[str]:
    return {
        word.lower()
        for sentence in stream
        for word in re.findall(r"\w+", f"{sentence.source} {sentence.target}")
    }


def test_every_word_of_the_held_out_stream_is_in_training():
    assert words(stream(True)) <= words(stream(False))


def test_every_noun_verb_and_adjective_is_in_training():
    seen = words(stream(False))
    assert {noun.singular.lower() for noun in NOUNS.values()} <= seen
    assert {adjective.english for adjective in ADJECTIVES.values()} <= seen
    assert {verb.infinitive for verb in (*VERBS.values(), *REPORTING_VERBS.values())} <= seen


def test_sentences_are_spelled_as_text():
    shape = re.compile(r"[A-ZÄÖÜ]\w*(,? \w+)+\.")
    for sentence in stream(False):
        assert shape.fullmatch(sentence.source), sentence
        assert shape.fullmatch(sentence.target), sentence


def test_lengths_reach_from_short_to_the_longest():
    lengths = sorted(len(sentence.source.split()) for sentence in stream(False))
    assert lengths[0] >= 2
    assert lengths[-1] == LONGEST
    assert lengths[len(lengths) // 10] <= 7
    assert lengths[len(lengths) * 9 // 10] >= 20


def test_dependencies_reach_from_none_to_long_and_fit_their_sentence():
    assert set(range(16)) <= {sentence.distance for sentence in stream(False)}
    assert all(sentence.distance <= len(sentence.source.split()) - 2 for sentence in stream(False))


def test_sentences_hardly_ever_repeat():
    assert len({sentence.source for sentence in stream(False)}) > 0.99 * N_TRAINING
