"""Pairs that models make: distillation and back-translation, interrupted anywhere and resumed."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from attendo.bundle import load_run_recipe, read_score_card
from attendo.cli import app
from attendo.data.builtin import sentences
from attendo.data.readers import Pair, ReadReport, RecordFiles, read_lines, read_records
from attendo.data.writers import write_records
from attendo.engines import load_translator
from attendo.errors import ConfigError, DataError
from attendo.metrics import sentence_bleu
from attendo.reporter import Reporter
from attendo.synthesis.back_translation import BackTranslation, back_translate
from attendo.synthesis.distillation import Lesson, distill
from attendo.synthesis.faults import find_fault, without_faults
from attendo.synthesis.shards import Outcome
from small_runs import SETTINGS, assert_same_run

pytestmark = pytest.mark.usefixtures("unchecked")

N = 28

STUDENT = {key: value for key, value in SETTINGS.items() if not key.startswith("data.")}


class StopAfter(Reporter):
    """Interrupts the translation as Ctrl-C does."""

    def __init__(self, n_texts: int) -> None:
        self.n_left = n_texts

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        def advance(n: int, remark: str) -> None:
            self.n_left -= n
            if title == "translating" and self.n_left <= 0:
                raise KeyboardInterrupt

        yield advance


@pytest.fixture
def mono(tmp_path) -> Path:
    """Sentences, one of them twice, an empty line, and one that no model of this size can do."""
    lines = [sentence.source for sentence in islice(sentences(seed=5), N)]
    path = tmp_path / "mono.en"
    path.write_text("\n".join([*lines, "", lines[0]]) + "\n", encoding="utf-8")
    return path


def read_pairs(path: Path) -> list[Pair]:
    return list(read_records(RecordFiles(files=(str(path),)), ReadReport()))


# -- back-translation ----------------------------------------------------------------------------


def test_interrupted_and_resumed_back_translation_is_the_same(trained, mono, tmp_path):
    request = BackTranslation([str(mono)], {"strategy": "sample", "batch_size": 4}, size=8)
    whole, split = tmp_path / "whole.jsonl", tmp_path / "split.jsonl"
    report = back_translate(trained, whole, request, "cpu", Reporter())
    for n_texts, resume, n_kept in ((13, False, 1), (10, True, 2)):
        with pytest.raises(KeyboardInterrupt):
            back_translate(trained, split, request, "cpu", StopAfter(n_texts), resume=resume)
        shards = sorted((tmp_path / "split.jsonl.shards").glob("*.zst"))
        assert len(shards) == n_kept, "all shards but the one in progress are kept"
    back_translate(trained, split, request, "cpu", Reporter(), resume=True)
    assert whole.read_bytes() == split.read_bytes()
    assert not (tmp_path / "split.jsonl.shards").exists()
    pairs = read_pairs(whole)
    assert report["pairs"] == len(pairs) == N - sum(report["dropped"].values())
    assert {pair.target for pair in pairs} <= set(read_lines(str(mono)))


def test_back_translation_killed_before_it_has_tidied_up_is_resumed(trained, mono, tmp_path):
    out = tmp_path / "pairs.tsv"
    request = BackTranslation([str(mono)], {"beam": 1}, size=8)
    with pytest.raises(KeyboardInterrupt):
        back_translate(trained, out, request, "cpu", StopAfter(20))
    out.write_text("what had been written\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="exists already"):
        back_translate(trained, out, request, "cpu", Reporter())
    report = back_translate(trained, out, request, "cpu", Reporter(), resume=True)
    assert report["pairs"] == len(read_pairs(out))
    assert not (tmp_path / "pairs.tsv.shards").exists()


def test_other_settings_do_not_continue_a_work(trained, mono, tmp_path):
    out = tmp_path / "pairs.tsv"
    request = BackTranslation([str(mono)], {"beam": 1}, size=8)
    with pytest.raises(KeyboardInterrupt):
        back_translate(trained, out, request, "cpu", StopAfter(1))
    with pytest.raises(ConfigError, match="continue it with --resume"):
        back_translate(trained, out, request, "cpu", Reporter())
    other = BackTranslation([str(mono)], {"beam": 2}, size=8)
    with pytest.raises(ConfigError, match=r"begun with other settings \(options\)"):
        back_translate(trained, out, other, "cpu", Reporter(), resume=True)
    mono.write_text("Another text.\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"begun with other settings \(texts\)"):
        back_translate(trained, out, request, "cpu", Reporter(), resume=True)


def test_back_translate_on_the_command_line(trained, mono, tmp_path, capsys):
    out = tmp_path / "pairs.tsv.gz"
    options = ["--beam", "1", "--tag", "<bt>", "--json"]
    command = ["augment", "back-translate", str(trained), "--text", str(mono), "--out", str(out)]
    app([*command, *options], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    pairs = read_pairs(out)
    assert report == {"pairs": len(pairs), "dropped": report["dropped"], "file": str(out)}
    assert all(pair.source.startswith("<bt> ") for pair in pairs)
    with pytest.raises(ConfigError, match="exists already"):
        app([*command, *options], standalone_mode=False)
    with pytest.raises(ConfigError, match="--top-k and --seed: for sampling only"):
        app([*command[:-1], str(tmp_path / "a.tsv"), "--top-k", "5", "--seed", "0"],
            standalone_mode=False)  # fmt: skip
    with pytest.raises(DataError, match=r"ends in \.jsonl or \.tsv"):
        app([*command[:-1], str(tmp_path / "pairs.txt")], standalone_mode=False)
    mono.write_text("\n \n", encoding="utf-8")
    with pytest.raises(DataError, match="empty; expected one sentence a line"):
        app([*command[:-1], str(tmp_path / "more.tsv")], standalone_mode=False)


# -- distillation --------------------------------------------------------------------------------


def test_interrupted_and_resumed_distillation_ends_with_the_same_student(trained, mono, tmp_path):
    pairs = [Pair(one.source, one.target) for one in islice(sentences(seed=2), 60)]
    write_records(tmp_path / "pairs.tsv", pairs)
    tested = [Pair(one.source, one.target) for one in islice(sentences(seed=5), 10)]
    write_records(tmp_path / "test.tsv", tested)
    files = {"pairs": tmp_path / "pairs.tsv", "test_pairs": tmp_path / "test.tsv"}
    lesson = Lesson(
        data={key: (str(path),) for key, path in files.items()},
        texts=[str(mono)],
        options={"beam": 1},
        size=16,
    )

    def run(name: str, *, resume: bool = False, reporter: Reporter | None = None):
        return distill(
            trained, tmp_path / name, lesson,
            recipe="demo", settings={**STUDENT, "data.builtin": 0}, device="cpu",
            resume=resume, reporter=reporter,
        )  # fmt: skip

    card = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("split", reporter=StopAfter(20))
    with pytest.raises(ConfigError, match="already holds a run"):
        run("split")
    again = run("split", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "split")
    made = [tmp_path / name / "teacher" / "pairs.jsonl.zst" for name in ("whole", "split")]
    assert made[0].read_bytes() == made[1].read_bytes()
    report, other = card["distillation"], again["distillation"]
    assert all(report[one]["bleu"] == other[one]["bleu"] for one in ("teacher", "student"))
    assert report["teacher"]["bleu"] > report["student"]["bleu"]
    assert report["student"]["parameters"] == card["parameters"] < report["teacher"]["parameters"]
    # The first ten sentences of the text are test sources, so nothing is learned from them.
    learned = {pair.source for pair in read_pairs(made[0])}
    assert not learned & {pair.source for pair in tested}
    assert len(learned & set(read_lines(str(mono)))) >= 12
    assert run("whole", resume=True) == card
    changes = [({"best_of": 2}, "number of translations"), ({"originals": True}, "originals")]
    for change, named in changes:
        with pytest.raises(ConfigError, match=rf"begun with other settings \({named}\)"):
            distill(
                trained, tmp_path / "whole", replace(lesson, **change),
                recipe="demo", settings=STUDENT, device="cpu", resume=True,
            )  # fmt: skip
    with pytest.raises(ConfigError, match=r"other settings \(recipe\)"):
        distill(trained, tmp_path / "whole", lesson, recipe="tiny", device="cpu", resume=True)


def test_the_best_of_several_translations_is_the_one_nearest_the_reference(trained, tmp_path):
    pairs = [Pair(one.source, one.target) for one in islice(sentences(seed=2), 24)]
    write_records(tmp_path / "pairs.tsv", pairs)

    def pairs_of(name: str, **options) -> list[Pair]:
        lesson = Lesson(
            data={"pairs": (str(tmp_path / "pairs.tsv"),)}, options={"beam": 4}, **options
        )
        settings = {**STUDENT, "data.builtin": 0, "training.steps": 1, "data.max_length": 128}
        distill(trained, tmp_path / name, lesson, recipe="demo", settings=settings, device="cpu")
        return read_pairs(tmp_path / name / "teacher" / "pairs.jsonl.zst")

    references = dict(pairs)
    first, best = dict(pairs_of("first")), dict(pairs_of("best", best_of=4))
    gains = [
        sentence_bleu(best[source], references[source])
        - sentence_bleu(first[source], references[source])
        for source in first
    ]
    assert min(gains) >= 0
    assert max(gains) > 0
    both = pairs_of("both", originals=True)
    assert set(both) == set(first.items()) | {(one, references[one]) for one in first}


def test_a_translator_that_has_only_a_conversion_can_be_a_teacher(trained, tmp_path):
    unused = shutil.ignore_patterns("state", "model.safetensors", "scorecard.json")
    run = shutil.copytree(trained, tmp_path / "run", ignore=unused)
    pairs = [Pair(one.source, one.target) for one in islice(sentences(seed=2), 24)]
    write_records(tmp_path / "pairs.tsv", pairs)
    lesson = Lesson(data={"pairs": (str(tmp_path / "pairs.tsv"),)}, options={"beam": 1})
    settings = {**STUDENT, "data.builtin": 0, "training.steps": 1, "data.max_length": 128}
    student = tmp_path / "student"
    card = distill(run, student, lesson, recipe="demo", settings=settings, device="cpu")
    made = dict(read_pairs(student / "teacher" / "pairs.jsonl.zst"))
    expected = load_translator(trained, device="cpu").translate(list(made), beam=1)
    assert expected == list(made.values())
    assert card["distillation"]["teacher"]["parameters"] == read_score_card(trained)["parameters"]


def test_distill_needs_pairs_that_exist(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    recipe = (run / "recipe.toml").read_text(encoding="utf-8")
    builtin = load_run_recipe(run).data.builtin
    moved = recipe.replace(f"builtin = {builtin}", 'builtin = 0\npairs = ["/none/pairs.tsv"]')
    moved = moved.replace("pairs = []\n", "", 1)
    (run / "recipe.toml").write_text(moved, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"names /none/pairs\.tsv, which does not exist"):
        app(["distill", str(run), "--out", str(tmp_path / "student")], standalone_mode=False)
    assert not (tmp_path / "student").exists()


# -- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "translation", "fault"),
    [
        ("Ein Hund schläft.", "A dog sleeps.", None),
        ("Ein Hund schläft.", "  ", "empty"),
        ("Ein Hund schläft.", "A dog dog dog dog dog.", "repetition"),
        ("Ein Hund schläft hier.", "a dog in a dog in a dog in a dog in", "repetition"),
        ("Ein Hund schläft.", "A dooooooooooog sleeps.", "repetition"),
        ("Ein Hund.", ". . . . dog dog dog dog dog is here", "repetition"),
        ("Eins und zwei.", "1 1 1 1 and and and and and two", "repetition"),
        ("ja ja ja ja ja", "yes yes yes yes yes", None),
        ("- - - - - -", "- - - - - -", None),
        ("Ja.", "Yes, of course.", None),
        ("Ja.", "Yes, of course, and much more than that.", "length"),
        ("Ein sehr langer Satz, der nicht enden will, und immer noch nicht endet.", "A.", "length"),
    ],
)
def test_obvious_faults_are_found_and_good_translations_are_not_accused(source, translation, fault):
    assert find_fault(source, translation) == fault


def test_faulty_translations_are_counted_and_the_next_best_is_taken():
    dropped: Counter[str] = Counter()
    good = Outcome("Ein Hund.", "", ["A A A A A dog.", "A dog."])
    cut, empty = Outcome("Ein Hund.", "", []), Outcome("Ein Hund.", "", [""])
    kept = list(without_faults([good, cut, empty], dropped))
    assert [one.translations for one in kept] == [["A dog."]]
    assert dropped == {"unfinished": 1, "empty": 1}
    with pytest.raises(DataError, match=r"none of the translations can be used \(1 × empty\)"):
        list(without_faults([empty], Counter()))
