"""How long work is shown to the person who waits: not at all, or on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
        from rich import progress

        columns = (
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[remark]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(elapsed_when_finished=False),
        )
        shown = progress.Progress(
            *columns, console=self.terminal, transient=True, disable=not self.terminal.is_terminal
        )
        with shown:
            task = shown.add_task(title, total=total, completed=done, remark="")

            def advance(n: int, remark: str) -> None:
                shown.update(task, advance=n)
                if remark:  # it stays until there is another one
                    shown.update(task, remark=remark)

            yield advance
