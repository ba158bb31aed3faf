"""The writing system of a line, judged by its letters: enough to find lines on the wrong side."""

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_LOOK = 300  # characters of a line are enough to judge it
_MIN_LETTERS = 5  # a short name or unit may be in any script
_UNSEEN = 255

# Japanese mixes three scripts in one sentence, and shares one of them with Chinese.
_FAMILIES = dict.fromkeys(
    ["CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "BOPOMOFO"], "Chinese or Japanese"
)


class Scripts:
    """Numbers for the scripts that have been met so far; 0 is none or no clear one."""

    def __init__(self) -> None:
        self.names = ["none"]
        self._numbers = np.full(0x110000, _UNSEEN, np.uint8)

    def dominant(self, lines: Sequence[str]) -> NDArray[np.uint8]:
        """Return the number of the script of more than half of the letters of each line."""
        heads = [line[:_LOOK] for line in lines]
        points = np.frombuffer("".join(heads).encode("utf-32-le"), np.uint32)
        for point in np.unique(points[self._numbers[points] == _UNSEEN]):
            self._numbers[point] = self._number_of(chr(point))
        lengths = np.fromiter(map(len, heads), np.int64, len(heads))
        cells = np.repeat(np.arange(len(heads)) * len(self.names), lengths) + self._numbers[points]
        counts = np.bincount(cells, minlength=len(heads) * len(self.names))
        counts = counts.reshape(len(heads), len(self.names))
        counts[:, 0] = 0
        letters, most = counts.sum(axis=1), counts.max(axis=1)
        clear = (letters >= _MIN_LETTERS) & (2 * most > letters)
        return np.where(clear, counts.argmax(axis=1), 0).astype(np.uint8)

    def _number_of(self, character: str) -> int:
        if not character.isalpha():
            return 0
        plain = unicodedata.normalize("NFKC", character)[0]  # full-width forms and the like
        name = unicodedata.name(plain, "UNNAMED").split()[0].split("-")[0]
        name = _FAMILIES.get(name, name.capitalize())
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)
