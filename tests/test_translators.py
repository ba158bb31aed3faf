"""Installed translators: found, chosen by the language of a text, and never confused with a run."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import attendo
from attendo.cli import main
from attendo.errors import ConfigError
from attendo.translators import (
    Direction,
    InstalledTranslator,
    LanguageDetector,
    by_folder,
    choose_directions,
    find_translators,
)

pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(autouse=True)
def _nothing_installed(tmp_path, monkeypatch):
    """Hide what this machine has installed, and what the package ships."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.delenv("ATTENDO_TRANSLATORS", raising=False)
    monkeypatch.setattr("attendo.translators.files", lambda package: tmp_path / "package")


@pytest.fixture
def installed(trained, tmp_path) -> Path:
    """Install a translator from English, and a model under the name of the other direction."""
    folder = tmp_path / "share" / "attendo" / "translators"
    shutil.copytree(trained, folder / "translate-en-de")
    back = Path(shutil.copytree(trained, folder / "translate-de-en"))
    (back / "words.txt").write_text("hallo\nja\nhund\n", encoding="utf-8")
    (back / "README.md").write_text("# German to English\nTrained on ...\n", encoding="utf-8")
    return folder


@pytest.fixture
def call(monkeypatch, capfd):
    def run(*words: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main()
        return exit_.value.code or 0, *capfd.readouterr()

    return run


def test_a_text_is_translated_without_a_run(installed, call, trained):
    expected = attendo.load(trained).translate("The dog sleeps.") + "\n"
    for words in (["The dog sleeps."], ["--to", "de", "The dog sleeps."]):
        assert call("translate", *words)[:2] == (0, expected)
    assert call("translate", stdin="The dog sleeps.\n")[:2] == (0, expected)
    assert call("translate", "--from", "en", stdin="The dog sleeps.\n")[:2] == (0, expected)
    assert call("translate", trained, "The dog sleeps.")[:2] == (0, expected)


def test_each_line_of_a_pipe_is_translated_from_its_language(installed, trained, monkeypatch):
    used = []
    monkeypatch.setattr(
        "attendo.translators.InstalledTranslator._engine",
        lambda self, language: used.append(language) or attendo.load(trained),
    )
    lines = ["The dog sleeps.", "Die Katze schläft im Garten.", "", "The old man laughs.", "Ja"]
    translator = InstalledTranslator()
    found = [best[0].text for best in translator.stream((line, "") for line in lines)]
    assert used == ["en", "de"]
    assert found == attendo.load(trained).translate(lines)
    assert [translator.detector.detect(line) for line in lines] == ["en", "de", "en", "en", "de"]


def test_letters_decide_and_then_words(installed):
    folders = {language: installed / f"translate-{language}-xx" for language in ("en", "de")}
    alone = LanguageDetector(folders)
    assert alone.detect("Good morning.") == "en"
    assert alone.detect("Guten Morgen, wie geht es dir?") == "de"
    assert alone.detect("Hallo") == "en", "its letters look like English"
    both = {"en": installed / "translate-en-de", "de": installed / "translate-de-en"}
    with_words = LanguageDetector(both)
    assert with_words.detect("Hallo") == "de"
    assert with_words.detect("12345") == "en", "nothing decides"
    assert LanguageDetector({**both, "en": folders["en"]}).detect("Hallo") == "en", "no words of it"
    assert LanguageDetector({"xx": installed}).detect("Hallo") == "xx", "there is no choice"
    with pytest.raises(ConfigError, match=r"cannot be detected .* --from"):
        LanguageDetector({"en": installed, "xx": folders["de"]}).detect("Hallo")


def test_the_first_folder_that_has_a_direction_wins(installed, tmp_path, monkeypatch):
    english = Direction("en", "de")
    assert find_translators()[english] == installed / "translate-en-de"
    own = tmp_path / "own" / "translate-en-de"
    shutil.copytree(installed / "translate-en-de", own)
    (tmp_path / "own" / "translate-en-fr").mkdir()  # empty, so not a translator
    monkeypatch.setenv("ATTENDO_TRANSLATORS", f"/nowhere:{tmp_path / 'own'}")
    assert find_translators()[english] == own
    assert len(find_translators()) == 2


def test_one_folder_may_have_both_directions(installed, call, trained):
    for name in ("translate-en-de", "translate-de-en"):
        shutil.rmtree(installed / name)
    both = Path(shutil.copytree(trained, installed / "translate-en+de"))
    directions = {Direction("en", "de"), Direction("de", "en")}
    assert find_translators() == dict.fromkeys(directions, both)
    assert by_folder(find_translators()) == {both: [Direction("en", "de"), Direction("de", "en")]}
    translator = InstalledTranslator()
    assert not translator.detector.has_choice, "the model knows by the text itself"
    lines = ["The dog sleeps.", "Die Katze schläft im Garten.", ""]
    found = [best[0].text for best in translator.stream((line, "") for line in lines)]
    assert found == attendo.load(trained).translate(lines)
    assert call("translate", "--about")[1].count(str(both)) == 1
    assert f"en to de, de to en: {both}" in call("translate", "--about")[1]


GERMAN = "Die Katze schläft im Garten."


@pytest.fixture
def two_way(installed) -> Path:
    """Install a translator for both directions, and no other."""
    shutil.rmtree(installed / "translate-en-de")
    return (installed / "translate-de-en").rename(installed / "translate-en+de")


@pytest.mark.parametrize("words", [["--from", "en", "--to", "de"], ["--from", "en"]])
def test_what_is_in_the_target_language_already_stays_as_it_is(two_way, call, trained, words):
    expected = attendo.load(trained).translate("The dog sleeps.")
    lines = f"The dog sleeps.\n{GERMAN}\n\n{GERMAN}\n"
    code, out, err = call("translate", *words, stdin=lines)
    assert (code, out) == (0, f"{expected}\n{GERMAN}\n\n{GERMAN}\n")
    assert err.count("text that is in the language 'de' already stays as it is") == 1
    found = json.loads(call("translate", *words, "--json", GERMAN)[1])
    assert found["translations"][0]["text"] == GERMAN


def test_options_are_checked_where_nothing_is_translated(two_way, call):
    for words in (["--set", "decoding.bogus=4"], ["--n-best", "9", "--beam", "4"]):
        assert call("translate", "--to", "de", *words, GERMAN)[0] == 2
    out = call("translate", "--to", "de", "--prefix", "Der", GERMAN)[1]
    assert out.startswith("Der"), "a prefix is for a translation"


@pytest.mark.parametrize(
    ("text", "language"), [("Danke", "de"), ("Nein.", "de"), ("Thanks", "en"), ("No", "en")]
)
def test_of_short_texts_without_lists_of_words_the_letters_decide(tmp_path, text, language):
    detector = LanguageDetector({"en": tmp_path}, other="de")
    assert detector.detect(text) == language
    # It looks a little like English, but is to be translated.
    assert LanguageDetector({"de": tmp_path}, other="en").detect("Hallo") == "de"


def test_other_translators_do_not_change_what_stays_as_it_is(two_way, call):
    shutil.copytree(two_way, two_way.parent / "translate-fr-de")
    code, out, err = call("translate", "--to", "de", GERMAN)
    assert (code, out) == (0, GERMAN + "\n")
    assert "already stays as it is" in err


def test_a_language_that_cannot_be_detected_can_be_chosen(two_way, call, trained):
    two_way.rename(two_way.parent / "translate-hsb+de")
    code, out, _ = call("translate", "--from", "hsb", "--to", "de", "The dog sleeps.")
    assert (code, out) == (0, attendo.load(trained).translate("The dog sleeps.") + "\n")


def test_a_direction_that_is_not_clear_or_not_there_is_refused(installed):
    assert set(choose_directions("de", None)) == {Direction("de", "en")}
    with pytest.raises(ConfigError, match="no translator from en to fr is installed; there are: "):
        choose_directions("en", "fr")
    shutil.copytree(installed / "translate-en-de", installed / "translate-en-fr")
    with pytest.raises(ConfigError, match="'en' can be translated to de, fr; choose one with --to"):
        choose_directions(None, None)
    assert set(choose_directions(None, "fr")) == {Direction("en", "fr")}


@pytest.mark.parametrize("words", [["runs/lost"], ["./lost"], ["lost", "The dog sleeps."]])
def test_what_looks_like_a_run_is_no_text(installed, call, words):
    code, out, err = call("translate", *words)
    assert (code, out) == (2, "")
    assert "lost' is not a folder" in err


def test_without_a_translator_the_message_says_what_to_do(call, tmp_path):
    for command in (["translate", "Good morning."], ["serve"]):
        code, out, err = call(*command)
        assert (code, out) == (2, "")
        assert "no translator is installed" in err
        assert "attendo train" in err
        assert str(tmp_path / "share" / "attendo" / "translators") in err


def test_about_prints_the_cards(installed, call):
    code, out, _ = call("translate", "--about")
    assert code == 0
    assert f"en to de: {installed / 'translate-en-de'}" in out
    assert "translate-en-de has no description (README.md or card.md)" in out
    assert "# German to English\nTrained on ..." in out
    assert "ATTENDO_TRANSLATORS" in out


def test_serve_without_a_run_serves_what_is_installed(installed, call, monkeypatch):
    served = []
    monkeypatch.setattr(
        "attendo.serve.running.run_server", lambda runs, *_, **__: served.extend(runs)
    )
    call("serve")
    assert served == [str(installed / f"translate-{one}") for one in ("de-en", "en-de")]


def test_json_and_n_best_work_without_a_run(installed, call):
    code, out, _ = call("translate", "--json", "--n-best", 2, "The dog sleeps.")
    assert code == 0
    assert len(json.loads(out)["translations"]) == 2


SHIPPED = Path(attendo.__file__).parent / "shipped" / "translate-en+de"


def test_the_translator_that_comes_with_attendo_works_in_a_new_process(tmp_path):
    texts = ["The weather is nice today.", "Das Wetter ist heute schön."]
    command = [sys.executable, "-X", "importtime", "-m", "attendo", "translate", *texts]
    alone = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "ATTENDO_TRANSLATORS": ""}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=True)
    german, english = done.stdout.splitlines()
    assert german.startswith("Das Wetter ist"), "int8 is not the same on all processors"
    assert english.startswith("The weather is")
    assert "ctranslate2" in done.stderr
    assert "| torch\n" not in done.stderr, "it takes seconds to import"


def test_the_translator_that_comes_with_attendo_is_small_and_described():
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 40e6
    card = (SHIPPED / "README.md").read_text(encoding="utf-8")
    assert all(part in card for part in ("## Scores", "licence", "## Limits"))
    assert not any("/" in line for line in (SHIPPED / "recipe.toml").read_text().splitlines()[4:])
