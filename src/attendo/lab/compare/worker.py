"""Train one system and test it: the process `python -m attendo.lab.compare.worker`.

It reads its job, one line of JSON, from standard input, and writes what happens, one JSON object a
line, to standard output; results are files. When its input ends, the parent process has ended: then
it stops as if interrupted, with everything saved.
"""

import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from attendo.bundle import RECIPE, Bundle, find_device, load_bundle, load_task
from attendo.config import DecodingConfig
from attendo.data.batches import Position, stream
from attendo.data.corpus import read_texts
from attendo.engines import Translator
from attendo.errors import AttendoError
from attendo.files import write_json
from attendo.lab.clock import describe, forget_peak, highest_memory, power_meter, timed
from attendo.reporter import Reporter
from attendo.tasks import Translation
from attendo.tasks.base import Done
from attendo.text import Tokenizer
from attendo.training.complete import Interrupted
from attendo.training.prepare import open_prepared
from attendo.training.run import train_run

TRAINING = "training.json"
DECODING = "decoding.json"


@contextmanager
def metered(device: torch.device, path: Path) -> Iterator[None]:
    """Measure memory and power of a training, and write them to a file."""
    forget_peak(device)
    before = highest_memory(device)
    with power_meter(device) as power:
        yield
    # Written now: the process may be gone before the test records are predicted.
    _note(path, device, before, highest_memory(device), power.watts)


def _note(
    path: Path,
    device: torch.device,
    before: int | None = None,
    peak: int | None = None,
    watts: float | None = None,
) -> None:
    noted = {"memory_before_bytes": before, "peak_memory_bytes": peak, "watts": watts}
    write_json(path, {**noted, "machine": describe(device)})


def train_system(
    run: Path, settings: dict[str, Any], measured: Path, device: torch.device, reporter: Reporter
) -> None:
    """Train a run whose data are prepared, or continue it."""
    path = measured / TRAINING
    meter = metered(device, path)
    train_run(str(run / RECIPE), settings, run, device, resume=True, reporter=reporter, meter=meter)
    if not path.exists():  # an earlier process was ended between its last step and its note
        _note(path, device)


def test_system(
    run: Path, batch_size: int, measured: Path, device: torch.device, reporter: Reporter
) -> None:
    """Predict the test records with the settings of the recipe, and time it."""
    bundle = load_bundle(run, device)
    records = read_texts(run / "state" / "data" / "test.jsonl", bundle.task.record_type)
    options = bundle.recipe.decoding.model_copy(update={"batch_size": batch_size})
    test = _translate if isinstance(bundle.task, Translation) else _evaluate
    test(bundle, records[:batch_size], options, lambda n: None)  # a warm-up
    with reporter.bar("testing", len(records)) as advance:
        found, seconds = timed(
            lambda: test(bundle, records, options, lambda n: advance(n, "")), device
        )
    write_json(
        measured / DECODING,
        {
            "seconds": seconds,
            "records": len(records),
            "training_tokens_a_step": tokens_per_step(run),
            "decoding": options.model_dump(),
            **found,
        },
    )


def _evaluate(
    bundle: Bundle, records: list[Any], options: DecodingConfig, done: Done
) -> dict[str, Any]:
    """Return the scores of a task."""
    device = next(bundle.model.parameters()).device
    scores = bundle.task.evaluate(bundle.model, records, options, device, done=done)
    return {"scores": scores.to_dict()}


def _translate(
    bundle: Bundle, records: list[Any], options: DecodingConfig, done: Done
) -> dict[str, Any]:
    """Return translations, which can be compared sentence by sentence."""
    sources = [pair.source for pair in records]
    references = [pair.target for pair in records]
    batch_size = options.batch_size
    found = Translator(bundle).translations(sources, batch_size=batch_size, done=done)
    return {
        "source_lengths": _lengths(bundle.task.source, sources),
        "reference_lengths": _lengths(bundle.task.target, references),
        "sources": sources,
        "references": references,
        "translations": [best[0].text for best in found],
    }


def _lengths(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Count tokens, each sentence with its end."""
    return [len(ids) + 1 for ids in tokenizer.encode_batch(texts)]


SAMPLE = 64
"""Batches from which the mean number of tokens of a step is taken."""


def tokens_per_step(run: Path) -> float:
    """Count the target tokens of a step: the mean of the first ones."""
    recipe, task = load_task(run)
    corpus = open_prepared(run / "state" / "data", task, recipe).train
    layout = task.layout(recipe.data, recipe.training.batch_tokens)
    planned = stream(corpus, layout, recipe.training.seed, Position())
    counts = [batch.n_labels for _, batch in islice(planned, SAMPLE)]
    return sum(counts) / len(counts)


PAUSE = 0.1
"""Seconds between two reports of progress."""


class EventReporter(Reporter):
    """Writes everything as events."""

    def say(self, message: str) -> None:
        """Forward a message."""
        write_event(say=message)

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Forward progress from time to time."""
        write_event(bar=title, total=total, done=done)
        count, last = 0, time.monotonic()

        def advance(n: int, remark: str) -> None:
            nonlocal count, last
            count += n
            if remark or time.monotonic() - last > PAUSE:
                write_event(advance=count, remark=remark)
                count, last = 0, time.monotonic()

        try:
            yield advance
        finally:
            write_event(advance=count, remark="")
            write_event(end=title)


def write_event(**event: Any) -> None:
    """Write an event."""
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # the parent has ended, which must not keep us from saving
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def train(job: dict[str, Any]) -> None:
    """Train a system and test it."""
    device, measured, run = find_device(job["device"]), Path(job["measured"]), Path(job["run"])
    train_system(run, job["settings"], measured, device, EventReporter())
    test_system(run, job["batch_size"], measured, device, EventReporter())


def main() -> int:
    """Run one job; return the exit code."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    try:
        train(job)
    except Interrupted as interrupted:
        write_event(say=str(interrupted))
        return 130
    except AttendoError as error:
        write_event(error=str(error))
        return 2
    except Exception as error:
        traceback.print_exc()
        write_event(error=f"unexpected {type(error).__name__}: {error}")
        return 1
    return 0


def _stop_when_alone() -> None:
    """Wait until the other end of standard input is closed, by the parent or by its death."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
