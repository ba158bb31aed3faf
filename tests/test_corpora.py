"""The mixture of benchmarks/corpora.py, from made-up data: nothing leaks or is broken."""

import gzip
import json
import lzma
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(BENCH))

import corpora  # noqa: E402 -- found only now
from corpora import Sieve, essence, is_copy, is_uneven, straighten, tidy  # noqa: E402

from attendo.data.readers import Pair  # noqa: E402

GOOD = Pair("A good sentence about fish.", "Ein guter Satz über Fische.")


def write_tsv(path: Path, pairs: list[Pair]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lzma.compress("".join(f"{a}\t{b}\n" for a, b in pairs).encode()))


def write_sides(stem: Path, pairs: list[Pair]) -> None:
    stem.parent.mkdir(exist_ok=True)
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        text = "".join(f"{line}\n" for line in lines)
        Path(f"{stem}.{language}.gz").write_bytes(gzip.compress(text.encode()))


def numbered(kind: str, n: int) -> list[Pair]:
    return [Pair(f"The {kind} number {i} sings.", f"{kind} Nummer {i} singt.") for i in range(n)]


@pytest.fixture
def data(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    write_tsv(folder / "europarl" / "en-de.2010.tsv.xz", [GOOD, *numbered("speaker", 2)])
    write_tsv(folder / "europarl" / "en-de.2011.tsv.xz", numbered("member", 2003))
    write_tsv(folder / "msdocs" / "sql.t1.en-de.tsv.xz", numbered("table", 3))
    write_tsv(folder / "tatoeba" / "eng-deu.tsv.xz", numbered("bird", 1000))
    write_tsv(folder / "libreoffice" / "en-de.tsv.xz", numbered("menu", 3))
    for year in range(2008, 2015):
        write_sides(folder / "newstest" / f"newstest{year}", numbered(f"year {year} minister", 2))
    write_sides(folder / "multi30k" / "test_2016_flickr", numbered("dog", 2))
    return folder


def run(*words: object) -> subprocess.CompletedProcess:
    command = [sys.executable, BENCH / "corpora.py", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def lines(path: Path) -> list[Pair]:
    return [Pair(*line.split("\t")) for line in path.read_text(encoding="utf-8").splitlines()]


def test_all_files_are_written_and_all_pairs_accounted_for(data, tmp_path):
    answer = run(data, "--out", tmp_path / "out")
    assert answer.returncode == 0, answer.stderr
    out = {path.stem: lines(path) for path in (tmp_path / "out").glob("*.tsv")}
    assert out["valid"] == out["test-newstest2013"] == numbered("year 2013 minister", 2)
    assert out["test-newstest2014"] == numbered("year 2014 minister", 2)
    assert out["test-multi30k"] == numbered("dog", 2)
    assert out["test-europarl"] == numbered("member", 2003)[3:]
    tatoeba = [*out["test-tatoeba"], *out["valid-tatoeba"], *out["train-tatoeba"]]
    assert sorted(tatoeba) == sorted(numbered("bird", 1000))
    news = [pair for year in range(2008, 2013) for pair in numbered(f"year {year} minister", 2)]
    assert out["train-newstest"] == news
    assert set(out["train"]) == {
        *out["train-tatoeba"],
        *news,
        GOOD,
        *numbered("speaker", 2),
        *numbered("member", 3),
        *numbered("table", 3),
        *numbered("menu", 3),
    }
    counts = json.loads((tmp_path / "out" / "corpora.json").read_text(encoding="utf-8"))
    assert counts["training"]["europarl"] == {"kept": 6}
    assert counts["tests"]["test-europarl"] == 2000
    assert "europarl" in answer.stdout
    assert "kept" in answer.stdout


def test_tatoeba_is_split_by_the_hash_of_the_english_side(data):
    parts = corpora.read_tatoeba(data)
    for name, digits in (("test", ("00", "01", "02")), ("valid", ("03", "04", "05"))):
        assert parts[name]
        for pair in parts[name]:
            assert sha256(pair.source.encode()).hexdigest()[:2] in digits


def test_the_other_direction_is_the_same_pairs_the_other_way_round(data, tmp_path):
    assert run(data, "--out", tmp_path / "there").returncode == 0
    assert run(data, "--out", tmp_path / "back", "--direction", "de-en").returncode == 0
    for path in (tmp_path / "there").glob("*.tsv"):
        swapped = [Pair(target, source) for source, target in lines(path)]
        assert lines(tmp_path / "back" / path.name) == swapped


def test_news_can_be_left_out(data, tmp_path):
    assert run(data, "--out", tmp_path / "out", "--newstest", 0).returncode == 0
    train = (tmp_path / "out" / "train.tsv").read_text(encoding="utf-8")
    assert "minister" not in train
    assert not (tmp_path / "out" / "train-newstest.tsv").exists()


def test_news_can_be_repeated(data, tmp_path):
    assert run(data, "--out", tmp_path / "out", "--newstest", 3).returncode == 0
    train = lines(tmp_path / "out" / "train.tsv")
    assert train.count(numbered("year 2010 minister", 1)[0]) == 3
    assert train.count(GOOD) == 1


def test_a_data_set_that_is_missing_is_named(data, tmp_path):
    (data / "msdocs" / "sql.t1.en-de.tsv.xz").unlink()
    answer = run(data, "--out", tmp_path / "out")
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: ")
    assert "msdocs" in answer.stderr
    assert not (tmp_path / "out" / "train.tsv").exists()


def sifted(name: str, *pairs: Pair, tests: dict[str, list[Pair]] | None = None) -> dict[str, int]:
    sieve = Sieve(tests or {})
    kept = list(sieve.sift(name, pairs))
    assert len(kept) == sieve.counts[name]["kept"]
    return dict(sieve.counts[name])


@pytest.mark.parametrize(
    ("reason", "pair"),
    [
        ("empty side", Pair("", "Ein Satz.")),
        ("empty side", Pair("A sentence.", " \u200b")),
        ("too long", Pair("fish " * 201, "Fisch " * 167)),
        ("hardly any letters", Pair("12.5. - 13.5.2001 a", "12.5. bis 13.5.2001 ein Tag")),
        ("uneven lengths", Pair("Yes, of course.", "Ja, " + "und noch viel mehr davon " * 3)),
        ("not translated", Pair("So, in a way, all of us agree.", "So in a way, all of us agree.")),
    ],
)
def test_what_is_broken_is_left_out_of_every_data_set(reason, pair):
    for name in ("tatoeba", "europarl", "msdocs", "libreoffice", "newstest"):
        assert sifted(name, pair, GOOD) == {reason: 1, "kept": 1}


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("europarl", Pair("Mr President, I agree.", "Verfasser . – Herr Präsident! So ist es.")),
        ("europarl", Pair("in writing. − I voted in favour.", "Ich habe dafür gestimmt.")),
        ("msdocs", Pair("[!Note] It is a table.", "[!Note] Es ist eine Tabelle.")),
        ("msdocs", Pair("Calls the method.", "Ruft die-Methode auf.")),
        ("msdocs", Pair("It has a name.", "Es hat einen *Namen*und mehr.")),
        ("libreoffice", Pair("The %PRODUCTNAME window", "Das Fenster von %PRODUCTNAME")),
        ("libreoffice", Pair("tables; insert menus", "Tabellen; einfügenMenüs")),
    ],
)
def test_remains_of_markup_are_left_out_where_they_occur(name, pair):
    assert sifted(name, pair, GOOD) == {"markup": 1, "kept": 1}
    assert sifted("newstest", pair, GOOD) == {"kept": 2}


@pytest.mark.parametrize(
    ("english", "straight"),
    [
        ("It says ‘formation of political groups’.", 'It says "formation of political groups".'),
        ("‘Europe is boring' isn’t a phrase.", '"Europe is boring" isn\'t a phrase.'),
        ("I don’t know the members’ “rights”.", "I don't know the members' \"rights\"."),
        ("The ‘0’ level, ‘he isn’t here’", 'The "0" level, "he isn\'t here"'),
        ("You said: ‘I am now closing", "You said: 'I am now closing"),
    ],
)
def test_english_quotation_marks_are_straight(english, straight):
    assert straighten(english) == straight
    german = "„Ein Satz“, sagt er."
    sieve = Sieve({})
    assert [*sieve.sift("europarl", [Pair(english, german)])] == [Pair(straight, german)]


def test_a_pair_is_kept_once_and_another_translation_too():
    other = GOOD._replace(target="Ein schöner Satz über Fische.")
    assert sifted("tatoeba", GOOD, other, GOOD) == {"kept": 2, "repeated": 1}


def test_what_is_tested_is_not_trained_on_whichever_side_and_case_it_has():
    tests = {"test-a": [GOOD], "test-b": [Pair("“Nobody knows!”", "Niemand weiß es.")]}
    pairs = [
        Pair("A GOOD sentence, about fish", "Über Fische kann man gute Sätze sagen."),
        Pair("It is not known.", "Niemand weiß es."),
        Pair("Nobody knows", "Keiner weiß es."),
        Pair("Nobody knows fish.", "Niemand kennt Fische."),
    ]
    assert sifted("tatoeba", *pairs, tests=tests) == {"in test-a": 1, "in test-b": 2, "kept": 1}


@pytest.mark.parametrize(
    ("messy", "right"),
    [
        ("un\u00adwahr\u00adscheinlich", "unwahrscheinlich"),
        ("100&#160;% of\u00a0 it", "100 % of it"),
        ("the magazine Zanan .", "the magazine Zanan."),
        ("Das ist wichtig.---", "Das ist wichtig."),
        ("4 : 1 for .NET - and C++", "4 : 1 for .NET - and C++"),
        ("u\u0308ber", "über"),
    ],
)
def test_tidying_repairs_and_leaves_the_rest_alone(messy, right):
    assert tidy(messy) == right
    assert tidy(right) == right


def test_short_pairs_may_differ_in_length_or_be_the_same_word():
    assert not is_uneven(Pair("Contact Tom.", "Setzt euch mit Tom in Verbindung."))
    assert not is_copy(Pair("Tom was in Boston.", "Tom war in Boston."))
    assert not is_copy(Pair("New York Times", "New York Times"))
    assert essence("“It's 5 o'clock!”") == essence("its 5 OClock")
