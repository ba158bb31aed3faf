"""Sequence-level knowledge distillation (Kim and Rush 2016): a small model learns from a large one.

The teacher translates the training sources, and other text if there is some. Its translations are
more regular than those of people, so that a student with few parameters can learn them.

    STUDENT/teacher/about.json        the teacher, and what it is given to translate
    STUDENT/teacher/shards/           translations, while there are more to come
    STUDENT/teacher/pairs.jsonl.zst   what the student is trained on
    STUDENT/teacher/valid.jsonl, test.jsonl, report.json
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attendo.bundle import (
    RECIPE,
    find_device,
    load_run_recipe,
    load_task,
    read_score_card,
    update_score_card,
)
from attendo.config import DataConfig, Recipe, make_recipe
from attendo.data.corpus import read_texts
from attendo.data.readers import Pair
from attendo.data.texts import Texts, hash_source, open_texts
from attendo.data.writers import write_records
from attendo.engines import TextTranslator, load_translator
from attendo.errors import ConfigError
from attendo.files import explained, read_json, write_json
from attendo.metrics import score, sentence_bleu
from attendo.models.outline import shapes_only
from attendo.reporter import Reporter
from attendo.synthesis.back_translation import read_sentences
from attendo.synthesis.faults import without_faults
from attendo.synthesis.shards import (
    ABOUT,
    SIZE,
    Outcome,
    Work,
    check_same,
    read_shards,
    translate_shards,
)
from attendo.training.run import train_run

PAIRS, VALID, TEST = "pairs.jsonl.zst", "valid.jsonl", "test.jsonl"
REPORT = "report.json"
"""Written last, when the others are complete."""

COMPARED = 1000
"""Most test pairs on which teacher and student are compared."""

WARM_UP = 8
"""Sentences that are translated before the speed is measured."""


@dataclass(frozen=True)
class Lesson:
    """What a teacher translates, and what becomes of it."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the section [data]; those of the teacher's recipe if there are none."""
    texts: Sequence[str] = ()
    """More text files in the source language, one sentence a line."""
    best_of: int = 1
    """Of so many translations take the one that is most like the reference, where there is one."""
    originals: bool = False
    """Whether to mix in the pairs with their references."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the section [decoding] for the teacher."""
    size: int = SIZE
    """Texts of a shard."""


def distill(
    teacher: Path,
    out: Path,
    lesson: Lesson,
    *,
    recipe: str = "student",
    settings: Mapping[str, Any] | None = None,
    device: str = "auto",
    resume: bool = False,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Train a student on the translations of a teacher; return the score card of both.

    Args:
        teacher: The run folder of the teacher.
        out: The run folder of the student.
        lesson: What the teacher translates.
        recipe: The recipe of the student.
        settings: Settings that replace those of the recipe.
        device: auto, cpu, cuda or cuda:1.
        resume: Whether to continue what was interrupted.
        reporter: Receives messages and progress.
    """
    reporter = reporter or Reporter()
    folder = out / "teacher"
    if not resume and (folder.exists() or (out / RECIPE).exists()):
        raise ConfigError(
            f"{str(out)!r} already holds a run; continue it with --resume, or give another --out"
        )
    about = {"teacher": str(teacher.resolve()), "recipe": recipe, **asdict(lesson)}
    about = json.loads(json.dumps(about))  # lists, as they are read back
    check_same(folder, about, out, resume=resume)
    if not (folder / REPORT).exists():
        texts = open_texts(_data(teacher, lesson))
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / ABOUT, about)
        _translate(teacher, folder, texts, lesson, device, reporter)
    given = {
        "data.pairs": [str(folder / PAIRS)],
        "data.valid_pairs": [str(folder / VALID)],
        "data.test_pairs": [str(folder / TEST)],
    }
    if (out / RECIPE).exists():  # which names them already
        given, recipe = {}, "auto"
    overrides = {**(settings or {}), **given}
    card = train_run(recipe, overrides, out, find_device(device), resume=True, reporter=reporter)
    if "distillation" in card:
        return card
    return _compare(teacher, out, folder, device, reporter)


def _translate(
    teacher: Path, folder: Path, texts: Texts, lesson: Lesson, device: str, reporter: Reporter
) -> None:
    """Write what the student is trained and tested on."""
    known = {hash_source(pair.source) for pair in (*texts.valid, *texts.test)}
    for name, records in ((VALID, texts.valid), (TEST, texts.test)):
        write_records(folder / name, records)
    work = Work(
        lambda: _sources(texts, lesson.texts, known),
        n_best=lesson.best_of,
        options=dict(lesson.options),
        size=lesson.size,
    )
    shards = folder / "shards"

    def load() -> TextTranslator:
        return load_translator(teacher, device=device, reporter=reporter)

    translate_shards(work, teacher, load, shards, reporter, resume=True)
    dropped: Counter[str] = Counter()
    outcomes = without_faults(read_shards(shards), dropped)
    n_pairs = write_records(folder / PAIRS, _pairs(outcomes, lesson))
    report = {"pairs": n_pairs, "dropped": dict(dropped)}
    write_json(folder / REPORT, report)
    shutil.rmtree(shards)
    reporter.say(f"the teacher made {n_pairs:,} pairs")
    for reason, count in dropped.items():
        reporter.say(f"left out {count:,} of its translations: {reason}")


def _data(teacher: Path, lesson: Lesson) -> DataConfig:
    """Return where the training pairs are: as given, or as in the recipe of the teacher."""
    recipe: Recipe = load_run_recipe(teacher)
    if lesson.data:
        return make_recipe({"data": dict(lesson.data)}).data
    named = (*recipe.data.source, *recipe.data.target, *recipe.data.pairs, *recipe.data.files)
    missing = [path for path in named if not Path(path).exists()]
    if missing or not (named or recipe.data.builtin):
        found = f"names {missing[0]}, which does not exist" if missing else "names no files"
        raise ConfigError(
            f"the recipe of {str(teacher)!r} {found}; give the pairs whose sources the teacher is "
            "to translate: --source and --target, or --pairs"
        )
    return recipe.data


def _sources(texts: Texts, files: Sequence[str], known: set[int]) -> Iterator[Pair]:
    """Yield what the teacher translates; nothing that the student is validated or tested on."""
    for pair in texts.train():
        if hash_source(pair.source) not in known:
            yield pair
    if files:
        yield from (
            Pair(text, "") for text in read_sentences(files) if hash_source(text) not in known
        )


def _pairs(outcomes: Iterable[Outcome], lesson: Lesson) -> Iterator[Pair]:
    for source, target, translations in outcomes:
        best = translations[0]
        if target and len(translations) > 1:
            best = max(translations, key=lambda text: sentence_bleu(text, target))
        yield Pair(source, best)
        if target and lesson.originals and target != best:
            yield Pair(source, target)


def _compare(
    teacher: Path, out: Path, folder: Path, device: str, reporter: Reporter
) -> dict[str, Any]:
    """Measure teacher and student on the same test pairs and add both to the score card."""
    read_score_card(out)
    pairs = read_texts(folder / TEST, Pair)[:COMPARED]
    measured = {
        name: _measure(name, run, pairs, device, reporter)
        for name, run in (("teacher", teacher), ("student", out))
    }
    report = read_json(folder / REPORT, 1 << 20)
    about = {"run": str(teacher), "sentences": len(pairs), **measured, **report}
    return update_score_card(out, lambda card: {**card, "distillation": about})


def _measure(
    name: str, run: Path, pairs: Sequence[Pair], device: str, reporter: Reporter
) -> dict[str, Any]:
    """Measure a run as it is used: with the engine and the precision that are chosen for it."""
    translator = load_translator(run, device=device, reporter=reporter)
    sources = [pair.source for pair in pairs]
    translator.translate(sources[:WARM_UP])
    with reporter.bar(f"scoring the {name}", len(pairs)) as advance:
        begin = time.perf_counter()
        found = translator.translate(sources, done=lambda n: advance(n, ""))
        seconds = time.perf_counter() - begin
    scores = score(found, [pair.target for pair in pairs], n_bootstrap=0)
    return {
        "bleu": scores.bleu,
        "chrf": scores.chrf,
        "parameters": _count_parameters(run),
        "precision": translator.precision_of(),
        "sentences_per_second": round(len(pairs) / seconds, 1),
    }


def _count_parameters(run: Path) -> int:
    """Count the parameters of a run, which may have nothing but a conversion."""
    recipe, task = load_task(run)
    with shapes_only():
        return sum(one.numel() for one in task.build(recipe.model).parameters())
