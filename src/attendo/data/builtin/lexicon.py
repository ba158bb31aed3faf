"""The words of the built-in corpus, English and German, with every form that the grammar needs.

The tables read like those of a grammar book. No English noun equals its plural and no verb its
past, so that a sentence is never ambiguous. What can be said of what (dogs sleep,
streets are wide) is settled by the six kinds of nouns.
"""

import re
from collections.abc import Iterator

from attendo.data.builtin.words import (
    CASES,
    COLUMNS,
    KINDS,
    LIVING,
    PERSON,
    Adjective,
    Adverb,
    Column,
    Determiner,
    Forms,
    Frame,
    Kind,
    Kinds,
    Modal,
    Noun,
    Persons,
    Preposition,
    Pronoun,
    Verb,
)


def _rows(table: str) -> Iterator[list[str]]:
    """Split a table into lines, and lines into columns at two or more spaces."""
    return (re.split(r"\s{2,}", line.strip()) for line in table.strip().splitlines())


def _items(table: str) -> Iterator[list[str]]:
    """Split a table into items at commas, and items into words."""
    return (item.split() for item in table.split(",") if item.strip())


def _kinds(names: str) -> Kinds:
    return tuple(kind for kind in KINDS if kind in names.split())


def _forms(nominative: str, accusative: str, dative: str, stem: str = "") -> Forms:
    """Read a line of forms (m, f, n, plural) for each case; a hyphen is an empty form."""
    return {
        (case, column): stem + form.strip("-")
        for case, line in zip(CASES, (nominative, accusative, dative), strict=True)
        for column, form in zip(COLUMNS, line.split(), strict=True)
    }


_NOUNS: dict[Kind, str] = {
    "person": """
        man men der Mann Männer,                          woman women die Frau Frauen,
        boy boys der Junge Jungen weak,                   child children das Kind Kinder,
        teacher teachers der Lehrer Lehrer,               doctor doctors die Ärztin Ärztinnen,
        guest guests der Gast Gäste,                      pilot pilots die Pilotin Pilotinnen,
        brother brothers der Bruder Brüder,               sister sisters die Schwester Schwestern,
        son sons der Sohn Söhne,                          daughter daughters die Tochter Töchter,
        farmer farmers der Bauer Bauern weak,             queen queens die Königin Königinnen,
        student students der Student Studenten weak,      aunt aunts die Tante Tanten,
        neighbour neighbours der Nachbar Nachbarn weak,   baby babies das Baby Babys,
        """,
    "animal": """
        dog dogs der Hund Hunde,                          cat cats die Katze Katzen,
        animal animals das Tier Tiere,                    bird birds der Vogel Vögel,
        mouse mice die Maus Mäuse,                        horse horses das Pferd Pferde,
        bear bears der Bär Bären weak,                    cow cows die Kuh Kühe,
        pig pigs das Schwein Schweine,                    lion lions der Löwe Löwen weak,
        duck ducks die Ente Enten,                        camel camels das Kamel Kamele,
        fox foxes der Fuchs Füchse,                       goat goats die Ziege Ziegen,
        elephant elephants der Elefant Elefanten weak,    chicken chickens das Huhn Hühner,
        rabbit rabbits das Kaninchen Kaninchen,
        """,
    "thing": """
        key keys der Schlüssel Schlüssel,                 lamp lamps die Lampe Lampen,
        book books das Buch Bücher,                       letter letters der Brief Briefe,
        clock clocks die Uhr Uhren,                       car cars das Auto Autos,
        chair chairs der Stuhl Stühle,                    bag bags die Tasche Taschen,
        knife knives das Messer Messer,                   hat hats der Hut Hüte,
        shirt shirts das Hemd Hemden,                     picture pictures das Bild Bilder,
        coat coats der Mantel Mäntel,                     bicycle bicycles das Fahrrad Fahrräder,
        umbrella umbrellas der Regenschirm Regenschirme,  bottle bottles die Flasche Flaschen,
        guitar guitars die Gitarre Gitarren,              gift gifts das Geschenk Geschenke,
        """,
    "food": """
        apple apples der Apfel Äpfel,                     pear pears die Birne Birnen,
        egg eggs das Ei Eier,                             cake cakes der Kuchen Kuchen,
        soup soups die Suppe Suppen,                      carrot carrots die Karotte Karotten,
        """,
    "place": """
        garden gardens der Garten Gärten,                 school schools die Schule Schulen,
        house houses das Haus Häuser,                     forest forests der Wald Wälder,
        city cities die Stadt Städte,                     village villages das Dorf Dörfer,
        park parks der Park Parks,                        church churches die Kirche Kirchen,
        room rooms das Zimmer Zimmer,                     station stations der Bahnhof Bahnhöfe,
        castle castles das Schloss Schlösser,             kitchen kitchens die Küche Küchen,
        library libraries die Bibliothek Bibliotheken,    museum museums das Museum Museen,
        """,
    "road": """
        river rivers der Fluss Flüsse,                    street streets die Straße Straßen,
        field fields das Feld Felder,                     path paths der Weg Wege,
        bridge bridges die Brücke Brücken,                square squares der Platz Plätze,
        """,
}


def _noun(kind: Kind, item: list[str]) -> Noun:
    english, english_plural, article, singular, plural, *weak = item
    genders: dict[str, Column] = {"der": "m", "die": "f", "das": "n"}
    return Noun(english, english_plural, genders[article], singular, plural, bool(weak), kind)


NOUNS = {item[0]: _noun(kind, item) for kind, table in _NOUNS.items() for item in _items(table)}

# English, German and, where it differs, the German stem.
_ADJECTIVES = {
    "person animal thing place": "old alt, strange seltsam",
    "person animal thing food place": "small klein",
    "person animal thing place road": "beautiful schön",
    "person place road": "famous berühmt",
    "person animal": """
        young jung, tired müde müd, hungry hungrig, thirsty durstig, sad traurig, ill krank,
        happy glücklich, strong stark, brave mutig, clever klug, lazy faul, angry wütend,
        friendly freundlich, curious neugierig
        """,
    "animal thing food place": "big groß",
    "animal thing place": "white weiß",
    "animal thing": "brown braun",
    "thing food place road": "dirty schmutzig",
    "thing place road": "new neu",
    "thing place": "modern modern",
    "thing food": "expensive teuer teur, cheap billig",
    "thing": "heavy schwer, broken kaputt",
    "food place": "cold kalt",
    "food": "sour sauer saur, fresh frisch",
    "place road": "dark dunkel dunkl, empty leer, dangerous gefährlich",
    "road": "wide breit, narrow schmal, long lang",
}
ADJECTIVES = {
    item[0]: Adjective(item[0], item[1], item[-1], _kinds(kinds))
    for kinds, table in _ADJECTIVES.items()
    for item in _items(table)
}
DEGREES = {"": "", "very": "sehr", "too": "zu", "so": "so", "rather": "ziemlich"}

_STRONG = _forms("er e es e", "en e es e", "em er em en")
_WEAK = _forms("e e e en", "en e e en", "en en en en")
_MIXED = _forms("er e es en", "en e es en", "en en en en")
# Nothing stands before a plural (a dog, old dogs), so that adjectives have strong endings there.
_MIXED_STRONG = {key: (_STRONG if key[1] == "p" else _MIXED)[key] for key in _MIXED}
_THE = _forms("er ie as ie", "en ie as ie", "em er em en", "d")
_THIS = _forms("er e es e", "en e es e", "em er em en", "dies")
_A = _forms("ein eine ein -", "einen eine ein -", "einem einer einem -")
_EIN = ("- e - e", "en e - e", "em er em en")
_PLURAL = ("- - - e", "- - - e", "- - - en")
DETERMINERS = {
    "the": Determiner("the", "the", _THE, _WEAK),
    "this": Determiner("this", "these", _THIS, _WEAK),
    "a": Determiner("a", "", _A, _MIXED_STRONG),
    "no": Determiner("no", "no", _forms(*_EIN, "kein"), _MIXED),
    "my": Determiner("my", "my", _forms(*_EIN, "mein"), _MIXED),
    "our": Determiner("our", "our", _forms(*_EIN, "unser"), _MIXED),
    "two": Determiner(None, "two", dict.fromkeys(_STRONG, "zwei"), _STRONG),
    "many": Determiner(None, "many", _forms(*_PLURAL, "viel"), _STRONG),
    "some": Determiner(None, "some", _forms(*_PLURAL, "einig"), _STRONG),
}

# English, German, the case, what it can stand before and what it can stand after.
PREPOSITIONS = {
    row[0]: Preposition(row[0], row[1], CASES[CASES.index(row[2])], _kinds(row[3]), _kinds(row[4]))
    for row in _rows("""
        next to      neben    dative       person animal thing place    person animal thing place
        behind       hinter   dative       person animal place          person animal thing place
        in front of  vor      dative       person animal place          person animal thing place
        in           in       dative       place                        person animal thing food
        on           auf      dative       road                         person animal
        from         aus      dative       place                        person animal thing
        with         mit      dative       animal thing                 person
        without      ohne     accusative   animal thing                 person
        for          für      accusative   person animal                thing food
        """)
}
CONTRACTIONS = {"in dem": "im", "in das": "ins", "von dem": "vom", "zu dem": "zum", "zu der": "zur"}

_WHITHER = (
    Preposition("into", "in", "accusative", ("place",)),
    Preposition("through", "durch", "accusative", ("place",)),
    Preposition("across", "über", "accusative", ("road",)),
    Preposition("to", "zu", "dative", ("person", "place")),
)
_ANY: Kinds = ("person", "animal", "thing")
_VERBS = {
    Frame(LIVING): """
        sleep slept slept            schlafen      schläft        schlief       hat geschlafen
        fall fell fallen asleep      einschlafen   schläft ein    schlief ein   ist eingeschlafen
        wake woke woken up           aufwachen     wacht auf      wachte auf    ist aufgewacht
        get got got up               aufstehen     steht auf      stand auf     ist aufgestanden
        wait waited waited           warten        wartet         wartete       hat gewartet
        come came come back          zurückkommen  kommt zurück   kam zurück    ist zurückgekommen
        run ran run away             weglaufen     läuft weg      lief weg      ist weggelaufen
        """,
    Frame(PERSON): """
        laugh laughed laughed        lachen        lacht          lachte        hat gelacht
        work worked worked           arbeiten      arbeitet       arbeitete     hat gearbeitet
        sing sang sung               singen        singt          sang          hat gesungen
        dance danced danced          tanzen        tanzt          tanzte        hat getanzt
        go went gone out             ausgehen      geht aus       ging aus      ist ausgegangen
        watch watched watched TV     fernsehen     sieht fern     sah fern      hat ferngesehen
        """,
    Frame(LIVING, ("person", "animal", "thing", "food", "place")): """
        see saw seen                 sehen         sieht          sah           hat gesehen
        find found found             finden        findet         fand          hat gefunden
        look looked looked for       suchen        sucht          suchte        hat gesucht
        """,
    Frame(LIVING, LIVING): """
        hear heard heard             hören         hört           hörte         hat gehört
        know knew known              kennen        kennt          kannte        hat gekannt
        watch watched watched        beobachten    beobachtet     beobachtete   hat beobachtet
        """,
    Frame(LIVING, LIVING, "dative"): """
        help helped helped           helfen        hilft          half          hat geholfen
        follow followed followed     folgen        folgt          folgte        ist gefolgt
        trust trusted trusted        vertrauen     vertraut       vertraute     hat vertraut
        listen listened listened to  zuhören       hört zu        hörte zu      hat zugehört
        run ran run after            nachlaufen    läuft nach     lief nach     ist nachgelaufen
        """,
    Frame(PERSON, PERSON): """
        visit visited visited        besuchen      besucht        besuchte      hat besucht
        call called called           anrufen       ruft an        rief an       hat angerufen
        invite invited invited       einladen      lädt ein       lud ein       hat eingeladen
        collect collected collected  abholen       holt ab        holte ab      hat abgeholt
        """,
    Frame(PERSON, ("thing", "food")): """
        buy bought bought            kaufen        kauft          kaufte        hat gekauft
        sell sold sold               verkaufen     verkauft       verkaufte     hat verkauft
        forget forgot forgotten      vergessen     vergisst       vergaß        hat vergessen
        bring brought brought along  mitbringen    bringt mit     brachte mit   hat mitgebracht
        throw threw thrown away      wegwerfen     wirft weg      warf weg      hat weggeworfen
        """,
    Frame(PERSON, ("thing",)): """
        repair repaired repaired     reparieren    repariert      reparierte    hat repariert
        lose lost lost               verlieren     verliert       verlor        hat verloren
        draw drew drawn              zeichnen      zeichnet       zeichnete     hat gezeichnet
        """,
    Frame(PERSON, ("food",)): """
        eat ate eaten                essen         isst           aß            hat gegessen
        order ordered ordered        bestellen     bestellt       bestellte     hat bestellt
        """,
    Frame(PERSON, ("place",)): """
        leave left left              verlassen     verlässt       verließ       hat verlassen
        tidy tidied tidied up        aufräumen     räumt auf      räumte auf    hat aufgeräumt
        look looked looked at        ansehen       sieht an       sah an        hat angesehen
        """,
    Frame(LIVING, ("road",)): """
        cross crossed crossed        überqueren    überquert      überquerte    hat überquert
        reach reached reached        erreichen     erreicht       erreichte     hat erreicht
        """,
    Frame(LIVING, prepositions=_WHITHER): """
        run ran run                  laufen        läuft          lief          ist gelaufen
        go went gone                 gehen         geht           ging          ist gegangen
        hurry hurried hurried        eilen         eilt           eilte         ist geeilt
        """,
    Frame(LIVING, prepositions=(Preposition("for", "auf", "accusative", LIVING),)): """
        wait waited waited           warten        wartet         wartete       hat gewartet
        """,
    Frame(PERSON, prepositions=(Preposition("after", "auf", "accusative", _ANY),)): """
        look looked looked           aufpassen     passt auf      passte auf    hat aufgepasst
        """,
    Frame(PERSON, prepositions=(Preposition("of", "an", "accusative", _ANY),)): """
        think thought thought        denken        denkt          dachte        hat gedacht
        """,
    Frame(PERSON, prepositions=(Preposition("of", "von", "dative", _ANY),)): """
        dream dreamed dreamed        träumen       träumt         träumte       hat geträumt
        """,
    Frame(PERSON, prepositions=(Preposition("at", "über", "accusative", _ANY),)): """
        laugh laughed laughed        lachen        lacht          lachte        hat gelacht
        """,
}
# What people say or think, in a clause with "that".
_REPORTING_VERBS = """
        say said said                sagen         sagt           sagte         hat gesagt
        believe believed believed    glauben       glaubt         glaubte       hat geglaubt
        know knew known              wissen        weiß           wusste        hat gewusst
        hope hoped hoped             hoffen        hofft          hoffte        hat gehofft
        notice noticed noticed       bemerken      bemerkt        bemerkte      hat bemerkt
        """
_HAT: Persons = ("habe", "hat", "haben")
_IST: Persons = ("bin", "ist", "sind")


def _third_person(base: str) -> str:
    """Add -s to the first word of an English verb."""
    first, *particle = base.split()
    if first.endswith("y") and first[-2] not in "aeiou":
        first = first[:-1] + "ie"
    elif first.endswith(("s", "ch", "sh", "o")):
        first += "e"
    return " ".join([first + "s", *particle])


def _verb(frame: Frame, row: list[str]) -> Verb:
    """Read three English forms, perhaps with a particle, and four German ones."""
    forms, infinitive, present, past, perfect = row
    *english, particle = f"{forms} ".split(" ", 3)
    base, english_past, participle = (f"{form} {particle}".strip() for form in english)
    auxiliary, german_participle = perfect.split()
    present, _, prefix = present.partition(" ")
    past, _, _ = past.partition(" ")
    plural = infinitive.removeprefix(prefix)
    return Verb(
        frame=frame,
        base=base,
        present=(base, _third_person(base), base),
        past=(english_past, english_past, english_past),
        participle=participle,
        infinitive=infinitive,
        prefix=prefix,
        # A third person without -t is also the first: er weiß, ich weiß.
        german_present=(plural[:-1] if present.endswith("t") else present, present, plural),
        german_past=(past, past, past.removesuffix("e") + "en"),
        german_participle=german_participle,
        auxiliary=_IST if auxiliary == "ist" else _HAT,
    )


def _name(verb: Verb) -> str:
    """Return the name of a verb with its preposition: wait, wait for."""
    prepositions = verb.frame.prepositions
    return f"{verb.base} {prepositions[0].english}" if len(prepositions) == 1 else verb.base


VERBS = {
    _name(verb): verb
    for frame, table in _VERBS.items()
    for verb in (_verb(frame, row) for row in _rows(table))
}
REPORTING_VERBS = {row[0].split()[0]: _verb(Frame(PERSON), row) for row in _rows(_REPORTING_VERBS)}
BE = Verb(
    frame=Frame(KINDS),
    base="be",
    present=("am", "is", "are"),
    past=("was", "was", "were"),
    participle="been",
    infinitive="sein",
    prefix="",
    german_present=_IST,
    german_past=("war", "war", "waren"),
    german_participle="gewesen",
    auxiliary=_IST,
)
# After I and they, after it; both negated; the German singular and plural.
MODALS = {
    row[0]: Modal((row[0], row[1], row[0]), (row[2], row[3], row[2]), (row[4], row[4], row[5]))
    for row in _rows("""
        can      can       cannot           cannot             kann     können
        should   should    should not       should not         sollte   sollten
        must     must      do not have to   does not have to   muss     müssen
        want to  wants to  do not want to   does not want to   will     wollen
        """)
}


def _pronoun(english: str, english_object: str, german: str, person: int) -> Pronoun:
    return Pronoun(english, english_object, dict(zip(CASES, german.split(), strict=True)), person)


PRONOUNS = {
    "I": _pronoun("I", "me", "ich mich mir", 0),
    "we": _pronoun("we", "us", "wir uns uns", 2),
    "he": _pronoun("he", "him", "er ihn ihm", 1),
    "she": _pronoun("she", "her", "sie sie ihr", 1),
    "they": _pronoun("they", "them", "sie sie ihnen", 2),
}
# One word in English, three in German: the gender is that of the noun it stands for.
IT: dict[Column, Pronoun] = {
    "m": _pronoun("it", "it", "er ihn ihm", 1),
    "f": _pronoun("it", "it", "sie sie ihr", 1),
    "n": _pronoun("it", "it", "es es ihm", 1),
}
NAMES = {
    name: _pronoun(name, name, f"{name} {name} {name}", 1)
    for name in ("Anna", "Paul", "Maria", "Felix", "Clara", "Jonas")
}
RELATIVE_PRONOUNS = _forms("er ie as ie", "en ie as ie", "em er em enen", "d")

ADVERBS = {
    row[0]: Adverb(row[0], row[1], row[2] == "early", tuple(row[3].split()))
    for row in _rows("""
        often            oft               early    present past perfect
        always           immer             early    present past perfect
        sometimes        manchmal          early    present past perfect
        rarely           selten            early    present past perfect
        probably         wahrscheinlich    early    present past perfect
        today            heute             late     present past perfect modal
        now              jetzt             late     present modal
        yesterday        gestern           late     past
        tomorrow         morgen            late     modal
        last week        letzte Woche      late     past
        last summer      letzten Sommer    late     past
        in the morning   am Morgen         late     present past modal
        in the evening   am Abend          late     present past modal
        at night         in der Nacht      late     present past modal
        on Sunday        am Sonntag        late     past modal
        """)
}
SUBORDINATORS = {
    "because": "weil",
    "although": "obwohl",
    "while": "während",
    "before": "bevor",
    "if": "wenn",
    "that": "dass",
}
COORDINATORS = {"and": (", and", " und"), "but": (", but", ", aber")}
