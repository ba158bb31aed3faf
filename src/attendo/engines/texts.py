"""Engines for single texts: continue them, or predict their labels; and the engine of any run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attendo.bundle import find_device, load_bundle, read_words
from attendo.engines.pytorch import Engine, Translator, check_text
from attendo.tasks import Classification, LanguageModel, Prediction


class Generator(Engine):
    """A trained language model that continues texts."""

    task_type = LanguageModel

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        stop: str | Sequence[str] = (),
        emit: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> str:
        """Continue a text by up to `tokens` tokens; the prompt is not part of the result.

        Args:
            prompt: The beginning of the text.
            tokens: The most tokens to add.
            stop: One or more texts that end the result, which is cut before them.
            emit: Called with every part of the result as soon as it is known.
            **options: Keys of the recipe's [decoding] section, such as temperature or seed. The
                text is sampled unless another strategy is given.
        """
        check_text(prompt)
        chosen = {"strategy": "sample", **options}
        decoding = self._decoding(chosen)
        found: str = self.bundle.task.generate(
            self.bundle.model,
            prompt,
            decoding,
            self.device,
            n_tokens=tokens,
            stops=[stop] if isinstance(stop, str) else stop,
            emit=emit,
        )
        return found


class TextClassifier(Engine):
    """A trained model that predicts the labels of texts."""

    task_type = Classification

    def predict(
        self, texts: Sequence[str], *, done: Callable[[int], None] = lambda n: None, **options: Any
    ) -> list[Prediction]:
        """Return the label of each text, with the probabilities of all labels."""
        for text in texts:
            check_text(text)
        decoding = self._decoding(options)
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


ENGINES: tuple[type[Engine], ...] = (Translator, Generator, TextClassifier)


def load_engine(run: str | Path, device: str = "auto") -> Engine:
    """Load a run folder of any task with what its task can do."""
    folder = Path(run)
    bundle = load_bundle(folder, find_device(device))
    fitting = (kind for kind in ENGINES if isinstance(bundle.task, kind.task_type))
    return next(fitting, Engine)(bundle, read_words(folder))
