"""Engines for single texts: continue them, or predict their labels."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attendo.bundle import Bundle, find_device, load_bundle, load_run_recipe
from attendo.config import change_decoding
from attendo.engines.pytorch import check_task, check_text, load
from attendo.tasks import Classification, LanguageModel, Prediction, Translation


class Generator:
    """A trained language model that continues texts."""

    def __init__(self, bundle: Bundle) -> None:
        check_task(bundle.task, LanguageModel)
        self.bundle = bundle
        self.device = next(bundle.model.parameters()).device

    def generate(self, prompt: str = "", *, tokens: int = 100, **options: Any) -> str:
        """Continue a text by up to `tokens` tokens; the prompt is not part of the result.

        Args:
            prompt: The beginning of the text.
            tokens: The most tokens to add.
            **options: Keys of the recipe's [decoding] section, such as temperature or seed. The
                text is sampled unless another strategy is given.
        """
        check_text(prompt)
        chosen = {"strategy": "sample", **options}
        decoding = change_decoding(self.bundle.recipe.decoding, chosen)
        found: list[str] = self.bundle.task.generate(
            self.bundle.model, [prompt], decoding, self.device, n_tokens=tokens
        )
        return found[0]


class TextClassifier:
    """A trained model that predicts the labels of texts."""

    def __init__(self, bundle: Bundle) -> None:
        check_task(bundle.task, Classification)
        self.bundle = bundle
        self.device = next(bundle.model.parameters()).device

    def predict(
        self, texts: Sequence[str], *, done: Callable[[int], None] = lambda n: None, **options: Any
    ) -> list[Prediction]:
        """Return the label of each text, with the probabilities of all labels."""
        for text in texts:
            check_text(text)
        decoding = change_decoding(self.bundle.recipe.decoding, options)
        found: list[Prediction] = self.bundle.task.predict(
            self.bundle.model, texts, decoding, self.device, done=done
        )
        return found


def load_generator(run: str | Path, device: str = "auto") -> Generator:
    """Load a run folder of a language model."""
    return Generator(load_bundle(Path(run), find_device(device)))


def load_classifier(run: str | Path, device: str = "auto") -> TextClassifier:
    """Load a run folder of a classifier."""
    return TextClassifier(load_bundle(Path(run), find_device(device)))


LOADERS: dict[str, Callable[[str | Path, str], Any]] = {
    Translation.name: load,
    LanguageModel.name: load_generator,
    Classification.name: load_classifier,
}
"""By task; a task needs none."""


def load_engine(run: str | Path, device: str = "auto") -> Any:
    """Load a run folder for what it was trained for; without an engine, return its bundle."""
    if loader := LOADERS.get(load_run_recipe(Path(run)).task):
        return loader(run, device)
    return load_bundle(Path(run), find_device(device))
