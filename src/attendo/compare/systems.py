"""One system, in a process of its own: trained, then set to translate, each of it measured."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from attendo.bench.clock import describe, forget_peak, timed
from attendo.bundle import RECIPE
from attendo.compare.energy import power_meter
from attendo.compare.memory import highest_memory
from attendo.compare.speed import tokens_per_step
from attendo.data.corpus import read_texts
from attendo.engines import load
from attendo.files import write_json
from attendo.reporter import Reporter
from attendo.text import Tokenizer
from attendo.training.run import train_run

TRAINING = "training.json"
DECODING = "decoding.json"


class Watch(Reporter):
    """Tells another reporter all it hears, and notes what the steps of the training took."""

    def __init__(self, reporter: Reporter, device: torch.device, path: Path) -> None:
        self.reporter = reporter
        self.device = device
        self.path = path

    def say(self, message: str) -> None:
        """Pass it on."""
        self.reporter.say(message)

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Pass it on; around the training itself, watch memory and power."""
        with self.reporter.bar(title, total, done) as advance:
            if title != "training":
                yield advance
                return
            forget_peak(self.device)
            before = highest_memory(self.device)
            with power_meter(self.device) as power:
                yield advance
            # Written now: the process may be gone before the test sentences are translated.
            self.note(before, highest_memory(self.device), power.watts)

    def note(self, before: int | None, peak: int | None, watts: float | None) -> None:
        """Write down what is known of the training."""
        noted = {"memory_before_bytes": before, "peak_memory_bytes": peak, "watts": watts}
        write_json(self.path, {**noted, "machine": describe(self.device)})


def train_system(
    run: Path, settings: dict[str, Any], measured: Path, device: torch.device, reporter: Reporter
) -> None:
    """Train a run that has been begun, or go on with it."""
    watch = Watch(reporter, device, measured / TRAINING)
    train_run(str(run / RECIPE), settings, run, device, resume=True, reporter=watch)
    if not watch.path.exists():  # an earlier process was ended between its last step and its note
        watch.note(None, None, None)


def decode_tests(
    run: Path, batch_size: int, measured: Path, device: torch.device, reporter: Reporter
) -> None:
    """Translate the test sentences as the recipe says, by the clock and warmed up."""
    translator = load(run, str(device))
    pairs = read_texts(run / "state" / "data" / "test.jsonl")
    sources = [pair.source for pair in pairs]
    translator.translate(sources[:batch_size], batch_size=batch_size)
    with reporter.bar("translating", len(sources)) as advance:
        found, seconds = timed(
            lambda: translator.translations(
                sources, batch_size=batch_size, done=lambda n: advance(n, "")
            ),
            device,
        )
    translations = [best[0].text for best in found]
    task = translator.bundle.task
    references = [pair.target for pair in pairs]
    decoding = translator.bundle.recipe.decoding.model_copy(update={"batch_size": batch_size})
    write_json(
        measured / DECODING,
        {
            "seconds": seconds,
            "source_lengths": _lengths(task.source, sources),
            "reference_lengths": _lengths(task.target, references),
            "training_tokens_a_step": tokens_per_step(run),
            "decoding": decoding.model_dump(),
            "sources": sources,
            "references": references,
            "translations": translations,
        },
    )


def _lengths(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Count tokens, each sentence with its end."""
    return [len(ids) + 1 for ids in tokenizer.encode_batch(texts)]
