"""Where a text that is being generated ends: before a text, or at the end of a block of code."""

import io
import re
import tokenize
from abc import ABC, abstractmethod
from collections.abc import Callable


class Stop(ABC):
    """Finds the end of a text that grows."""

    @abstractmethod
    def find(self, text: str) -> int | None:
        """Return the length of the text that is kept; None: it has not come to its end."""

    @abstractmethod
    def n_held_back(self, text: str) -> int:
        """Count the last characters of a text without an end that may be cut off later."""


class StopText(Stop):
    """Ends a text before another one."""

    def __init__(self, stop: str) -> None:
        self.stop = stop

    def find(self, text: str) -> int | None:
        """Return where the stop text begins."""
        place = text.find(self.stop)
        return place if place >= 0 else None

    def n_held_back(self, text: str) -> int:
        """Count the last characters that may be the beginning of the stop text."""
        lengths = range(1, min(len(self.stop), len(text) + 1))
        return max((n for n in lengths if text.endswith(self.stop[:n])), default=0)


_CODE_LINE = re.compile(r"^([ \t]*)[^\s]", re.MULTILINE)
"""The beginning of a line that is not blank; the group is its indentation."""

_FUNCTION = re.compile(r"(async\s+def|def|class)\b")


class BlockEnd(Stop):
    r"""Ends code before the first line that is indented no deeper than a given column.

    Lines within brackets, or within a string of several lines, do not count (as in Python).

    >>> end = BlockEnd("def f(x):\n", column=0)
    >>> text = "    return x\n\ndef g(y):"
    >>> text[: end.find(text)]
    '    return x'
    """

    def __init__(self, prompt: str, column: int) -> None:
        self.column = column
        self._prompt = prompt
        last_line = prompt[prompt.rfind("\n") + 1 :]
        # The line in which the prompt ends is to be checked only if its first word is not there.
        self._checked = len(prompt) if last_line.strip() else len(prompt) - len(last_line)

    def find(self, text: str) -> int | None:
        """Return the end of the last line of the block, once the line behind it has begun."""
        whole = self._prompt + text
        for line in _CODE_LINE.finditer(whole, self._checked):
            before = whole[: line.start()]
            if _width(line[1]) <= self.column and not _is_open(before):
                return max(0, len(before.rstrip()) - len(self._prompt))
            self._checked = line.end()
        return None

    def n_held_back(self, text: str) -> int:
        """Count the white space at the end, behind which a line may begin that is outside."""
        return len(text) - len(text.rstrip())


def end_of_block(prompt: str) -> BlockEnd:
    """End the block that the last line of a prompt opens or is part of."""
    *_, last = _lines(prompt) or [(0, "")]
    column, line = last
    return BlockEnd(prompt, column if line.endswith(":") else column - 1)


def end_of_function(prompt: str) -> BlockEnd:
    """End the function or class that the end of a prompt is in; else the block."""
    inside = float("inf")
    for column, line in reversed(_lines(prompt)):
        if column < inside and _FUNCTION.match(line):
            return BlockEnd(prompt, column)
        inside = min(inside, column)
    return end_of_block(prompt)


def _lines(code: str) -> list[tuple[int, str]]:
    """Return the indentation and the content of every line that is not blank."""
    lines = [line.rstrip() for line in code.splitlines() if line.strip()]
    return [(_width(line[: len(line) - len(line.lstrip())]), line.lstrip()) for line in lines]


def _width(white_space: str) -> int:
    return len(white_space.expandtabs())


def _is_open(code: str) -> bool:
    """Return whether code ends within brackets or a string of several lines."""
    try:
        for _ in tokenize.generate_tokens(io.StringIO(code).readline):
            pass
    except tokenize.TokenError as error:
        return "multi-line" in str(error) or "triple-quoted" in str(error)
    except SyntaxError:  # indentation that fits nowhere
        pass
    return False


STOPS: dict[str, Callable[[str], Stop]] = {"block": end_of_block, "function": end_of_function}
"""Ends of code, given the prompt."""
