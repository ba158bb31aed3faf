"""Engines for texts: continue, label, fill or embed them; and the engine of any run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32

from attendo.bundle import Bundle, find_device, load_bundle, read_words
from attendo.config import choose
from attendo.engines.base import check_text
from attendo.engines.pytorch import Engine, Translator, check_task
from attendo.errors import ConfigError
from attendo.models import Encoder
from attendo.tasks import (
    Classification,
    LabelTask,
    LanguageModel,
    MaskedLanguageModel,
    PredictingTask,
    TreeTask,
)
from attendo.tasks.embedding import embed
from attendo.text import STOPS, Stop


class Generator(Engine):
    """A trained language model that continues texts."""

    task_type = LanguageModel

    def generate(
        self,
        prompt: str = "",
        *,
        tokens: int = 100,
        stop: str | Sequence[str] = (),
        until: str | None = None,
        emit: Callable[[str], None] = lambda text: None,
        **options: Any,
    ) -> str:
        """Continue a text by up to `tokens` tokens; the prompt is not part of the result.

        Args:
            prompt: The beginning of the text.
            tokens: The most tokens to add.
            stop: One or more texts that end the result, which is cut before them.
            until: For code, end with the "block" or "function" that the prompt opens or is in.
            emit: Called with every part of the result as soon as it is known.
            **options: Keys of the recipe's [decoding] section, such as temperature or seed. The
                text is sampled unless another strategy is given.
        """
        check_text(prompt)
        stops: list[str | Stop] = [stop] if isinstance(stop, str) else [*stop]
        if until is not None:
            stops.append(choose(STOPS, until, "until")(prompt))
        chosen = {"strategy": "sample", **options}
        decoding = self._decoding(chosen)
        found: str = self.bundle.task.generate(
            self.bundle.model,
            prompt,
            decoding,
            self.device,
            n_tokens=tokens,
            stops=stops,
            emit=emit,
        )
        return found


class Predictor(Engine):
    """A trained model that predicts something about given texts, images or recordings."""

    task_type: ClassVar[type[Any]] = PredictingTask

    def predict(
        self,
        texts: Sequence[str | Sequence[str]],
        *,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> list[Any]:
        """Return what the model says about each text.

        Args:
            texts: What to read; for pairs of texts, each is a tuple of two, or both with a TAB
                between them.
            done: Called now and then with the number of texts finished since the last call.
            **options: Keys of the recipe's [decoding] section, such as batch_size.
        """
        for given in texts:
            for text in (given,) if isinstance(given, str) else given:
                check_text(text)
        decoding = self._decoding(options)
        found: list[Any] = self.bundle.task.predict(
            self.bundle.model, texts, decoding, self.device, done=done
        )
        return found


class TextClassifier(Predictor):
    """A trained model that predicts the labels of texts, of pairs of texts, or of words.

    `predict` returns a `Prediction` for each text: its label, with the probabilities of all. For
    words it returns a `TaggedText`: words, labels and their probabilities.
    """

    task_type = LabelTask


class MaskFiller(Predictor):
    """A trained masked language model; `predict` returns `Guesses` for the masks of a text."""

    task_type = MaskedLanguageModel


class Parser(Predictor):
    """A trained parser; `predict` returns a `Parse` for each sentence, with its tree."""

    task_type = TreeTask


class Embedder(Engine):
    """A trained model with an encoder that turns texts into vectors."""

    def __init__(self, bundle: Bundle, words: frozenset[str] = frozenset()) -> None:
        super().__init__(bundle, words)
        if not isinstance(bundle.model, Encoder):
            raise ConfigError(
                f"this run was trained for the task {bundle.task.name!r}, and its model is not an "
                "encoder alone; texts are embedded by masked language models and classifiers"
            )

    def embed(
        self, texts: Sequence[str], *, done: Callable[[int], None] = lambda n: None, **options: Any
    ) -> Float32[np.ndarray, "N D"]:
        """Return a vector of length 1 for each text: similar texts have a large product.

        Args:
            texts: What to embed, texts or names of files; texts that are too long are cut.
            done: Called now and then with the number of texts finished since the last call.
            **options: Keys of the recipe's [decoding] section, such as batch_size.
        """
        for text in texts:
            check_text(text)
        task, decoding = self.bundle.task, self._decoding(options)
        return embed(self.bundle.model, task, texts, decoding, done=done)


def load_generator(run: str | Path, device: str = "auto") -> Generator:
    """Load a run folder of a language model."""
    return Generator(load_bundle(Path(run), find_device(device)))


def load_classifier(run: str | Path, device: str = "auto") -> TextClassifier:
    """Load a run folder of a classifier."""
    return TextClassifier(load_bundle(Path(run), find_device(device)))


def load_predictor(run: str | Path, device: str = "auto") -> Predictor:
    """Load a run folder of a classifier, a masked language model or a parser."""
    engine = load_engine(run, device)
    if not isinstance(engine, Predictor):
        check_task(engine.bundle.task, Classification)
    assert isinstance(engine, Predictor)
    return engine


def load_embedder(run: str | Path, device: str = "auto") -> Embedder:
    """Load a run folder of any model that is an encoder, to embed texts."""
    return Embedder(load_bundle(Path(run), find_device(device)))


ENGINES: tuple[type[Engine], ...] = (
    Translator,
    Generator,
    TextClassifier,
    MaskFiller,
    Parser,
    Predictor,
)


def load_engine(run: str | Path, device: str = "auto") -> Engine:
    """Load a run folder of any task with what its task can do."""
    folder = Path(run)
    bundle = load_bundle(folder, find_device(device))
    fitting = (kind for kind in ENGINES if isinstance(bundle.task, kind.task_type))
    return next(fitting, Engine)(bundle, read_words(folder))
