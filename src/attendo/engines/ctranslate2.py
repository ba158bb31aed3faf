"""The engine that runs the conversion of a run with CTranslate2, on the CPU, without PyTorch."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attendo.config import DecodingConfig, Recipe
from attendo.conversions import FOLDER, Conversion
from attendo.converted import Converted
from attendo.engines.base import TextTranslator
from attendo.errors import ConfigError
from attendo.reporter import Reporter
from attendo.runs import load_run_recipe, read_tokenizers, read_words
from attendo.text.streams import Translated

if TYPE_CHECKING:
    from attendo.engines.pytorch import Translator


class CTranslate2Translator(TextTranslator):
    """A trained model that translates text with CTranslate2; what that lacks, PyTorch does.

    In float32 the translations are those of PyTorch.
    """

    def __init__(
        self,
        run: Path,
        conversion: Conversion,
        precision: str = "auto",
        reporter: Reporter | None = None,
    ) -> None:
        super().__init__(read_words(run))
        self.run = run
        self.conversion = conversion
        self.precision = conversion.choose(precision)
        self._recipe = recipe = load_run_recipe(run)
        self.reporter = reporter or Reporter()
        self._reported: set[str] = set()
        folder = run / FOLDER / self.precision
        if not folder.is_dir():
            others = sorted(path.name for path in (run / FOLDER).iterdir() if path.is_dir())
            raise ConfigError(
                f"{str(run)!r} has no conversion in {self.precision}; use --precision "
                f"{' or '.join(others)}"
            )
        self.converted = Converted(
            folder,
            read_tokenizers(run, recipe),
            recipe.data.max_length,
            conversion.positions,
        )

    @cached_property
    def torch(self) -> "Translator":
        """Return the same model on PyTorch."""
        from attendo.engines.pytorch import load

        return load(self.run, "cpu")

    @property
    def recipe(self) -> Recipe:
        """Return the recipe of the run."""
        return self._recipe

    def precision_of(self, **options: Any) -> str:
        """Return the precision of a search with these options: float32 if PyTorch does it."""
        return "float32" if self.converted.lacks(self._decoding(options)) else self.precision

    def _stream(
        self,
        texts: Iterable[tuple[str, str]],
        decoding: DecodingConfig,
        n_best: int,
        done: Callable[[int], None],
    ) -> Iterator[list[Translated]]:
        if missing := self.converted.lacks(decoding):
            self._say_once(f"CTranslate2 has no {missing}: using PyTorch")
            options = decoding.model_dump()
            return self.torch.stream(texts, n_best=n_best, done=done, **options)
        return self.converted.stream(texts, decoding, n_best=n_best, done=done)

    def _say_once(self, message: str) -> None:
        if message not in self._reported:
            self._reported.add(message)
            self.reporter.say(message)
