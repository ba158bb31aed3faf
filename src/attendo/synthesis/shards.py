"""Translating a large corpus shard by shard, so that a kill at any moment loses little.

    FOLDER/about.json        what is translated, by which model and how
    FOLDER/00000.jsonl.zst   the first texts with their translations
    FOLDER/00001.jsonl.zst   ...

A shard appears complete, by one rename. A translation does not depend on what else is translated,
and sampling has a seed for each shard, so that an interrupted work ends with the same files.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any, NamedTuple

from attendo.bundle import PARAMETERS, parameters_file
from attendo.data.corpus import chunks
from attendo.data.lines import FileReport, raw_lines
from attendo.data.readers import Pair
from attendo.data.writers import write_records
from attendo.engines import TextTranslator
from attendo.errors import BundleError, ConfigError, DataError
from attendo.files import alone_in, clear_leftovers, explained, read_json, write_json
from attendo.reporter import Reporter

SIZE = 4096
"""Texts of a shard: the most that a kill loses."""

ABOUT = "about.json"


class Outcome(NamedTuple):
    """A text and what a model made of it."""

    source: str
    target: str
    """The reference; empty if there is none."""
    translations: list[str]
    """The best first; those that were cut at the longest allowed length are left out."""


@dataclass(frozen=True)
class Work:
    """What is translated, and how."""

    pairs: Callable[[], Iterator[Pair]]
    """Starts reading the texts, each with its reference or an empty one."""
    n_best: int = 1
    """Translations of each text."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keys of the section [decoding]."""
    size: int = SIZE
    """Texts of a shard."""


def translate_shards(
    work: Work,
    run: Path,
    load: Callable[[], TextTranslator],
    folder: Path,
    reporter: Reporter,
    *,
    resume: bool = False,
) -> None:
    """Translate what is not translated yet into the shards of a folder.

    Args:
        work: What to translate.
        run: The folder of the model.
        load: Loads it; not called if there is nothing left to do.
        folder: Where the shards are written.
        reporter: Receives the progress.
        resume: Whether the folder may contain shards of the same work.
    """
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with alone_in(folder):
        clear_leftovers(folder)
        about = _describe(work, run)
        check_same(folder, about, folder, resume=resume)
        write_json(folder / ABOUT, about)
        _translate_missing(work, load, folder, about["texts"], reporter)


def read_shards(folder: Path) -> Iterator[Outcome]:
    """Read all texts and translations, in order."""
    for path in sorted(folder.glob("*.jsonl.zst")):
        for line in raw_lines(str(path), FileReport()):
            try:
                yield Outcome(**json.loads(line))
            except (ValueError, TypeError):
                raise BundleError(f"{str(path)!r} is damaged; delete it and resume") from None


def _translate_missing(
    work: Work, load: Callable[[], TextTranslator], folder: Path, n_texts: int, reporter: Reporter
) -> None:
    """Translate shards that do not exist; the model is loaded for the first of them."""
    translator: TextTranslator | None = None
    seed = int(work.options.get("seed", 0))
    existing = {path.name for path in folder.glob("*.jsonl.zst")}
    n_done = min(n_texts, work.size * len(existing))
    with reporter.bar("translating", n_texts, n_done) as advance, _rate(advance) as done:
        for number, some in enumerate(chunks(work.pairs(), work.size)):
            name = f"{number:05d}.jsonl.zst"
            if name in existing:
                continue
            translator = translator or load()
            found = translator.translations(
                [pair.source for pair in some],
                n_best=work.n_best,
                done=done,
                **{**work.options, "seed": seed + number},
            )
            texts = [[one.text for one in best if one.finished] for best in found]
            outcomes = (
                Outcome(pair.source, pair.target, best)
                for pair, best in zip(some, texts, strict=True)
            )
            write_records(folder / name, outcomes)


@contextmanager
def _rate(advance: Callable[[int, str], None]) -> Iterator[Callable[[int], None]]:
    """Yield a function that reports progress with its speed."""
    begin, total = time.monotonic(), 0

    def done(n: int) -> None:
        nonlocal total
        total += n
        seconds = time.monotonic() - begin
        advance(n, f"{total / seconds:,.1f} sentences/s" if seconds > 1 else "")

    yield done


def _describe(work: Work, run: Path) -> dict[str, Any]:
    """Return what the translations depend on."""
    digest, n_texts = blake2b(digest_size=16), 0
    for pair in work.pairs():
        digest.update("\t".join(pair).encode(errors="surrogatepass") + b"\n")
        n_texts += 1
    if not n_texts:
        raise DataError(
            "there is nothing to translate; expected texts that are in neither the validation nor "
            "the test data"
        )
    path = parameters_file(run) or run / PARAMETERS
    try:
        with path.open("rb") as file:
            model = file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
    except OSError as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    about = {key: value for key, value in asdict(work).items() if key != "pairs"}
    return {"texts": n_texts, "digest": digest.hexdigest(), "model": model, **about}


def check_same(folder: Path, about: dict[str, Any], whole: Path, *, resume: bool) -> None:
    """Raise an error if the folder, or the `whole` that it is a part of, is for other work."""
    if not (folder / ABOUT).exists():
        return
    if not resume:
        raise ConfigError(
            f"{str(folder)!r} holds the translations of an interrupted command; "
            "continue it with --resume, or remove that folder"
        )
    try:
        before = read_json(folder / ABOUT, 1 << 20)
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(folder / ABOUT)!r} is damaged: {error}") from None
    changed = [key for key, value in about.items() if before.get(key) != value]
    if changed:
        names = {
            "digest": "texts",
            "n_best": "number of translations",
            "best_of": "number of translations",
            "size": "shard size",
        }
        which = ", ".join(dict.fromkeys(names.get(key, key) for key in changed))
        raise ConfigError(
            f"{str(whole)!r} was begun with other settings ({which}); give the same ones to "
            "continue, or remove that folder"
        )
