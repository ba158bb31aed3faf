"""All numbers of one system: its quality, its learning curve, its speed and its costs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import numpy as np

from attendo.bundle import load_task, read_score_card
from attendo.config import Recipe
from attendo.errors import BundleError
from attendo.lab.clock import Energy, estimate_energy
from attendo.lab.compare.families import Chain, chains_of, model_in_words
from attendo.lab.compare.significance import Quality, measure_quality
from attendo.lab.compare.worker import DECODING, TRAINING
from attendo.tasks import TASKS
from attendo.tasks.base import Metric
from attendo.training.log import Entry, read_log


class Point(NamedTuple):
    """A validation, and what had been spent until then."""

    step: int
    tokens: float
    """Target tokens learned from."""
    seconds: float
    """Time in which parameters were learned: without validations, saving and compilation."""
    loss: float
    score: float | None
    """The metric of the task."""


def learning_curve(entries: Sequence[Entry], tokens_a_step: float, metric: str) -> list[Point]:
    """Return all validations of a log."""
    reports = [entry for entry in entries if "tokens_per_second" in entry]
    steps = [0, *(entry["step"] for entry in reports)]
    seconds = [0.0, *map(_seconds, reports)]
    return [
        Point(
            step=entry["step"],
            tokens=entry["step"] * tokens_a_step,
            seconds=float(np.interp(entry["step"], steps, seconds)),
            loss=entry["valid_loss"],
            score=entry.get(f"valid_{metric}"),
        )
        for entry in entries
        if "valid_loss" in entry
    ]


def learning_seconds(entries: Sequence[Entry]) -> float:
    """Return the time in which parameters were learned."""
    return max((_seconds(entry) for entry in entries if "tokens_per_second" in entry), default=0.0)


def _seconds(report: Entry) -> float:
    """Return the seconds of training so far; older logs have only those with validations."""
    key = "learning_seconds" if "learning_seconds" in report else "seconds"
    return float(report[key])


def training_speed(entries: Sequence[Entry]) -> float:
    """Return the target tokens a second that a training had most of the time."""
    speeds = [entry["tokens_per_second"] for entry in entries if "tokens_per_second" in entry]
    # The first stretch is slower: memory is allocated, and on a GPU everything is compiled.
    return float(median(speeds[1:] if len(speeds) > 2 else speeds)) if speeds else 0.0


class Training(NamedTuple):
    """What learning took."""

    pairs: int
    """Sentence pairs of the corpus that fit this system's rows."""
    steps: int
    padded_tokens: int
    """Target tokens with padding: steps times training.batch_tokens."""
    tokens: float
    """Target tokens, about."""
    seconds: float
    """Time in which parameters were learned."""
    seconds_in_all: float
    """The same with validations, saving and compilation."""
    tokens_per_second: float
    checkpoint: str
    """The chosen one, such as `step 300`."""


class Memory(NamedTuple):
    """The most memory in training: of the process on a CPU, of all tensors on a GPU."""

    peak_bytes: int | None
    before_bytes: int | None
    """What had been taken before the first step."""


class Decoding(NamedTuple):
    """What predicting the test records took."""

    seconds: float
    records_per_second: float
    settings: dict[str, Any]


class Sequential(NamedTuple):
    """A number of steps that must follow one another, for sentences of this corpus."""

    formula: str
    mean: int
    """For a pair of mean length."""
    longest: int
    """For the longest source and the longest reference."""


@dataclass(frozen=True, slots=True)
class Measured:
    """All that is known of a system."""

    name: str
    model: str
    description: str
    n_parameters: int
    metric: Metric
    scores: dict[str, Any]
    """Of the test records, by name; the metric is among them."""
    quality: Quality | None
    """How good translations are; None for other tasks."""
    training: Training
    memory: Memory
    energy: Energy
    decoding: Decoding
    sequences: dict[str, Sequential]
    """Of encoding, training and decoding; empty for a family that is not known."""
    curve: list[Point]
    recipe: Recipe
    machine: dict[str, Any]
    sources: list[str]
    references: list[str]
    translations: list[str]

    @property
    def score(self) -> float:
        """The metric of the task."""
        return float(self.scores[self.metric.name])


def measure_system(
    name: str, description: str, run: Path, measured: Path, watts: float | None
) -> Measured:
    """Gather the numbers of a system that has been trained and tested."""
    recipe, _ = load_task(run)
    card, entries = read_score_card(run), read_log(run / "log.jsonl")
    noted, decoded = _read(measured / TRAINING), _read(measured / DECODING)
    training = _training(recipe, card, entries, decoded["training_tokens_a_step"])
    task = TASKS[recipe.task]
    machine, metric, quality = noted["machine"], task.metric, None
    if "translations" in decoded:
        quality = measure_quality(decoded["translations"], decoded["references"])
    return Measured(
        name=name,
        model=model_in_words(recipe.model, task.promise),
        description=description,
        n_parameters=card["parameters"],
        metric=metric,
        scores=quality.scores.to_dict() if quality else decoded["scores"],
        quality=quality,
        training=training,
        memory=Memory(noted["peak_memory_bytes"], noted["memory_before_bytes"]),
        energy=estimate_energy(
            training.seconds,
            measured=noted["watts"],
            given=watts,
            device=machine["device"],
            n_threads=machine["threads"],
        ),
        decoding=_decoding(decoded),
        sequences=_sequences(recipe, decoded),
        curve=learning_curve(entries, decoded["training_tokens_a_step"], metric.name),
        recipe=recipe,
        machine=machine,
        sources=decoded.get("sources", []),
        references=decoded.get("references", []),
        translations=decoded.get("translations", []),
    )


def _training(
    recipe: Recipe, card: dict[str, Any], entries: list[Entry], tokens_a_step: float
) -> Training:
    return Training(
        pairs=card["training_pairs"],
        steps=card["steps"],
        padded_tokens=card["steps"] * recipe.training.batch_tokens,
        tokens=card["steps"] * tokens_a_step,
        seconds=learning_seconds(entries),
        seconds_in_all=card["training_seconds"],
        tokens_per_second=training_speed(entries),
        checkpoint=card["checkpoint"],
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BundleError(
            f"{str(path)!r} cannot be read ({error}); remove its folder and run the command again"
        ) from None
    return values


def _decoding(decoded: dict[str, Any]) -> Decoding:
    seconds = max(1e-9, decoded["seconds"])
    return Decoding(
        seconds=decoded["seconds"],
        records_per_second=decoded["records"] / seconds,
        settings=decoded["decoding"],
    )


def _sequences(recipe: Recipe, decoded: dict[str, Any]) -> dict[str, Sequential]:
    chains = chains_of(recipe.model)
    if chains is None or "sources" not in decoded:
        return {}
    sources, targets = decoded["source_lengths"], decoded["reference_lengths"]
    usual, longest = (round(mean(sources)), round(mean(targets))), (max(sources), max(targets))

    def at(chain: Chain) -> Sequential:
        return Sequential(chain.formula, chain.steps(*usual), chain.steps(*longest))

    return {name: at(chain) for name, chain in chains._asdict().items()}
