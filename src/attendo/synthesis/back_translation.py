"""Back-translation (Sennrich et al. 2016): text in the target language becomes training pairs.

A model of the opposite direction translates it. The target of such a pair was written by a person;
only the source is synthetic.
"""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attendo.data.readers import Pair, read_lines, refuse_streams
from attendo.data.texts import hash_source
from attendo.data.writers import check_writable, write_records
from attendo.engines import TextTranslator, load_translator
from attendo.errors import ConfigError, DataError
from attendo.reporter import Reporter
from attendo.synthesis.faults import without_faults
from attendo.synthesis.shards import SIZE, Outcome, Work, read_shards, translate_shards


@dataclass(frozen=True)
class BackTranslation:
    """What is translated back, and how."""

    texts: Sequence[str]
    """Text files in the language that the reverse model reads, one sentence a line."""
    options: dict[str, Any] = field(default_factory=dict)
    """Keys of the section [decoding], such as strategy or beam."""
    tag: str = ""
    """Put before every synthetic source, so that a model can tell it from a real one."""
    size: int = SIZE
    """Texts of a shard."""


def back_translate(
    run: Path,
    out: Path,
    request: BackTranslation,
    device: str,
    reporter: Reporter,
    *,
    resume: bool = False,
) -> dict[str, Any]:
    """Write synthetic pairs to a file (.tsv or .jsonl); return how many, and what was left out."""
    check_writable(out)
    shards = out.with_name(f"{out.name}.shards")
    if out.exists() and not (resume and shards.exists()):
        raise ConfigError(f"{str(out)!r} exists already; remove it, or give another --out")

    def pairs() -> Iterator[Pair]:
        return (Pair(text, "") for text in read_sentences(request.texts))

    def load() -> TextTranslator:
        return load_translator(run, device=device, reporter=reporter)

    work = Work(pairs, options=request.options, size=request.size)
    translate_shards(work, run, load, shards, reporter, resume=resume)
    dropped: Counter[str] = Counter()
    outcomes = without_faults(read_shards(shards), dropped)
    n_pairs = write_records(out, _pairs(outcomes, request.tag))
    shutil.rmtree(shards)
    return {"pairs": n_pairs, "dropped": dict(dropped), "file": str(out)}


def read_sentences(paths: Iterable[str]) -> Iterator[str]:
    """Read the lines of text files that are not empty, each once."""
    refuse_streams(paths)
    seen: set[int] = set()
    for path in paths:
        for line in read_lines(path):
            text = " ".join(line.split())
            number = hash_source(text)
            if text and number not in seen:
                seen.add(number)
                yield text
    if not seen:
        raise DataError(f"{', '.join(paths)}: empty; expected one sentence a line")


def _pairs(outcomes: Iterable[Outcome], tag: str) -> Iterator[Pair]:
    for one in outcomes:
        yield Pair(f"{tag} {one.translations[0]}".strip(), one.source)
