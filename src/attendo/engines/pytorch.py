"""The engine that runs a bundle as it was trained, on PyTorch."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar, overload

import torch

from attendo.bundle import Bundle, find_device, load_bundle, read_words
from attendo.config import DecodingConfig, change_decoding
from attendo.decoding import Pools
from attendo.errors import ConfigError, DataError, command_line
from attendo.metrics import Scores
from attendo.models import Recording, Seq2Seq
from attendo.models.base import Model, Predictor
from attendo.nn import fast
from attendo.tasks import Inspection, Task, TokenizedText, Translated, Translation
from attendo.text import fold_case, iterate_words

MOST = 64
"""Most translations of a text that can be returned: as many as the widest beam has hypotheses."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class Engine:
    """A trained model of any task."""

    task_type: ClassVar[type[Any]] = Task
    """What the model must have been trained for."""

    def __init__(self, bundle: Bundle, words: frozenset[str] = frozenset()) -> None:
        check_task(bundle.task, self.task_type)
        self.bundle = bundle
        self.words = words
        self.device: torch.device = next(bundle.model.parameters()).device
        if self.device.type == "cuda" and fast.AVAILABLE:
            _search_in_slots(bundle.model)

    def inspect(self, text: str, target: str | None = None, **options: Any) -> Inspection:
        """Run the model on a text and return everything that it computes.

        Args:
            text: What the model reads.
            target: A translation to inspect instead of the model's own.
            **options: Keys of the recipe's [decoding] section.
        """
        for given in (text,) if target is None else (text, target):
            check_text(given)
        if not text.strip():
            raise DataError("the text is empty; give a sentence to inspect")
        task, decoding = self.bundle.task, self._decoding(options)
        found: Inspection = task.inspect(
            self.bundle.model, text, decoding, self.device, target=target
        )
        return found

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

    def _decoding(self, options: dict[str, Any]) -> DecodingConfig:
        return change_decoding(self.bundle.recipe.decoding, options)


class Translator(Engine):
    """A trained model that translates text.

    >>> model = attendo.load("runs/demo")
    >>> model.translate("The dog sleeps.")  # doctest: +ELLIPSIS
    '...'
    """

    task_type = Translation

    def __init__(self, bundle: Bundle, words: frozenset[str] = frozenset()) -> None:
        super().__init__(bundle, words)
        self.task: Translation = bundle.task
        self.model: Seq2Seq = bundle.model

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
        sources, starts = _list_texts(texts), _list_texts(prefixes)
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

        return self.task.stream(
            self.model,
            checked(),
            self._decoding(options),
            self.device,
            n_best=n_best,
            done=done,
        )

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[float]:
        """Return the log-probability of each target as the translation of its source."""
        pairs = _list_texts(sources), _list_texts(targets)
        return self.task.score(self.model, *pairs, self.device)

    def evaluate(
        self,
        sources: Iterable[str],
        references: Iterable[str],
        *,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Scores:
        """Translate and compare with references: BLEU, chrF, signature, confidence interval."""
        pairs = list(zip(_list_texts(sources), _list_texts(references), strict=True))
        decoding = self._decoding(options)
        return self.task.evaluate(self.model, pairs, decoding, self.device, done=done)

    def record(self, source: str, target: str | None = None) -> tuple[Recording, TokenizedText]:
        """Run the model on a pair and return all attention weights, hidden states and logits.

        Without a target, the model's own translation is taken.
        """
        check_text(source)
        if not source.strip():
            raise DataError("the source is empty; give the sentence to record")
        target = self.translate(source) if target is None else target
        check_text(target)
        return self.task.record(self.model, source, target, self.device)


def _search_in_slots(model: Model) -> None:
    """Let searches with a model run in slots, where that is possible."""
    if isinstance(model, Predictor) and model.can_be_fixed:
        model.pools = Pools(model.fixed)


def _list_texts(texts: object) -> list[str]:
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


def check_task(task: Task, wanted: type[Task]) -> None:
    """Raise an error if a run is of another task."""
    if not isinstance(task, wanted):
        raise ConfigError(
            f"this run was trained for the task {task.name!r}, not for {wanted.name!r}; "
            f"use: {command_line(*task.command)}"
        )


def check_text(text: object) -> None:
    """Raise an error unless a text is a string of Unicode characters, without undecoded bytes."""
    if not isinstance(text, str):
        raise DataError(f"{text!r:.80} is of type {type(text).__name__}; give a string")
    if _SURROGATE.search(text):
        raise DataError(f"{text!r:.80} is not Unicode text; give strings, in UTF-8")


def load(run: str | Path, device: str = "auto") -> Translator:
    """Load a run folder for translating.

    >>> attendo.load("runs/demo", device="cpu").device
    device(type='cpu')
    """
    folder = Path(run)
    return Translator(load_bundle(folder, find_device(device)), read_words(folder))
