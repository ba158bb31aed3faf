"""What translators of all engines have in common: texts in, texts out, checked.

Nothing here needs PyTorch, so that an engine that does not need it either starts quickly.
"""

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, overload

from attendo.config import DecodingConfig, Recipe, change_decoding
from attendo.errors import ConfigError, DataError
from attendo.metrics import Scores, score
from attendo.text import fold_case, iterate_words
from attendo.text.streams import Translated

MOST = 64
"""Most translations of a text that can be returned: as many as the widest beam has hypotheses."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class WithWords:
    """Something that knows the words of its training data."""

    def __init__(self, words: frozenset[str] = frozenset()) -> None:
        self.words = words
        """The source words of the training data, folded; empty if they are not known."""

    def unknown_words(self, text: str) -> list[str]:
        """List the words of a text that the training data did not contain, in order, once each.

        Empty where the run has no list of its words (words.txt).
        """
        if not self.words:
            return []
        found: dict[str, str] = {}
        for word in iterate_words(text):
            if (folded := fold_case(word)) not in self.words:
                found.setdefault(folded, word)
        return list(found.values())


class TranslatesLines(ABC):
    """Something that translates streams of texts."""

    @abstractmethod
    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations in order."""

    def stream_lines(
        self,
        lines: Iterable[str],
        *,
        prefix: str = "",
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[tuple[str, list[Translated]]]:
        """Translate a stream of lines; yields each with its translations when they are finished.

        `done` is called earlier, after every batch, with the number of lines finished since.
        """
        pending: deque[str] = deque()

        def texts() -> Iterator[tuple[str, str]]:
            for line in lines:
                pending.append(line)
                yield line, prefix

        for found in self.stream(texts(), n_best=n_best, done=done, **options):
            yield pending.popleft(), found


class TextTranslator(WithWords, TranslatesLines):
    """A trained model that translates text, whatever executes it.

    >>> model = attendo.load_translator("runs/demo")
    >>> isinstance(model, attendo.TextTranslator)
    True
    """

    precision: str = "float32"
    """Of its parameters."""

    def precision_of(self, **options: Any) -> str:
        """Return the precision of a search with these options, which some engines must change."""
        return self.precision

    @property
    @abstractmethod
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""

    def _decoding(self, options: dict[str, Any]) -> DecodingConfig:
        """Return the settings of the search, with changes."""
        return change_decoding(self.recipe.decoding, options)

    @abstractmethod
    def _stream(
        self,
        texts: Iterable[tuple[str, str]],
        decoding: DecodingConfig,
        n_best: int,
        done: Callable[[int], None],
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations when finished."""

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...
    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...
    def translate(self, texts: Any, **options: Any) -> str | list[str]:
        """Translate a text into a text, or a list of texts into a list.

        The options are those of `translations`.
        """
        if isinstance(texts, str):
            return self.translations(texts, **options)[0].text
        return [best[0].text for best in self.translations(texts, **options)]

    @overload
    def translations(self, texts: str, **options: Any) -> list[Translated]: ...
    @overload
    def translations(self, texts: Iterable[str], **options: Any) -> list[list[Translated]]: ...
    def translations(
        self,
        texts: Any,
        *,
        n_best: int = 1,
        prefixes: str | Iterable[str] = (),
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> list[Translated] | list[list[Translated]]:
        """Translate each text into up to `n_best` translations with scores, the best first.

        A text is translated sentence by sentence; the white space between sentences is kept. The
        k-th best translation of a text is made of the k-th best of each sentence.

        Args:
            texts: What to translate: one text, or several. The translation of an empty text is
                empty.
            n_best: How many different translations of each to return (at most the beam).
            prefixes: What each translation must begin with: one for each text, or none.
            done: Called now and then with the number of texts finished since the last call.
            **options: Keys of the recipe's [decoding] section, such as beam=1 or alpha=1.0.
        """
        sources, starts = list_texts(texts), list_texts(prefixes)
        if isinstance(texts, str) != isinstance(prefixes, str) and starts:
            raise ConfigError("give one prefix for one text, or a list of them for a list of texts")
        if starts and len(starts) != len(sources):
            raise ConfigError(
                f"{len(starts)} prefixes for {len(sources)} texts: give one for each text"
            )
        paired = zip(sources, starts or repeat(""), strict=False)
        found = list(self.stream(paired, n_best=n_best, done=done, **options))
        return found[0] if isinstance(texts, str) else found

    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations when finished.

        Order is kept, and no more texts are read ahead than one window of batches needs.
        """
        if not 1 <= n_best <= MOST:
            raise ConfigError(f"n_best = {n_best}: expected a number from 1 to {MOST}")

        def checked() -> Iterator[tuple[str, str]]:
            for text, prefix in texts:
                check_text(text)
                check_text(prefix)
                yield text, prefix

        return self._stream(checked(), self._decoding(options), n_best, done)

    def evaluate(
        self,
        sources: Iterable[str],
        references: Iterable[str],
        *,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Scores:
        """Translate and compare with references: BLEU, chrF, signature, confidence interval."""
        given, expected = list_texts(sources), list_texts(references)
        if len(given) != len(expected):
            raise DataError(f"{len(given)} sources, but {len(expected)} references")
        return score(self.translate(given, done=done, **options), expected)


def list_texts(texts: object) -> list[str]:
    """Return one text or several as a list, each of them checked."""
    if isinstance(texts, str):
        texts = [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise DataError(
            f"{texts!r:.80} is of type {type(texts).__name__}; give a string or a list of strings"
        )
    found = list(texts)
    for text in found:
        check_text(text)
    return found


def check_text(text: object) -> None:
    """Raise an error unless a text is a string of Unicode characters, without undecoded bytes."""
    if not isinstance(text, str):
        raise DataError(f"{text!r:.80} is of type {type(text).__name__}; give a string")
    if _SURROGATE.search(text):
        raise DataError(f"{text!r:.80} is not Unicode text; give strings, in UTF-8")
