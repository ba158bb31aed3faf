"""Messages, progress and the standard streams: on a terminal, in a log, or not at all."""

import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from attendo.errors import AttendoError

PAUSE = 60.0
"""Seconds between two lines about the same work, where there is no terminal for a bar."""


class Reporter:
    """Receives messages and progress; this one ignores them."""

    def say(self, message: str) -> None:
        """Print a message."""

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Show progress; yields a function that takes the number of steps done and a remark.

        A total of 0 means that it is not known.
        """
        yield lambda advance, remark: None


class Console(Reporter):
    """Messages and a progress bar on the terminal's standard error."""

    def __init__(self) -> None:
        from rich.console import Console as Terminal

        self.terminal = Terminal(stderr=True, highlight=False)

    def say(self, message: str) -> None:
        """Print a line above the bar."""
        self.terminal.print(message, markup=False, soft_wrap=True)

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Show a bar with the steps done, the remark, and the time left."""
        if not self.terminal.is_terminal:
            yield self._lines(title, total, done)
            return
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[remark]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(elapsed_when_finished=False),
        )
        with progress.Progress(*columns, console=self.terminal, transient=True) as shown:
            task = shown.add_task(title, total=total or None, completed=done, remark="")

            def advance(n: int, remark: str) -> None:
                shown.update(task, advance=n)
                if remark:  # it stays until there is another one
                    shown.update(task, remark=remark)

            yield advance

    def _lines(self, title: str, total: int, done: int) -> Callable[[int, str], None]:
        """Print the progress from time to time; short work is not reported."""
        said, latest = time.monotonic(), ""

        def advance(n: int, remark: str) -> None:
            nonlocal done, said, latest
            done, latest = done + n, remark or latest
            if time.monotonic() - said >= PAUSE and done != total:
                said = time.monotonic()
                of = f" of {total:,}" if total else ""
                self.say(f"{title}: {done:,}{of}" + (f", {latest}" if latest else ""))

        return advance


def prepare_streams() -> None:
    """Set the standard streams to UTF-8, and replace those that the process was started without.

    Text is UTF-8 whatever the environment sets. A stream that was closed is reported when it
    is used, and its number is taken, so that no file that is opened later can get it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdin = sys.stdin or _Closed("input")
    sys.stdout = sys.stdout or _Closed("output")
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors=errors)
    for name in ("COLUMNS", "LINES"):
        if os.environ.get(name) == "0":  # rich would print nothing
            del os.environ[name]


class _Closed(io.TextIOBase):
    """Replaces a standard stream that was closed before the start."""

    def __init__(self, name: str) -> None:
        self.stream = name

    @property
    def buffer(self) -> "_Closed":
        return self

    def _refuse(self, *_: Any) -> NoReturn:
        raise AttendoError(f"standard {self.stream} is closed")

    read = read1 = readline = write = fileno = _refuse
