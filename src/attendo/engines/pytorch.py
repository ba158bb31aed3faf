"""The engine that runs a bundle as it was trained, on PyTorch."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch

from attendo.bundle import Bundle, find_device, load_bundle, read_words
from attendo.config import DecodingConfig, Recipe, change_decoding
from attendo.decoding import Pools
from attendo.engines.base import TextTranslator, WithWords, check_text, list_texts
from attendo.engines.recorded import RecordedStart
from attendo.errors import ConfigError, DataError, command_line
from attendo.models import Recording, Seq2Seq
from attendo.models.base import Model, Predictor
from attendo.models.transformer import Transformer
from attendo.nn import fast
from attendo.tasks import Inspection, Task, TokenizedText, Translated, Translation


class Engine(WithWords):
    """A trained model of any task."""

    task_type: ClassVar[type[Any]] = Task
    """What the model must have been trained for."""

    def __init__(self, bundle: Bundle, words: frozenset[str] = frozenset()) -> None:
        check_task(bundle.task, self.task_type)
        super().__init__(words)
        self.bundle = bundle
        self.device: torch.device = next(bundle.model.parameters()).device
        if self.device.type == "cuda" and fast.AVAILABLE:
            search_in_slots(bundle.model)

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

    def _decoding(self, options: dict[str, Any]) -> DecodingConfig:
        return change_decoding(self.bundle.recipe.decoding, options)


class Translator(Engine, TextTranslator):
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

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""
        recipe: Recipe = self.bundle.recipe
        return recipe

    def _stream(
        self,
        texts: Iterable[tuple[str, str]],
        decoding: DecodingConfig,
        n_best: int,
        done: Callable[[int], None],
    ) -> Iterator[list[Translated]]:
        return self.task.stream(self.model, texts, decoding, self.device, n_best=n_best, done=done)

    def score(self, sources: Iterable[str], targets: Iterable[str]) -> list[float]:
        """Return the log-probability of each target as the translation of its source."""
        pairs = list_texts(sources), list_texts(targets)
        return self.task.score(self.model, *pairs, self.device)

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


def search_in_slots(model: Model) -> None:
    """Let searches with a model run in slots, where that is possible."""
    if isinstance(model, Predictor) and model.can_be_fixed:
        model.pools = Pools(model.fixed)
        if isinstance(model, Transformer) and model.can_be_recorded:
            device = next(model.parameters()).device
            model.pools.start = RecordedStart(model, device)


def check_task(task: Task | type[Task], wanted: type[Task]) -> None:
    """Raise an error if a run is of another task."""
    if not issubclass(task if isinstance(task, type) else type(task), wanted):
        raise ConfigError(
            f"this run was trained for the task {task.name!r}, not for {wanted.name!r}; "
            f"use: {command_line(*task.command)}"
        )


def load(run: str | Path, device: str = "auto") -> Translator:
    """Load a run folder for translating.

    >>> attendo.load("runs/demo", device="cpu").device
    device(type='cpu')
    """
    folder = Path(run)
    return Translator(load_bundle(folder, find_device(device)), read_words(folder))
