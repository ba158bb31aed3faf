"""The shipped translator, stage by stage: corpus, model, scores; and students that learn from it.

PYTHONPATH=src python3 benchmarks/translator.py --help

Texts are cleaned and encoded once; all models have one vocabulary, so that a teacher's output is
what a student is trained on, token by token. The model translates in both directions: the language
of the source tells it which. A stage needs only what the stages before it have written to the
folder WORK:

    WORK/corpus/              pairs as ids: en, de; text in one language: more-en, more-de
    WORK/tests/               test sets as text
    WORK/en+de/               the run of the model for both directions, the teacher
    WORK/en-de/, WORK/de-en/  the runs of smaller students, with the teacher's translations
    WORK/scores.json          of all of them
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
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
    load_task,
    read_score_card,
    save_task,
)
from attendo.cli.output import print_table
from attendo.config import DataConfig, load_recipe, parse_overrides
from attendo.conversions import FOLDER as CONVERSION
from attendo.data.corpus import (
    CorpusWriter,
    Numbers,
    Ragged,
    chunks,
    joined,
    offsets_of,
    read_texts,
    write_texts,
)
from attendo.data.readers import Pair, read_lines
from attendo.decoding import search_all
from attendo.engines import Translator, load, load_translator
from attendo.errors import DataError
from attendo.files import read_json, write_folder, write_json, write_text
from attendo.reporter import Console
from attendo.runs import RECIPE, read_tokenizer
from attendo.tasks import Translation
from attendo.text import WordCounter, train_tokenizer
from attendo.text.streams import Job
from attendo.training.run import train_run

NEWS_LIKE = ("fsfe", "debian-web", "geneval-wikipedia", "mlqe-wikipedia-postedit", "xquad", "pud")
"""Files of ende/ that read like news, press releases or encyclopedias."""

OTHERS = ("websites", "bcontrast-chat", "cocoa-mt", "msdocs-businesscentral", "php-docs")
"""Other files of ende/ whose licence allows to ship a model."""

REPEATED = 3
"""How often the model reads news-like pairs, and short everyday ones, in an epoch."""

VOCABULARY = 8000
LONGEST = 127
"""Tokens of a sentence; a row of 128 has one place for </s>."""

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
"""
PROMPTS = "| Common Voice prompts, translated by the model for both directions | CC0 |\n"

Work = Annotated[Path, typer.Argument(metavar="WORK", help="Folder of all stages.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="Folder with the data sets.")]
Way = Literal["en-de", "de-en"]
DIRECTIONS: tuple[Way, ...] = ("en-de", "de-en")
BOTH = "en+de"
SCORES = "scores.json"
SIZES = "corpus/sizes.json"
"""Number of pairs of each data set."""
Direction = Annotated[Way, typer.Argument(metavar="DIRECTION")]
Limit = Annotated[int, typer.Option(min=0, metavar="N", help="Most pairs per data set (0: all).")]
Recipe = Annotated[str, typer.Option(metavar="RECIPE")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def corpus(data: Data, work: Work, limit: Limit = 0) -> None:
    """Clean and join what a shipped model may be trained on, learn the vocabulary, encode."""
    (work / "tests").mkdir(parents=True, exist_ok=True)
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
        write_texts(work / "tests" / f"{name}.jsonl", pairs[: limit or None])
    sieve = Sieve(tests)
    ende = {name: read_tsv(find(data, f"ende/{name}.en-de.tsv.xz")) for name in NEWS_LIKE + OTHERS}
    # What is repeated comes first.
    sets: dict[str, Iterable[Pair]] = {
        **{name: ende[name] for name in NEWS_LIKE},
        "tatoeba": tatoeba["train"],
        **{name: ende[name] for name in OTHERS},
        "europarl": europarl.train(),
        "msdocs": read_tsv(find(data, "msdocs/*.tsv.xz")),
        "libreoffice": read_tsv([data / "libreoffice" / "en-de.tsv.xz"]),
    }
    sifted = {
        name: list(islice(sieve.sift(name, pairs), limit or None)) for name, pairs in sets.items()
    }
    pairs = list(chain.from_iterable(sifted.values()))
    pairs = modernise(pairs)
    tokenizer = train_tokenizer("bpe", chain.from_iterable(pairs[::4]), VOCABULARY)
    write_text(work / "tokenizer.json", tokenizer.to_json())
    more = {
        language: list(
            islice(read_lines(str(data / "mono" / f"commonvoice.{language}.txt.xz")), limit or None)
        )
        for language in LANGUAGES
    }

    def fill(folder: Path) -> None:
        writer = CorpusWriter(folder, dict.fromkeys(LANGUAGES, tokenizer.size))
        words = {language: WordCounter() for language in LANGUAGES}
        for some in chunks(pairs):
            sides = [tokenizer.encode_batch(texts) for texts in zip(*some, strict=True)]
            # None is left out, so that the first ones are still those to be repeated.
            writer.add((one[:LONGEST], other[:LONGEST]) for one, other in zip(*sides, strict=True))
            for counter, texts in zip(words.values(), zip(*some, strict=True), strict=True):
                counter.add(texts)
        writer.close()
        for language, prompts in more.items():
            name = f"more-{language}"
            writer = CorpusWriter(folder, {name: tokenizer.size})
            writer.add((ids,) for ids in tokenizer.encode_batch(prompts) if len(ids) <= LONGEST)
            writer.close()
            known = words[language].words()[:MOST_WORDS]
            write_text(folder / f"{language}.words.txt", "".join(f"{word}\n" for word in known))
        write_json(folder / Path(SIZES).name, {name: len(some) for name, some in sifted.items()})

    write_folder(work / "corpus", fill)


MOST_WORDS = 100_000
"""Words that are not reported as unknown, the most frequent ones."""

_SHARP = re.compile(r"\w*(?:ß|ss)\w*")


def modernise(pairs: list[Pair]) -> list[Pair]:
    """Write German of before 2001 as it is written today: dass, not daß.

    A word with ß is replaced if it is written with ss much more often.
    """
    counts: Counter[str] = Counter()
    for some in chunks(pairs):
        counts.update(_SHARP.findall("\n".join(pair.target for pair in some)))
    old = {
        word
        for word, count in counts.items()
        if "ß" in word and counts[word.replace("ß", "ss")] > 3 * count
    }

    def replace(match: re.Match[str]) -> str:
        return match[0].replace("ß", "ss") if match[0] in old else match[0]

    return [
        Pair(english, _SHARP.sub(replace, german) if "ß" in german else german)
        for english, german in pairs
    ]


@app.command()
def train(
    work: Work, recipe: Recipe = "translator", settings: Settings = None, device: Device = "auto"
) -> None:
    """Train the model on all pairs in both directions."""
    folder = work / BOTH
    if not (folder / RECIPE).exists():
        n_repeated = _count_repeated(work)
        sides = [_read(work, language) for language in LANGUAGES]
        lengths = np.stack([side.lengths() for side in sides])
        usable = np.flatnonzero(((lengths > 0) & (lengths < LONGEST)).all(axis=0))
        order = np.concatenate([usable] + [usable[usable < n_repeated]] * (REPEATED - 1))
        print(f"{lengths.shape[1]:,} pairs, {len(usable):,} usable, {len(order):,} in an epoch")
        there, back = (side.take(order) for side in sides)
        columns = [joined([there, back]), joined([back, there])]
        _begin(folder, work, DIRECTIONS, recipe, settings, columns)
    train_run("auto", {}, folder, find_device(device), resume=True, reporter=Console())


@app.command()
def student(
    work: Work,
    direction: Direction,
    recipe: Recipe = "student",
    settings: Settings = None,
    sources: Annotated[int, typer.Option(min=1, help="Sentences to translate.")] = 1_500_000,
    teacher: Annotated[
        Path | None, typer.Option(metavar="RUN", help=f"The teacher, if it is not WORK/{BOTH}.")
    ] = None,
    beam: Annotated[int, typer.Option(min=1)] = 1,
    device: Device = "auto",
) -> None:
    """Translate with the model, and train a smaller one on that."""
    folder = work / direction
    if not (folder / RECIPE).exists():
        language = direction.split("-")[0]
        chosen = _choose(work, _read(work, language), sources)
        given = joined([chosen, _read(work, f"more-{language}")])
        columns = translate(_load_teacher(work, teacher or work / BOTH, device), given, beam)
        _begin(folder, work, [direction], recipe, settings, columns)
    train_run("auto", {}, folder, find_device(device), resume=True, reporter=Console())


def _load_teacher(work: Path, run: Path, device: str) -> Translator:
    """Load a run that reads the ids of the corpus."""
    translator = load(run, device)
    if translator.task.source.to_json() != read_tokenizer(work / "tokenizer.json").to_json():
        raise DataError(
            f"{run} has another tokenizer than {work}; its corpus is not for this teacher"
        )
    return translator


def translate(translator: Translator, sources: Ragged, beam: int) -> list[Ragged]:
    """Translate encoded sentences; return those with a usable translation, and these."""
    if translator.device.type == "cuda":
        translator.model.bfloat16()
    size = 1024 if translator.device.type == "cuda" else 32
    strategy = "greedy" if beam == 1 else "beam"
    options = translator.recipe.decoding.model_copy(
        update={"strategy": strategy, "beam": beam, "batch_size": size}
    )
    lengths = sources.lengths()
    usable = np.flatnonzero((lengths > 0) & (lengths < LONGEST))
    # The longest first, so that the slots have the size for all that follow.
    order = usable[np.argsort(-lengths[usable], kind="stable")]
    found: list[list[int]] = [[] for _ in order]
    with Console().bar("translating", len(order)) as advance:
        requests = (
            translator.task.request_jobs(translator.model, jobs, options, translator.device)
            for jobs in _batches(sources, order, size)
        )
        for some in search_all(requests, options, 1, translator.model.pools):
            for place, (best,) in some.items():
                found[place] = list(best.ids) if best.finished else []
            advance(len(some), "")
    n_found = np.array(list(map(len, found)))
    n_given = lengths[order]
    # Translations that are much shorter or longer are wrong, or of something that is no sentence.
    good = (n_found > 0) & (n_found < 2 * n_given + 10) & (n_given < 2 * n_found + 10)
    print(f"{good.sum():,} of {len(order):,} translations are used")
    if not good.any():
        raise DataError("none of the teacher's translations can be used; train it for longer")
    offsets = offsets_of(n_found)
    targets = Ragged(np.fromiter(chain.from_iterable(found), np.int64, offsets[-1]), offsets)
    return [sources.take(order[good]), targets.take(np.flatnonzero(good))]


def _batches(sources: Ragged, order: Numbers, size: int) -> Iterator[list[Job]]:
    for first in range(0, len(order), size):
        ids = sources.take(order[first : first + size]).sequences()
        yield [Job(first + n, 0, one, [], "", is_last=True) for n, one in enumerate(ids)]


@app.command()
def evaluate(work: Work, device: Device = "cpu", precision: str = "int8") -> None:
    """Score all models on all test sets, as they are shipped."""
    runs = [name for name in (BOTH, *DIRECTIONS) if (work / name / PARAMETERS).exists()]
    scores: dict[str, Any] = {}
    for name in runs:
        translator = load_translator(
            work / name, device=device, precision=precision, reporter=Console()
        )
        for direction in DIRECTIONS if name == BOTH else (name,):
            scores.setdefault(name, {})[direction] = {
                test: {
                    **translator.evaluate(*_sides(work, test, direction)).to_dict(),
                    "precision": translator.precision,
                }
                for test in TESTS
            }
    write_json(work / SCORES, scores)
    rows = [
        (name, direction, *(f"{found[test]['bleu']:.2f}" for test in TESTS))
        for name, own in scores.items()
        for direction, found in own.items()
    ]
    print_table([("model", "BLEU", *TESTS), *rows])


@app.command()
def ship(
    work: Work,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of translators.")],
    name: Annotated[str, typer.Option("--model", help=f"{BOTH}, or a student: en-de.")] = BOTH,
) -> None:
    """Write a model as an installable translator, in int8, with its card."""
    run = work / name
    recipe, task = load_task(run)
    # Without the paths of the machine that it was trained on.
    recipe = recipe.model_copy(update={"data": DataConfig(max_length=recipe.data.max_length)})
    scores = read_json(work / SCORES, 1 << 20).get(name)
    if not scores or not (run / CONVERSION / "int8").is_dir():
        raise DataError(f"{run} has no scores and conversion in int8; run `evaluate {work}`")
    newstest = next(iter(scores.values()))["newstest2014"]
    card = read_score_card(run) | {key: newstest[key] for key in newstest if key != "precision"}
    if name == BOTH:  # each pair counts once, whatever the number of directions and repetitions
        card["training_pairs"] = sum(read_json(work / SIZES, 1 << 20).values())

    def fill(folder: Path) -> None:
        save_task(folder, recipe, task)
        if name != BOTH:  # they tell the language of a text
            shutil.copy(run / WORDS, folder)
        write_json(folder / SCORE_CARD, card)
        write_text(folder / "README.md", _card(name, card, scores))
        # `evaluate` has made the conversion, and measured it.
        unused = shutil.ignore_patterns("float32")
        shutil.copytree(run / CONVERSION, folder / CONVERSION, ignore=unused)

    out.mkdir(parents=True, exist_ok=True)
    write_folder(out / f"translate-{name}", fill)


@app.command("all")
def everything(data: Data, work: Work, out: Path, limit: Limit = 300) -> None:
    """Run all stages with small models, to see that they work."""
    tiny = [
        "training.steps=400", "training.validate_every=200", "training.batch_tokens=1024",
        "training.warmup_steps=40", "model.encoder_layers=1", "model.decoder_layers=1",
        "model.d_model=64", "model.d_ff=64", "model.n_heads=2", "model.p_drop=0",
    ]  # fmt: skip
    corpus(data, work, limit)
    train(work, "tiny", tiny, device="cpu")
    for one in DIRECTIONS:
        student(work, one, "student", tiny, 100, device="cpu")
    evaluate(work, device="cpu")
    for name in (BOTH, *DIRECTIONS):
        ship(work, out, name)


def _read(work: Path, name: str) -> Ragged:
    """Read a column of the corpus."""
    stem = work / "corpus" / name
    return Ragged(np.load(f"{stem}.ids.npy"), np.load(f"{stem}.offsets.npy"))


def _count_repeated(work: Path) -> int:
    """Return how many pairs, the first of the corpus, are news-like or short and everyday."""
    sizes = read_json(work / SIZES, 1 << 20)
    return sum(sizes[name] for name in (*NEWS_LIKE, "tatoeba"))


def _choose(work: Path, column: Ragged, count: int) -> Ragged:
    """Return about so many sentences: those that are repeated, and a sample of the others."""
    n_first, n_sentences = _count_repeated(work), len(column.offsets) - 1
    n_others = min(max(0, count - n_first), n_sentences - n_first)
    others = np.linspace(n_first, n_sentences - 1, n_others).astype(int)
    return column.take(np.concatenate([np.arange(n_first), others]))


def _test_pairs(work: Path, name: str, direction: str) -> list[Pair]:
    pairs = read_texts(work / "tests" / f"{name}.jsonl", Pair)
    return pairs if direction == "en-de" else [Pair(german, english) for english, german in pairs]


def _sides(work: Path, name: str, direction: str) -> tuple[list[str], list[str]]:
    pairs = _test_pairs(work, name, direction)
    return [source for source, _ in pairs], [target for _, target in pairs]


def _begin(
    folder: Path,
    work: Path,
    directions: Sequence[str],
    name: str,
    settings: list[str] | None,
    columns: Sequence[Ragged],
) -> None:
    """Write a run that has its data already, so that training can begin."""
    tokenizer = read_tokenizer(work / "tokenizer.json")
    changes = {"tokenizer.vocabulary": tokenizer.size, "data.max_length": LONGEST + 1}
    recipe = load_recipe(name, {**changes, **parse_overrides(settings or [])})
    recipe = recipe.model_copy(update={"name": name})

    def fill(data: Path) -> None:
        for side, column in zip(("source", "target"), columns, strict=True):
            np.save(data / f"{side}.ids.npy", column.ids.astype("<u2"))
            np.save(data / f"{side}.offsets.npy", column.offsets)
        # All directions in turns, since some validations take the first pairs only.
        valid = zip(*(_test_pairs(work, "newstest2013", one) for one in directions), strict=True)
        write_texts(data / "valid.jsonl", chain.from_iterable(valid))
        # `evaluate` has all of them.
        write_texts(data / "test.jsonl", _test_pairs(work, "newstest2014", directions[0])[:64])
        write_json(data / "report.json", {"kept": len(columns[0].offsets) - 1, "dropped": {}})
        words = [work / "corpus" / f"{one.split('-')[0]}.words.txt" for one in directions]
        write_text(data / WORDS, "".join(path.read_text("utf-8") for path in words))

    (folder / "state").mkdir(parents=True, exist_ok=True)
    write_folder(folder / "state" / "data", fill)
    save_task(folder, recipe, Translation(tokenizer, tokenizer, recipe.data.max_length))


def _card(name: str, card: Mapping[str, Any], scores: Mapping[str, Any]) -> str:
    """Return the description of a translator: data, licences, scores and limits."""
    one, other = map(LANGUAGES.__getitem__, re.split("[-+]", name))
    both = "The language of a text decides about the direction." if name == BOTH else ""
    rows = "\n".join(
        f"| {direction} | {test} | {found['bleu']:.1f} | {found['chrf']:.1f} |"
        for direction, own in scores.items()
        for test, found in own.items()
    )
    return f"""\
# {one} {"and" if both else "to"} {other}

A Transformer for attendo ({card["parameters"]:,} parameters, in int8), trained in
{card["training_seconds"] / 60:.0f} minutes on one {card["hardware"]} (`benchmarks/translator.py`).
{both}

## Scores

sacrebleu, {card["signature"]}

| direction | test set | BLEU | chrF |
|---|---|---|---|
{rows}

## Data

{LICENCES if name == BOTH else LICENCES + PROMPTS}
## Limits

It was trained on parliament, software documentation, short everyday sentences, press releases and
encyclopedias. Other kinds of text are translated worse, and rare names and numbers may be wrong.
Each sentence is translated on its own, so that pronouns and forms of address may change between
sentences. It repeats the biases of its data. Do not rely on it where an error does harm.
"""


if __name__ == "__main__":
    run(app)
