"""Running text divided into sentences and words, for any language, by rules.

Nothing is lost: the sentences with the white space between them are the text. Where a rule is
unsure it does not split: two sentences translated together do less harm than half a sentence.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_STOPS = ".!?…‽؟"
# These end a sentence even where no space follows.
_FULL_STOPS = "。！？｡।॥۔։።။។"
_OPENERS = "\"'“‘„‚«‹»›(\\[{¿¡「『（《〈*_–—-"
_CLOSERS = "\"'”’“‘»›«‹)\\]}」』）》〉*_"
_EMOJIS = "\U0001f000-\U0001faff\u2600-\u27bf\ufe0f\u200d"

# Possessive, and with parts that may be empty: a run of stops is read once, however long it is.
_STOP = re.compile(
    rf"(?P<stop>[{_STOPS}{_FULL_STOPS}]++)(?P<close>(?:[{_CLOSERS}]| ?[{_EMOJIS}])*+)(?P<gap>\s*+)"
)
_BREAKS = "\n\r\u2028\u2029"
_LINE_BREAK = re.compile(rf"(?<!\s)\s*?[{_BREAKS}]\s*+")
_HAS_BREAK = re.compile(f"[{_BREAKS}]")
_ONE_SENTENCE = re.compile(rf"(?!\s)[^{_STOPS}{_FULL_STOPS}{_BREAKS}]++[{_STOPS}]?+(?<!\s)")
_LAST_WORDS = re.compile(rf"(?:(\S+)\s+)?[{_OPENERS}]*+([^\s{_OPENERS}]*)$")


def _words_of(*texts: str) -> frozenset[str]:
    return frozenset(" ".join(texts).split())


_ABBREVIATIONS = _words_of(
    # English
    "Mr Mrs Ms Mx Dr Prof Rev Hon Gen Col Maj Capt Cmdr Lt Sgt Sen Rep Gov Pres St Mt Messrs",
    "vs viz cf approx dept incl resp",
    # German
    "Hr Fr Frl Hrsg Dipl Ing bzw ca evtl ggf inkl exkl sog vgl bspw geb zzgl abzgl stellv",
    # French, Spanish, Italian, Portuguese, Dutch
    "Mme Mlle Mgr MM env Sr Sra Srta Dra Ud Uds Sig Dott dhr mevr bijv",
)
"""Words with a full stop that does not end a sentence."""

_BEFORE_NUMBERS = _words_of(
    "no nos nr art abs abb fig figs eq p pp vol ch sec kap bd tab al max min str núm pág",
    "jan feb mar apr jun jul aug sep sept oct okt nov dec dez",
)
"""Words whose full stop does not end a sentence before a number."""

_BEFORE_ORDINALS = _words_of(
    "vom zum beim im bis seit der das dem des ein eine einen einem einer jeder jede jedes jeden"
)
"""German words after which "3." is an ordinal number ("der 3. Mann"); none is English, too."""

_AFTER_ORDINALS = _words_of(
    "januar jänner februar märz april mai juni juli august september oktober november dezember",
    "jahrhundert jahrhunderts jahrtausend tag klasse auflage kapitel",
)
"""German words before which it is: "am 3. Mai"."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A sentence and the white space that follows it."""

    text: str
    """The sentence; empty for the white space at the beginning of a text."""
    gap: str


def split_sentences(text: str) -> list[Segment]:
    r"""Split a text into sentences; every line break ends one.

    >>> [segment.text for segment in split_sentences("Dr. Who left at 3.15 p.m. He's back!\nNo?")]
    ['Dr. Who left at 3.15 p.m.', "He's back!", 'No?']
    """
    return list(iterate_sentences(text))


def iterate_sentences(text: str) -> Iterator[Segment]:
    """Yield the sentences of a text one by one, so that a huge text takes little memory."""
    start = len(text) - len(text.lstrip())
    if start:
        yield Segment("", text[:start])
    for end, following in _line_ends(text, start):
        if start < end:
            yield from _split_line(text[start:end], text[end:following])
        start = following


def divide(text: str, sentences: int, limit: int) -> Iterator[Segment]:
    """Split a text into segments of so many sentences, within a line and a limit of characters.

    White space at the beginning of the text is left out.
    """
    if len(text) <= limit and _ONE_SENTENCE.fullmatch(text):
        yield Segment(text, "")  # most texts that are sentences already
        return
    held: list[Segment] = []
    for sentence in iterate_sentences(text):
        held += _bounded(sentence, limit)
        if len(held) >= sentences or not sentence.text or _LINE_BREAK.search(sentence.gap):
            yield from _grouped(held, sentences)
            held = []
    yield from _grouped(held, sentences)


def _bounded(sentence: Segment, limit: int) -> Iterator[Segment]:
    """Cut text that is too long for a sentence, at white space if possible."""
    start, text = 0, sentence.text
    while len(text) - start > limit:
        space = max(text.rfind(" ", start, start + limit), text.rfind("\t", start, start + limit))
        end = space if space > start else start + limit
        yield Segment(text[start:end], text[end : end + (space > start)])
        start = end + (space > start)
    if text:
        yield Segment(text[start:], sentence.gap)


def _grouped(sentences: list[Segment], size: int) -> Iterator[Segment]:
    for start in range(0, len(sentences), size):
        *others, last = sentences[start : start + size]
        yield Segment("".join(one.text + one.gap for one in others) + last.text, last.gap)


def _line_ends(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Find where each line ends and where the next one begins."""
    if _HAS_BREAK.search(text, start):  # which is found out much faster than where it is
        for match in _LINE_BREAK.finditer(text, start):
            yield match.span()
    yield max(start, len(text.rstrip())), len(text)


def _split_line(line: str, gap: str) -> Iterator[Segment]:
    """Split a line that neither begins nor ends with white space; the gap follows its end."""
    start = 0
    is_lower = line.islower()
    for match in _STOP.finditer(line):
        if match.end() < len(line) and _ends_sentence(line, start, match, is_lower=is_lower):
            end = match.start("gap")
            yield Segment(line[start:end], match["gap"])
            start = match.end()
    yield Segment(line[start:], gap)


def _ends_sentence(line: str, start: int, match: re.Match[str], *, is_lower: bool) -> bool:
    """Return whether a sentence that began at `start` ends with this stop."""
    stop, close, gap = match["stop"], match["close"], match["gap"]
    following = line[match.end() : match.end() + 40]
    if not set(stop).isdisjoint(_FULL_STOPS):
        # A quotation after which the sentence continues: 「行く。」と言った。
        return not close or bool(gap) or following[0] in "「『（《“‘"
    if not gap:
        return False
    word = following.lstrip(_OPENERS.replace("\\", ""))
    # Where nothing is written in capitals, small letters are no hint.
    if word[:1].islower() and not is_lower and (stop[0] in ".…" or close):
        return False
    return stop != "." or bool(close) or not _is_abbreviated(line, start, match.start(), word)


def _is_abbreviated(line: str, start: int, stop: int, following: str) -> bool:
    """Return whether the word before a full stop is an abbreviation or an ordinal number."""
    found = _LAST_WORDS.search(line, max(start, stop - 60), stop)
    assert found, "the pattern matches any text"
    previous, word = found[1], found[2]
    if word.isdecimal():
        is_first = stop - len(word) == start  # "1. The dog": an enumeration
        return len(word) <= 3 and (is_first or _is_ordinal(word, previous, following))
    if len(word) == 1:
        return word.lower() != word.upper()  # an initial, "z. B."; not one ideograph
    if "." in word:  # "e.g.", "U.S."
        parts = word.split(".")
        return word not in ("a.m", "p.m") and all(len(part) <= 1 for part in parts)
    if word in _ABBREVIATIONS or (word.isupper() and word.title() in _ABBREVIATIONS):
        return True
    return word.lower() in _BEFORE_NUMBERS and following[:1].isdecimal()


def _is_ordinal(number: str, previous: str | None, following: str) -> bool:
    if len(number) > 2:
        return False
    next_word = re.split(r"\W", following, maxsplit=1)[0]
    return (previous or "").lower() in _BEFORE_ORDINALS or next_word.lower() in _AFTER_ORDINALS


# Scripts without spaces between words: each character counts as a word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
# Vowel signs and accents that Python does not count as letters.
_MARKS = "".join(
    chr(code) for code in range(0x300, 0x1E00) if unicodedata.category(chr(code))[0] == "M"
)
_LETTER = rf"[^\W\d_{_UNSPACED}]"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTER}++(?:[{_MARKS}]++{_LETTER}*+|['’]{_LETTER}++)*+")


def iterate_words(text: str) -> Iterator[str]:
    """Yield the words of a text, in order, without numbers and punctuation.

    >>> list(iterate_words("Don't feed the 12 well-known cats!"))
    ["Don't", 'feed', 'the', 'well', 'known', 'cats']
    """
    yield from _WORD.findall(unicodedata.normalize("NFC", text))


def fold_case(text: str) -> str:
    """Return words in the form in which they are compared."""
    return text.casefold().replace("’", "'")


class WordCounter:
    """Counts the words of a corpus in bounded memory."""

    LIMIT = 500_000
    """Words that are kept, the most frequent; more distinct words than most languages need."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> None:
        """Count the words of some texts."""
        # All at once, which is several times as fast; no word contains a line end.
        self._counts.update(iterate_words(fold_case("\n".join(texts))))
        if len(self._counts) > 2 * self.LIMIT:
            self._counts = Counter(dict(self._counts.most_common(self.LIMIT)))

    def words(self) -> list[str]:
        """List the words, the most frequent first."""
        return [word for word, _ in self._counts.most_common(self.LIMIT)]
