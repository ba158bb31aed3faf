"""The models that are served, and the latest inspections."""

from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

from attendo.config import choose
from attendo.engines import Engine, TextTranslator, Translator, load_engine, load_translator
from attendo.errors import ConfigError, DataError
from attendo.look.about import card_of, model_json
from attendo.look.halves import Bert, Gpt
from attendo.look.heads import Head, parse_head
from attendo.look.record import RecordedText, look, without
from attendo.look.unmasked import Cheaters, train_both
from attendo.look.walk import Walker
from attendo.models import Seq2Seq
from attendo.reporter import Reporter
from attendo.serve.queues import make_stoppable

E = TypeVar("E", bound=Engine)

REMEMBERED = 8
"""Inspections that are kept, for the requests about details that follow."""


class Library:
    """The models by name."""

    def __init__(
        self,
        runs: Sequence[str],
        device: str,
        *,
        engine: str = "torch",
        precision: str = "auto",
        reporter: Reporter | None = None,
    ) -> None:
        """Load the models, for inspection with PyTorch and for translating with any engine."""
        self.engines: dict[str, Engine] = {}
        self.translators: dict[str, TextTranslator] = {}
        self.cards: dict[str, dict[str, Any]] = {}
        options = {"engine": engine, "precision": precision, "device": device}
        for run in runs:
            name = _free_name(Path(run).resolve().name, self.engines)
            self.engines[name] = loaded = _load(run, device)
            if isinstance(loaded, Translator) and engine != "torch":
                found = load_translator(run, **options, reporter=reporter)
                self.translators[name] = loaded if isinstance(found, Translator) else found
            self.cards[name] = card_of(Path(run))
        self._look = lru_cache(maxsize=REMEMBERED)(self._look_anew)

    @cached_property
    def walker(self) -> Walker:
        """Return the shipped small model, for the walk-through."""
        return Walker.of(cast(Translator, _load_shipped("walk")))

    @cached_property
    def bert(self) -> Bert:
        """Return the shipped small BERT, for the walk-through."""
        return Bert.of(_load_shipped("walk-bert"))

    @cached_property
    def gpt(self) -> Gpt:
        """Return the shipped small GPT, for the walk-through."""
        return Gpt.of(_load_shipped("walk-gpt"))

    @cached_property
    def cheaters(self) -> Cheaters:
        """Return the two models of the look-ahead experiment, trained at the first request."""
        return train_both(self.walker.translator.bundle.task)

    def engine(self, name: str, kind: type[E]) -> E:
        """Return the model of a name, the first one if it is empty; refuse those of other kinds."""
        name = name or next(iter(self.engines))
        found = choose(self.engines, name, "model")
        if not isinstance(found, kind):
            raise ConfigError(
                f"the model {name!r} was trained for the task {found.bundle.task.name!r}; choose "
                f"one for the task {kind.task_type.name!r} (see /api/models)"
            )
        return found

    def heads(self, name: str, texts: Sequence[str]) -> tuple[Head, ...]:
        """Return the heads of a model that texts such as "cross.1.0" name."""
        model = self.engine(name, Engine).bundle.model
        return tuple(sorted({parse_head(text, model) for text in texts}))

    def without(self, name: str, ablated: Sequence[str], kind: type[E]) -> E:
        """Return an engine of some kind whose model has some heads ablated."""
        return without(self.engine(name, kind), self.heads(name, ablated))

    def translator(self, name: str, ablated: Sequence[str]) -> TextTranslator:
        """Return what translates with a model; heads are ablated with PyTorch."""
        found = self.without(name, ablated, Translator)
        name = name or next(iter(self.engines))
        return found if ablated else self.translators.get(name, found)

    def look(
        self, name: str, source: str, target: str | None, ablated: Sequence[str]
    ) -> tuple[Engine, RecordedText]:
        """Run a text through a model and keep everything, or return what was kept before."""
        heads = self.heads(name, ablated)
        engine = self.engine(name, Engine)
        _refuse_paths(engine, source)
        return engine, self._look(name, source, target, heads)

    def beginning(self, name: str, document: str) -> str:
        """Return the part of a document that a model reads at once."""
        task = self.engine(name, Engine).bundle.task
        if task.reads_files:
            raise ConfigError(f"a text was given, but the model reads files: {task.inputs[0]}s")
        beginning: str = task.beginning(document)
        return beginning

    def searching(self, name: str, source: str, ablated: Sequence[str]) -> Engine:
        """Return a model that searches for a text, a translation or a transcript."""
        engine = self.engine(name, Engine)
        if not isinstance(engine.bundle.model, Seq2Seq):
            self.engine(name, Translator)  # refuses it
        if not source.strip():
            raise DataError("the text is empty; give a sentence to search for")
        _refuse_paths(engine, source)
        return without(engine, self.heads(name, ablated))

    @property
    def reads_files(self) -> bool:
        """Return whether any of the models reads files instead of texts."""
        return any(engine.bundle.task.reads_files for engine in self.engines.values())

    def _look_anew(
        self, name: str, source: str, target: str | None, ablated: tuple[Head, ...]
    ) -> RecordedText:
        return look(self.engine(name, Engine), source, target, ablated)

    def describe(self) -> list[dict[str, Any]]:
        """Describe the models."""
        return [
            {
                "name": name,
                **model_json(engine, self.cards[name]),
                "examples": self._examples(engine),
            }
            for name, engine in self.engines.items()
        ]

    def _examples(self, engine: Engine) -> list[str]:
        return list(engine.bundle.task.examples) if engine.bundle.recipe.data.builtin else []


def _refuse_paths(engine: Engine, source: str) -> None:
    """Refuse names of files, which would be read on the server, where a file itself is expected."""
    task = engine.bundle.task
    if task.reads_files and not source.startswith(("data:", "drawn:")):
        raise ConfigError(
            f"the model reads files, and {source!r:.40} is none: send the {task.inputs[0]} as a "
            "URL, data:TYPE;base64,..."
        )


def _load(run: str, device: str) -> Engine:
    engine = load_engine(run, device)
    make_stoppable(engine.bundle.model)
    return engine


def _load_shipped(name: str) -> Engine:
    return _load(str(files("attendo") / "shipped" / name), "cpu")


def _free_name(name: str, taken: dict[str, Engine]) -> str:
    number, free = 2, name
    while free in taken:
        number, free = number + 1, f"{name}-{number}"
    return free
