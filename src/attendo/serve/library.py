"""The models that are served, and the latest inspections."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from attendo.config import choose
from attendo.engines import Translator, load_engine
from attendo.errors import ConfigError, command_line
from attendo.look.about import card_of, model_json
from attendo.look.heads import Head, parse_head
from attendo.look.record import RecordedText, look, without
from attendo.look.unmasked import Cheaters, train_both
from attendo.look.walk import Walker
from attendo.serve.queues import make_stoppable

EXAMPLES = (
    "The animal did not cross the street because it was too tired.",
    "The animal did not cross the street because it was too wide.",
    "The old dog that the farmer saw yesterday sleeps in the big house.",
    "The brothers whom the teacher often helps want to sell the old car.",
)

REMEMBERED = 8
"""Inspections that are kept, for the requests about details that follow."""


class Library:
    """The models by name."""

    def __init__(self, runs: Sequence[str], device: str) -> None:
        self.translators: dict[str, Translator] = {}
        self.cards: dict[str, dict[str, Any]] = {}
        for run in runs:
            name = _free_name(Path(run).resolve().name, self.translators)
            self.translators[name] = _load(run, device)
            self.cards[name] = card_of(Path(run))
        self._look = lru_cache(maxsize=REMEMBERED)(self._look_anew)

    @cached_property
    def walker(self) -> Walker:
        """Return the shipped small model, for the walk-through."""
        return Walker.of(_load(str(files("attendo") / "shipped" / "walk"), "cpu"))

    @cached_property
    def cheaters(self) -> Cheaters:
        """Return the two models of the look-ahead experiment, trained at the first request."""
        return train_both(self.walker.translator.bundle.task)

    def translator(self, name: str) -> Translator:
        """Return the translator of a name; the first one if the name is empty."""
        if not name:
            return next(iter(self.translators.values()))
        return choose(self.translators, name, "model")

    def heads(self, name: str, texts: Sequence[str]) -> tuple[Head, ...]:
        """Return the heads of a model that texts such as "cross.1.0" name."""
        model = self.translator(name).bundle.model
        return tuple(sorted({parse_head(text, model) for text in texts}))

    def without(self, name: str, ablated: Sequence[str]) -> Translator:
        """Return a translator whose model has some heads ablated."""
        return without(self.translator(name), self.heads(name, ablated))

    def look(
        self, name: str, source: str, target: str | None, ablated: Sequence[str]
    ) -> tuple[Translator, RecordedText]:
        """Run a pair through a model and keep everything, or return what was kept before."""
        return self.translator(name), self._look(name, source, target, self.heads(name, ablated))

    def _look_anew(
        self, name: str, source: str, target: str | None, ablated: tuple[Head, ...]
    ) -> RecordedText:
        return look(self.translator(name), source, target, ablated)

    def describe(self) -> list[dict[str, Any]]:
        """Describe the models."""
        return [
            {
                "name": name,
                **model_json(translator, self.cards[name]),
                "examples": self._examples(translator),
            }
            for name, translator in self.translators.items()
        ]

    def _examples(self, translator: Translator) -> list[str]:
        return list(EXAMPLES) if translator.bundle.recipe.data.builtin else []


def _load(run: str, device: str) -> Translator:
    translator = load_engine(run, device)
    if not isinstance(translator, Translator):
        task = translator.bundle.task
        raise ConfigError(
            f"{run!r} was trained for the task {task.name!r}, and only translation runs are "
            f"served; use: {command_line(*task.command)} or: {command_line('look', 'RUN', 'TEXT')}"
        )
    make_stoppable(translator.bundle.model)
    return translator


def _free_name(name: str, taken: dict[str, Translator]) -> str:
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}-{number}"
    return free
