"""The large English-German mixture: from data sets as they come to files to train and test with.

PYTHONPATH=src python3 benchmarks/corpora.py --help
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from script import run

from attendo.data.readers import Pair, read_aligned, read_lines
from attendo.errors import DataError
from attendo.files import explained, replacing, write_json
from attendo.lab.bench.results import WIDTH

HELD_OUT = 2000
"""Pairs at the end of Europarl's last year that are its test set."""

MAX_CHARACTERS = 1000
"""What is longer is no sentence."""

KEPT = "kept"

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def main(
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Folder with the data sets.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write the files to.")],
    direction: Annotated[
        Literal["en-de", "de-en"], typer.Option(help="Which side is the source.")
    ] = "en-de",
    newstest: Annotated[
        int,
        typer.Option(
            min=0,
            help="How often newstest2008-2012 is in the training pairs; it is for research only.",
        ),
    ] = 5,
) -> None:
    """Clean and join the English-German data sets.

    DATA holds europarl/en-de.YEAR.tsv.xz, msdocs/*.tsv.xz,
    tatoeba/eng-deu.tsv.xz, libreoffice/en-de.tsv.xz,
    newstest/newstestYEAR.{en,de}.gz and
    multi30k/test_2016_flickr.{en,de}.gz; a line of a .tsv is English TAB German.

    Only training pairs are cleaned. A sentence of any test or validation set
    is not trained on, whichever side it is on. What was left out, and why, is
    printed and written to corpora.json.

    \b
    Examples:
      python3 benchmarks/corpora.py ~/data --out news
      python3 benchmarks/corpora.py ~/data --out shipped --newstest 0
      python3 benchmarks/corpora.py ~/data --out back --direction de-en
    """  # noqa: D301 -- a backspace keeps click from rewrapping the examples
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    is_back = direction == "de-en"
    tatoeba, europarl = read_tatoeba(data), Europarl(data)
    tests = {
        "test-newstest2014": read_newstest(data, 2014),
        "test-newstest2013": read_newstest(data, 2013),
        "test-tatoeba": tatoeba["test"],
        "valid-tatoeba": tatoeba["valid"],
        "test-europarl": europarl.test,
        "test-multi30k": read_sides(data / "multi30k" / "test_2016_flickr"),
    }
    for name, pairs in {**tests, "valid": tests["test-newstest2013"]}.items():
        write_pairs(out / f"{name}.tsv", pairs, is_back)

    sieve = Sieve(tests)
    # Before the others, so that what they share with them is not missing where they stand alone.
    everyday = list(sieve.sift("tatoeba", tatoeba["train"]))
    news = list(sieve.sift("newstest", read_news(data))) if newstest else []
    write_pairs(out / "train-tatoeba.tsv", everyday, is_back)
    if news:
        write_pairs(out / "train-newstest.tsv", news, is_back)
    others: dict[str, Iterable[Pair]] = {
        "europarl": europarl.train(),
        "msdocs": read_tsv(find(data, "msdocs/*.tsv.xz")),
        "libreoffice": read_tsv([data / "libreoffice" / "en-de.tsv.xz"]),
    }
    sifted = (sieve.sift(name, pairs) for name, pairs in others.items())
    write_pairs(out / "train.tsv", chain(everyday, *sifted, news * newstest), is_back)

    sizes = {name: len(pairs) for name, pairs in tests.items()}
    write_json(out / "corpora.json", {"training": sieve.counts, "tests": sizes})
    show(sieve.counts, sizes)


# TokenizedText: English is the source, German the target until the files are written.


def read_tsv(paths: Iterable[Path]) -> Iterator[Pair]:
    """Read files one after the other; a line without exactly two sides gives two empty ones."""
    for path in paths:
        for line in read_lines(str(path)):
            sides = line.split("\t")
            yield Pair(*sides) if len(sides) == 2 else Pair("", "")


def read_sides(stem: Path) -> list[Pair]:
    """Read two files that are aligned line by line."""
    english, german = read_aligned(f"{stem}.en.gz", f"{stem}.de.gz")
    return list(map(Pair, english, german))


def read_newstest(data: Path, year: int) -> list[Pair]:
    """Read the news test set of a year."""
    return read_sides(data / "newstest" / f"newstest{year}")


def read_tatoeba(data: Path) -> dict[str, list[Pair]]:
    """Read and split; by the English side, so that all translations of a sentence stay together."""
    parts: dict[str, list[Pair]] = {"test": [], "valid": [], "train": []}
    for pair in read_tsv([data / "tatoeba" / "eng-deu.tsv.xz"]):
        first_byte = sha256(pair.source.encode()).digest()[0]
        part = "test" if first_byte < 3 else "valid" if first_byte < 6 else "train"
        parts[part].append(pair)
    return parts


def read_news(data: Path) -> Iterator[Pair]:
    """Read the news of 2008 to 2012: all there is of the kind that is tested."""
    return chain.from_iterable(read_newstest(data, year) for year in range(2008, 2013))


class Europarl:
    """All years; the end of the last one is for testing."""

    def __init__(self, data: Path) -> None:
        *self.years, last = find(data, "europarl/en-de.*.tsv.xz")
        pairs = list(read_tsv([last]))
        self.rest, self.test = pairs[:-HELD_OUT], pairs[-HELD_OUT:]

    def train(self) -> Iterator[Pair]:
        """Read what is not for testing."""
        return chain(read_tsv(self.years), self.rest)


def find(data: Path, pattern: str) -> list[Path]:
    """List the files of a data set, in the order of their names."""
    paths = sorted(data.glob(pattern))
    if not paths:
        raise DataError(f"there is no {data / pattern}; see --help for the files that are needed")
    return paths


# Cleaning, by rules that were made by looking: the data sets are clean but for what is named here.

INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")  # soft hyphens and the like
GAP = re.compile(r" ([.,;!?])(?=\s|$)")  # italics have been taken away and left a space
TAIL = re.compile(r"(?<=[.!?])[-–]+$")  # in Europarl 2009 to 2011
QUOTED = re.compile(r"‘(\S|\S.*?\S)['’](?!\w)")  # but not the one in "don’t"
STRAIGHT = str.maketrans(dict.fromkeys("‘’‚", "'") | dict.fromkeys("“”„", '"'))

MESS = {
    # Who speaks and in what role, mostly on one side only: "rapporteur. – Mr President, ...".
    "europarl": re.compile(r"^[^.!?–]{1,90} ?\. ?[–—−-] "),
    # Markdown, tags, addresses and text of the wrong encoding; "die-Methode" is machine translated.
    "msdocs": re.compile(
        r"\*\w|\w\*|\]\(|\[!|^!|</?\w[^<>]*>|%[0-9A-F]{2}|Â"
        r"|\b(?:das|dem|den|der|die|ein|eine|einen)-[A-Z]"
    ),
    # Placeholders, and entries of an index or names of two systems without a space in between.
    "libreoffice": re.compile(r"\$\[|\$\(|%[A-Za-z]{2}|;\S|;.*;|[a-zäöüß)][A-ZÄÖÜ][a-zäöüß]"),
}
"""What should not be in a pair, by data set."""


def tidy(text: str) -> str:
    """Normalise characters whose form never changes the meaning."""
    text = INVISIBLE.sub("", unicodedata.normalize("NFC", html.unescape(text)))
    return TAIL.sub("", GAP.sub(r"\1", " ".join(text.split())))


def straighten(english: str) -> str:
    """Write English quotation marks as the news do; Europarl has ‘these’, newstest "these"."""
    return QUOTED.sub(r'"\1"', english).translate(STRAIGHT)


def has_few_letters(text: str) -> bool:
    """Return whether a sentence is a table, a date or a formula."""
    return 2 * sum(map(str.isalpha, text)) < len(text.replace(" ", ""))


def is_uneven(pair: Pair) -> bool:
    """Return whether the sides differ much in length; a factor is unreliable for few words."""
    characters = sorted(map(len, pair))
    words = sorted(len(side.split()) for side in pair)
    return any(
        long > 3 * short and long > short + slack
        for (short, long), slack in ((characters, 20), (words, 5))
    )


def is_copy(pair: Pair) -> bool:
    """Return whether a pair was not translated; names and titles of a few words may be equal."""
    source, target = (set(side.casefold().split()) for side in pair)
    return min(len(source), len(target)) > 3 and 5 * len(source & target) > 4 * max(
        len(source), len(target)
    )


FAULTS: dict[str, Callable[[Pair], bool]] = {
    "empty side": lambda pair: not all(pair),
    "too long": lambda pair: max(map(len, pair)) > MAX_CHARACTERS,
    "hardly any letters": lambda pair: any(map(has_few_letters, pair)),
    "uneven lengths": is_uneven,
    "not translated": is_copy,
}
"""Why a pair of any data set is left out, in the order in which they are checked."""


def essence(text: str) -> str:
    """Return a text without case, spaces and punctuation, for the comparison of two sentences."""
    return re.sub(r"[\W_]+", "", text.casefold())


class Sieve:
    """Filters pairs that are worth training on, each one once, and counts the others."""

    def __init__(self, tests: Mapping[str, list[Pair]]) -> None:
        self.tested = {
            essence(side): name for name, pairs in tests.items() for pair in pairs for side in pair
        }
        self.seen: set[int] = set()  # hashes: millions of pairs would not fit
        self.counts: dict[str, Counter[str]] = {}

    def sift(self, name: str, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yield the good pairs of a data set, tidied."""
        counts = self.counts[name] = Counter()
        for raw in pairs:
            english, german = map(tidy, raw)
            pair = Pair(straighten(english), german)
            reason = self._reason(name, pair)
            counts[reason] += 1
            if reason == KEPT:
                yield pair

    def _reason(self, name: str, pair: Pair) -> str:
        for reason, is_faulty in FAULTS.items():
            if is_faulty(pair):
                return reason
        if name in MESS and any(map(MESS[name].search, pair)):
            return "markup"
        for side in pair:
            if test := self.tested.get(essence(side)):
                return f"in {test}"
        number = hash(pair)
        if number in self.seen:
            return "repeated"
        self.seen.add(number)
        return KEPT


# Writing.


def write_pairs(path: Path, pairs: Iterable[Pair], is_back: bool) -> None:
    """Write source TAB target, line by line."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for english, german in pairs:
            file.write(f"{german}\t{english}\n" if is_back else f"{english}\t{german}\n")


def show(counts: Mapping[str, Counter[str]], sizes: Mapping[str, int]) -> None:
    """Print what became of the pairs of each data set, and how large the test sets are."""
    total = sum(counts.values(), Counter[str]())
    columns = {**counts, "all": total}
    table = Table(box=None)
    table.add_column("training pairs", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_row("read", *(f"{column.total():,}" for column in columns.values()))
    reasons = [reason for reason, _ in total.most_common() if reason != KEPT]
    for reason in (*reasons, KEPT):
        table.add_row(reason, *(f"{column[reason]:,}" for column in columns.values()))
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(table)
    console.print(", ".join(f"{name} {size:,}" for name, size in sizes.items()), soft_wrap=True)


if __name__ == "__main__":
    run(app)
