"""The shipped translators, step by step: mixture, teacher, back-translation, news, student, scores.

PYTHONPATH=src python3 benchmarks/translator.py --help

Every stage continues where it was interrupted; --minutes ends it in time. A stage needs only what
the stages before it have written to the folder WORK:

    WORK/mixture/                 training pairs, news-like pairs, test sets, by direction
    WORK/DIRECTION/teacher/       a run of the large model
    WORK/DIRECTION/synthetic.tsv  back-translations by the teacher of the other direction
    WORK/DIRECTION/news/          the teacher, continued on news-like text and back-translations
    WORK/DIRECTION/student/       the small model
    WORK/DIRECTION/scores.json    of all of them
"""

import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from corpora import (
    Europarl,
    Sieve,
    find,
    read_newstest,
    read_sides,
    read_tatoeba,
    read_tsv,
)
from script import run

from attendo.bundle import (
    PARAMETERS,
    SCORE_CARD,
    WORDS,
    find_device,
    load_bundle,
    parameters_of,
    read_score_card,
    save_task,
    write_tensors,
)
from attendo.cli.output import print_table
from attendo.config import DataConfig, parse_overrides
from attendo.data.readers import Pair, read_lines
from attendo.data.writers import write_records
from attendo.engines.files import evaluate_records
from attendo.errors import AttendoError
from attendo.files import read_json, write_folder, write_json, write_text
from attendo.reporter import Console
from attendo.synthesis.back_translation import BackTranslation, back_translate
from attendo.synthesis.distillation import Lesson, distill
from attendo.training.run import Interrupted, train_run

NEWS_LIKE = ("fsfe", "debian-web", "geneval-wikipedia", "mlqe-wikipedia-postedit", "xquad", "pud")
"""Files of ende/ that read like news, press releases or encyclopedias."""

OTHERS = ("websites", "bcontrast-chat", "cocoa-mt", "msdocs-businesscentral", "php-docs")
"""Other files of ende/ whose licence allows to ship a model."""

TESTS = ("newstest2013", "newstest2014", "tatoeba", "multi30k")

LANGUAGES = {"en": "English", "de": "German"}

LICENCES = """\
| data | licence |
|---|---|
| European Parliament proceedings 1999-2011 (European Union) | reuse with acknowledgement |
| Microsoft documentation (.NET, C++, SQL, Visual Studio, Business Central) | CC BY 4.0 |
| Tatoeba, through manythings.org | CC BY 2.0 FR |
| LibreOffice user interface and help | MPL-2.0 |
| FSFE news; PHP manual; Debian web pages | CC BY-SA 4.0; CC BY 3.0; MIT and GPL-2 |
| Wikipedia sentences (MLQE, GenEval, XQuAD, PUD) | CC0, CC BY-SA |
| BContrast chat, CoCoA-MT; ethereum.org and other sites | CC BY-SA 4.0, CDLA-Sharing; MIT, CC BY |
| Common Voice prompts (back-translation and distillation) | CC0 |
"""

Work = Annotated[Path, typer.Argument(metavar="WORK", help="Folder of all stages.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Folder with the data sets.")]
Direction = Annotated[Literal["en-de", "de-en"], typer.Argument(metavar="DIRECTION")]
Limit = Annotated[int, typer.Option(min=0, metavar="N", help="Most pairs per data set (0: all).")]
Minutes = Annotated[float, typer.Option(min=0, help="Save and stop after this time (0: never).")]
Recipe = Annotated[str, typer.Option(metavar="RECIPE")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def mixture(data: Data, work: Work, limit: Limit = 0) -> None:
    """Clean and join the data sets that a shipped model may be trained on."""
    folder = work / "mixture"
    folder.mkdir(parents=True, exist_ok=True)
    tatoeba, europarl = read_tatoeba(data), Europarl(data)
    tests = {
        "newstest2013": read_newstest(data, 2013),
        "newstest2014": read_newstest(data, 2014),
        "tatoeba": tatoeba["test"],
        "valid-tatoeba": tatoeba["valid"],
        "europarl": europarl.test,
        "multi30k": read_sides(data / "multi30k" / "test_2016_flickr"),
    }
    for name, pairs in tests.items():
        _write_both(folder, f"test-{name}", pairs[:limit] if limit else pairs)
    sieve = Sieve(tests)
    ende = {name: read_tsv(find(data, f"ende/{name}.en-de.tsv.xz")) for name in NEWS_LIKE + OTHERS}
    sets: dict[str, Iterable[Pair]] = {
        "tatoeba": tatoeba["train"],
        **ende,
        "europarl": europarl.train(),
        "msdocs": read_tsv(find(data, "msdocs/*.tsv.xz")),
        "libreoffice": read_tsv([data / "libreoffice" / "en-de.tsv.xz"]),
    }
    sifted = {
        name: list(islice(sieve.sift(name, pairs), limit or None)) for name, pairs in sets.items()
    }
    _write_both(folder, "train", list(chain.from_iterable(sifted.values())))
    _write_both(folder, "news", [pair for name in NEWS_LIKE for pair in sifted[name]])
    for language in LANGUAGES:
        lines = read_lines(str(data / "mono" / f"commonvoice.{language}.txt.xz"))
        text = "".join(f"{line}\n" for line in islice(lines, limit or None))
        write_text(folder / f"mono.{language}.txt", text)
    write_json(folder / "mixture.json", {name: len(pairs) for name, pairs in sifted.items()})


@app.command()
def teacher(
    work: Work,
    direction: Direction,
    recipe: Recipe = "news",
    settings: Settings = None,
    minutes: Minutes = 0,
    device: Device = "auto",
) -> None:
    """Train the large model on the mixture."""
    files = {"data.pairs": _pairs(work, "train", direction), **_tests(work, direction)}
    with _time_limit(minutes):
        _train(recipe, files, work / direction / "teacher", settings, device)


@app.command("back-translate")
def back(
    work: Work,
    direction: Direction,
    batch_size: Annotated[int, typer.Option(min=1)] = 512,
    minutes: Minutes = 0,
    device: Device = "auto",
) -> None:
    """Translate text in the target language back, with the teacher of the other direction."""
    source, target = direction.split("-")
    out = work / direction / "synthetic.tsv"
    if out.exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    text = str(work / "mixture" / f"mono.{target}.txt")
    request = BackTranslation([text], {"beam": 4, "batch_size": batch_size})
    other = work / f"{target}-{source}" / "teacher"
    with _time_limit(minutes):
        print(back_translate(other, out, request, device, Console(), resume=True))


@app.command()
def news(
    work: Work,
    direction: Direction,
    settings: Settings = None,
    minutes: Minutes = 0,
    device: Device = "auto",
) -> None:
    """Continue the teacher on news-like pairs and back-translations."""
    pairs = [*_pairs(work, "news", direction), str(work / direction / "synthetic.tsv")]
    files = {"data.pairs": pairs, **_tests(work, direction)}
    files["start"] = str(work / direction / "teacher")
    with _time_limit(minutes):
        _train("auto", files, work / direction / "news", settings, device)


@app.command()
def student(
    work: Work,
    direction: Direction,
    recipe: Recipe = "student",
    settings: Settings = None,
    best_of: Annotated[int, typer.Option(min=1, max=64)] = 1,
    batch_size: Annotated[int, typer.Option(min=1)] = 512,
    minutes: Minutes = 0,
    device: Device = "auto",
) -> None:
    """Distill the continued teacher."""
    source = direction.split("-")[0]
    files = {"data.pairs": _pairs(work, "train", direction), **_tests(work, direction)}
    lesson = Lesson(
        data={key.removeprefix("data."): tuple(paths) for key, paths in files.items()},
        texts=[str(work / "mixture" / f"mono.{source}.txt")],
        best_of=best_of,
        options={"beam": 4, "batch_size": batch_size},
    )
    with _time_limit(minutes):
        distill(
            work / direction / "news",
            work / direction / "student",
            lesson,
            recipe=recipe,
            settings=parse_overrides(settings or []),
            device=device,
            resume=True,
            reporter=Console(),
        )


@app.command()
def evaluate(work: Work, direction: Direction, device: Device = "auto") -> None:
    """Score teacher, continued teacher and student on all test sets."""
    scores: dict[str, dict[str, Any]] = {}
    for name in ("teacher", "news", "student"):
        folder = work / direction / name
        if not (folder / "model.safetensors").exists():
            continue
        for test in TESTS:
            path = str(work / "mixture" / f"test-{test}.{direction}.tsv")
            card = evaluate_records(str(folder), path, {}, device, Console())
            kept = ("bleu", "chrf", "signature", "sentences")
            scores.setdefault(name, {})[test] = {key: card[key] for key in kept}
    write_json(work / direction / "scores.json", scores)
    rows = [(name, *(f"{own[test]['bleu']:.2f}" for test in TESTS)) for name, own in scores.items()]
    print_table([(f"BLEU {direction}", *TESTS), *rows])


@app.command()
def ship(
    work: Work,
    direction: Direction,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of translators.")],
) -> None:
    """Write the student as an installable translator, in fp16, with its card."""
    folder = work / direction / "student"
    bundle = load_bundle(folder, find_device("cpu"))
    card = _card(work, direction, read_score_card(folder))

    # Without the paths of the machine that it was trained on.
    data = DataConfig(max_length=bundle.recipe.data.max_length)
    recipe = bundle.recipe.model_copy(update={"data": data})
    scores = read_score_card(folder)
    for key in ("evaluations", "distillation"):
        scores.pop(key, None)

    def fill(temporary: Path) -> None:
        save_task(temporary, recipe, bundle.task)
        shutil.copy(folder / WORDS, temporary)
        write_json(temporary / SCORE_CARD, scores)
        tensors = {name: one.half() for name, one in parameters_of(bundle.model).items()}
        write_tensors(temporary / PARAMETERS, tensors, bundle.task.fingerprints())
        write_text(temporary / "README.md", card)

    out.mkdir(parents=True, exist_ok=True)
    write_folder(out / f"translate-{direction}", fill)


@app.command("all")
def everything(data: Data, work: Work, out: Path, limit: Limit = 300) -> None:
    """Run all stages with small models, to see that they work."""
    small = ["training.steps=40", "training.validate_every=20", "training.batch_tokens=1024"]
    large = [
        "training.steps=400", "training.validate_every=200", "training.batch_tokens=1024",
        "training.warmup_steps=40", "model.p_drop=0", "model.encoder_layers=1",
        "model.decoder_layers=1", "tokenizer.vocabulary=1000",
    ]  # fmt: skip
    mixture(data, work, limit)
    directions: tuple[Literal["en-de", "de-en"], ...] = ("en-de", "de-en")
    for one in directions:
        teacher(work, one, "tiny", large, device="cpu")
    for one in directions:
        back(work, one, 64, device="cpu")
        news(work, one, small, device="cpu")
        student(work, one, "student", [*small, "model.d_model=64"], batch_size=64, device="cpu")
        evaluate(work, one, "cpu")
        ship(work, one, out)


def _pairs(work: Path, name: str, direction: str) -> list[str]:
    return [str(work / "mixture" / f"{name}.{direction}.tsv")]


def _tests(work: Path, direction: str) -> dict[str, Any]:
    """Return the pairs that checkpoints are chosen by, and those that are reported."""
    return {
        "data.valid_pairs": _pairs(work, "test-newstest2013", direction),
        "data.test_pairs": _pairs(work, "test-newstest2014", direction),
    }


def _train(
    recipe: str, files: dict[str, Any], out: Path, settings: list[str] | None, device: str
) -> None:
    changes = parse_overrides(settings or [])
    train_run(
        recipe, {**files, **changes}, out, find_device(device), resume=True, reporter=Console()
    )


def _write_both(folder: Path, name: str, pairs: list[Pair]) -> None:
    """Write English-German pairs in both directions."""
    write_records(folder / f"{name}.en-de.tsv", pairs)
    write_records(
        folder / f"{name}.de-en.tsv", (Pair(german, english) for english, german in pairs)
    )


@contextmanager
def _time_limit(minutes: float) -> Iterator[None]:
    """End a stage in time, with everything saved; the same command continues it."""

    def stop(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    timer = threading.Timer(60 * minutes, os.kill, (os.getpid(), signal.SIGTERM))
    if minutes:
        timer.start()
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as interrupt:
        raise AttendoError(f"{str(interrupt) or 'stopped'}; run the stage again") from None
    finally:
        timer.cancel()


def _card(work: Path, direction: str, card: dict[str, Any]) -> str:
    """Return the description of a translator: data, licences, scores and limits."""
    source, target = (LANGUAGES[one] for one in direction.split("-"))
    scores = read_json(work / direction / "scores.json", 1 << 20)
    rows = [
        f"| {test} | {scores['news'][test]['bleu']:.1f} | {own['bleu']:.1f} | {own['chrf']:.1f} |"
        for test, own in scores["student"].items()
    ]
    table = "\n".join(rows)
    return f"""\
# {source} to {target}

A small Transformer for attendo, trained by sequence-level distillation from a larger one
(`benchmarks/translator.py` in attendo's repository). {card["parameters"]:,} parameters.

## Scores

Beam search, sacrebleu ({scores["student"][TESTS[0]]["signature"]}).

| test set | BLEU of the teacher | BLEU | chrF |
|---|---|---|---|
{table}

## Data

{LICENCES}
## Limits

It was trained on parliament, software documentation, short everyday sentences, press releases and
encyclopedias. Other kinds of text are translated worse, and rare names and numbers may be wrong.
Each sentence is translated on its own, so that pronouns and forms of address may change between
sentences. It repeats the biases of its data. Do not rely on it where an error does harm.
"""


if __name__ == "__main__":
    run(app)
