"""How long work is shown to the person who waits: not at all, on the terminal, or in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PAUSE = 60.0
"""Seconds between two lines about the same work, where there is no terminal for a bar."""


class Reporter:
    """Listens to a training; this one is deaf, the others override what they care for."""

    def say(self, message: str) -> None:
        """Tell the person something."""

    @contextmanager
    def bar(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int, str], None]]:
        """Show progress of something long; yields a function that takes advance and a remark."""
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
        """Show a bar with what is done, the remark, and the time left."""
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
            task = shown.add_task(title, total=total, completed=done, remark="")

            def advance(n: int, remark: str) -> None:
                shown.update(task, advance=n)
                if remark:  # it stays until there is another one
                    shown.update(task, remark=remark)

            yield advance

    def _lines(self, title: str, total: int, done: int) -> Callable[[int, str], None]:
        """Say from time to time how far it is; what is soon done is not mentioned."""
        said, latest = time.monotonic(), ""

        def advance(n: int, remark: str) -> None:
            nonlocal done, said, latest
            done, latest = done + n, remark or latest
            if time.monotonic() - said >= PAUSE and done < total:
                said = time.monotonic()
                self.say(f"{title}: {done:,} of {total:,}" + (f", {latest}" if latest else ""))

        return advance
