"""Images and recordings: splits, strings of spoken digits, and runs with several seeds.

PYTHONPATH=src python3 benchmarks/media.py --help
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from script import run

from attendo.bundle import find_device
from attendo.config import choose, parse_overrides
from attendo.data.media.recordings import read_recording, write_wav
from attendo.errors import DataError
from attendo.files import write_text
from attendo.reporter import Console
from attendo.training.run import train_run

RATE = 8000
"""Samples per second of the Free Spoken Digit Dataset."""

TEST_TAKES, VALID_TAKES = range(5), range(5, 8)
"""Takes of every speaker and digit: 0 to 4 are the test set of the dataset's README."""

MOST_DIGITS, LONGEST_GAP, MOST_NOISE = 7, 0.3, 0.01

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

Folder = Annotated[Path, typer.Argument(help="Folder of the recordings, 7_jackson_32.wav.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")]
Seeds = Annotated[int, typer.Option(min=1, help="Number of seeds, from 1.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Change a setting of the recipe.")
]


class Take(NamedTuple):
    """One recording of the Free Spoken Digit Dataset."""

    path: Path
    digit: str
    speaker: str
    number: int


def list_takes(folder: Path) -> list[Take]:
    """List the recordings by the parts of their names."""
    takes = []
    for path in sorted(folder.glob("*.wav")):
        digit, speaker, number = path.stem.split("_")
        takes.append(Take(path.resolve(), digit, speaker, int(number)))
    if not takes:
        raise DataError(f"{folder} has no wav files such as 7_jackson_32.wav")
    return takes


def write_list(path: Path, rows: Iterable[tuple[Path, str]]) -> Path:
    """Write file TAB label."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{file}\t{label}\n" for file, label in rows))
    return path


def labelled(takes: Sequence[Take]) -> list[tuple[Path, str]]:
    """Return files with their digits."""
    return [(take.path, take.digit) for take in takes]


class Split(NamedTuple):
    """The recordings of one experiment."""

    name: str
    train: list[Take]
    valid: list[Take]
    test: list[Take]


def split(takes: Sequence[Take], speaker: str | None) -> Split:
    """Hold out takes 0 to 4 of everybody, or one speaker altogether."""
    if speaker is None:
        return Split(
            "takes",
            [one for one in takes if one.number not in (*TEST_TAKES, *VALID_TAKES)],
            [one for one in takes if one.number in VALID_TAKES],
            [one for one in takes if one.number in TEST_TAKES],
        )
    others = [one for one in takes if one.speaker != speaker]
    return Split(
        speaker,
        [one for one in others if one.number not in TEST_TAKES],
        [one for one in others if one.number in TEST_TAKES],
        [one for one in takes if one.speaker == speaker],
    )


def make_strings(takes: Sequence[Take], n: int, seed: int, folder: Path) -> Path:
    """Join recordings of one speaker to strings of 1 to 7 digits, with gaps and noise; list them.

    Every string is of one speaker; digits, gaps and the level of the noise are drawn.
    """
    chance = np.random.default_rng(seed)
    by_speaker = defaultdict(list)
    for take in takes:
        by_speaker[take.speaker].append(take)
    speakers = sorted(by_speaker)
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(n):
        own = by_speaker[speakers[number % len(speakers)]]
        chosen = [
            own[k] for k in chance.integers(len(own), size=chance.integers(1, MOST_DIGITS + 1))
        ]
        parts: list[Any] = []
        for take in chosen:
            gap = int(RATE * chance.uniform(0, LONGEST_GAP)) if parts else 0
            parts += [np.zeros(gap), read_recording(str(take.path), RATE)]
        sound = np.concatenate(parts)
        sound = sound + chance.normal(0, 32768 * MOST_NOISE * chance.uniform() ** 3, len(sound))
        path = folder / f"{number:04}.wav"
        write_wav(path, sound.clip(-32768, 32767).astype(np.int16), RATE)
        rows.append((path.resolve(), " ".join(take.digit for take in chosen)))
    return write_list(folder / "list.tsv", rows)


@app.command()
def strings(
    folder: Folder,
    out: Out,
    count: Annotated[int, typer.Option(min=1, help="Number of strings.")] = 500,
    speaker: Annotated[str | None, typer.Option(help="Hold out this speaker.")] = None,
) -> None:
    """Write the strings of spoken digits of one split: train.tsv, valid/ and test/."""
    print(_write_strings(split(list_takes(folder), speaker), out, count)["data.files"])


def _write_strings(parts: Split, out: Path, count: int) -> dict[str, str]:
    return {
        # Single digits: training joins them itself, in other ways in each epoch.
        "data.files": str(write_list(out / "train.tsv", labelled(parts.train))),
        "data.valid_files": str(make_strings(parts.valid, count // 2, 1, out / "valid")),
        "data.test_files": str(make_strings(parts.test, count, 2, out / "test")),
    }


def _write_digits(parts: Split, out: Path, count: int) -> dict[str, str]:
    return {
        "data.files": str(write_list(out / "train.tsv", labelled(parts.train))),
        "data.valid_files": str(write_list(out / "valid.tsv", labelled(parts.valid))),
        "data.test_files": str(write_list(out / "test.tsv", labelled(parts.test))),
    }


@app.command()
def mnist(
    folder: Annotated[Path, typer.Argument(help="Folder of the four files of MNIST.")],
    out: Out,
    seeds: Seeds = 5,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train `mnist` with several seeds."""
    files = {
        "data.files": str(folder / "train-images-idx3-ubyte.gz"),
        "data.test_files": str(folder / "t10k-images-idx3-ubyte.gz"),
    }
    scores = _train("mnist", out, "accuracy", seeds, device, {**files, **_given(settings)})
    _report("MNIST, accuracy", {"test": scores})


@app.command()
def digits(
    folder: Folder,
    out: Out,
    speakers: Annotated[bool, typer.Option(help="Six folds of unseen speakers.")] = False,
    as_strings: Annotated[
        bool, typer.Option("--strings", help="Transcribe strings, instead of single digits.")
    ] = False,
    speaker: Annotated[
        list[str] | None, typer.Option(help="Only the folds of these speakers; may be repeated.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of test strings.")] = 500,
    seeds: Seeds = 5,
    device: Device = "auto",
    settings: Settings = None,
) -> None:
    """Train `spoken-digits` or `spoken-digit-strings`; test takes 0 to 4, or an unseen speaker."""
    takes = list_takes(folder)
    everybody = sorted({take.speaker for take in takes})
    for name in speaker or ():
        choose(dict.fromkeys(everybody), name, "--speaker")
    names = speaker or (everybody if speakers else [None])
    recipe = "spoken-digit-strings" if as_strings else "spoken-digits"
    metric = "word_error_rate" if as_strings else "accuracy"
    write = _write_strings if as_strings else _write_digits
    found = {}
    for name in names:
        parts = split(takes, name)
        files = write(parts, out / parts.name / "data", count)
        given = {**files, **_given(settings)}
        found[parts.name] = _train(recipe, out / parts.name, metric, seeds, device, given)
    _report(f"{recipe}, {metric}", found)


def _given(settings: list[str] | None) -> dict[str, Any]:
    return parse_overrides(settings or [])


def _train(
    recipe: str, out: Path, metric: str, seeds: int, device: str, settings: dict[str, Any]
) -> list[float]:
    """Train with each seed, or read the score of a run that is complete; return the metric."""
    scores = []
    for seed in range(1, seeds + 1):
        folder = out / f"seed-{seed}"
        # A run that is there already is continued, or only read.
        card = train_run(
            recipe,
            {**settings, "training.seed": seed},
            folder,
            find_device(device),
            resume=True,
            reporter=Console(),
        )
        scores.append(card[metric])
        print(json.dumps({"run": str(folder), metric: card[metric], **_about(card)}), flush=True)
    return scores


def _about(card: dict[str, Any]) -> dict[str, Any]:
    return {key: card[key] for key in ("training_seconds", "steps", "parameters", "hardware")}


def _report(title: str, found: dict[str, list[float]]) -> None:
    print(title)
    for name, scores in found.items():
        spread = f" (deviation {stdev(scores):.2f})" if len(scores) > 1 else ""
        print(f"  {name:<10} {mean(scores):.2f}{spread}  {', '.join(map(str, scores))}")
    if len(found) > 1:
        print(f"  {'mean':<10} {mean(mean(scores) for scores in found.values()):.2f}")


if __name__ == "__main__":
    run(app)
