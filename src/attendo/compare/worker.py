"""The process that works on one system: `python -m attendo.compare.worker`.

It reads its job, one line of JSON, from standard input, and writes what happens, one JSON object a
line, to standard output; results are files. When its input ends, whoever started it is gone: then
it stops as if told to, with everything saved.
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
from pathlib import Path
from typing import Any

from attendo.bundle import find_device
from attendo.compare.systems import decode_tests, train_system
from attendo.errors import AttendoError
from attendo.reporter import Reporter
from attendo.training.run import Interrupted

PAUSE = 0.1
"""Seconds between two reports of progress."""


class Telling(Reporter):
    """Writes all it hears as events."""

    def say(self, message: str) -> None:
        """Pass a message on."""
        tell(say=message)

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Pass progress on, now and then."""
        tell(bar=title, total=total, done=done)
        count, last = 0, time.monotonic()

        def advance(n: int, remark: str) -> None:
            nonlocal count, last
            count += n
            if remark or time.monotonic() - last > PAUSE:
                tell(advance=count, remark=remark)
                count, last = 0, time.monotonic()

        try:
            yield advance
        finally:
            tell(advance=count, remark="")
            tell(end=title)


def tell(**event: Any) -> None:
    """Write an event."""
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:  # whoever listened is gone, which must not keep us from saving
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def train(job: dict[str, Any]) -> None:
    """Train a system and translate with it."""
    device, measured, run = find_device(job["device"]), Path(job["measured"]), Path(job["run"])
    train_system(run, job["settings"], measured, device, Telling())
    decode_tests(run, job["batch_size"], measured, device, Telling())


def main() -> int:
    """Do one job; returns the exit code."""
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    try:
        train(job)
    except Interrupted as interrupted:
        tell(say=str(interrupted))
        return 130
    except AttendoError as error:
        tell(error=str(error))
        return 2
    except Exception as error:
        traceback.print_exc()
        tell(error=f"unexpected {type(error).__name__}: {error}")
        return 1
    return 0


def _stop_when_alone() -> None:
    """Wait until the other end of standard input is closed, by will or by death."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
