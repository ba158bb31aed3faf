"""The engine that runs a bundle as it was trained, on PyTorch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from attendo.bundle import Bundle, find_device, load_bundle, read_words
from attendo.config import DecodingConfig, change_decoding
from attendo.errors import ConfigError, DataError
from attendo.metrics import Scores
from attendo.models import Recording
from attendo.tasks import Reading, Translated
from attendo.text import fold_case, split_words


class Translator:
    """A trained model that turns text into text.

    >>> model = attendo.load("runs/demo")          # doctest: +SKIP
    >>> model.translate(["The dog sleeps."])       # doctest: +SKIP
    ['Der Hund schläft.']
    """

    def __init__(self, bundle: Bundle, words: frozenset[str] = frozenset()) -> None:
        self.bundle = bundle
        self.words = words
        self.device = next(bundle.model.parameters()).device

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """Translate texts; options are the keys of the recipe's [decoding] section."""
        return [best[0].text for best in self.translations(texts, **options)]

    def translations(
        self,
        texts: Sequence[str],
        *,
        n_best: int = 1,
        prefixes: Sequence[str] = (),
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> list[list[Translated]]:
        """Translate texts into up to `n_best` translations with scores, the best first.

        Args:
            texts: What to translate; empty texts stay empty.
            n_best: How many translations of each to return (not more than the beam).
            prefixes: What each translation must begin with; one for each text, or none at all.
            done: Called now and then with the number of texts finished since the last call.
            **options: Keys of the recipe's [decoding] section, such as beam=1 or alpha=1.0.
        """
        if isinstance(texts, str):
            raise ConfigError("translate takes a list of texts: write [text] for a single one")
        if prefixes and len(prefixes) != len(texts):
            raise ConfigError(f"{len(prefixes)} prefixes for {len(texts)} texts: give one for each")
        for text in (*texts, *prefixes):
            check_text(text)
        return self.bundle.task.translate(
            self.bundle.model,
            texts,
            self._decoding(options),
            self.device,
            n_best=n_best,
            prefixes=prefixes,
            done=done,
        )

    def unknown_words(self, text: str) -> list[str]:
        """List the words of a source that the training data did not contain, in order, once each.

        Empty where the run has no list of its words (words.txt).
        """
        if not self.words:
            return []
        found: dict[str, str] = {}
        for word in split_words(text):
            found.setdefault(fold_case(word), word)
        return [word for folded, word in found.items() if folded not in self.words]

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[float]:
        """Compute the log-probability of each target as the translation of its source."""
        return self.bundle.task.score(self.bundle.model, sources, targets, self.device)

    def evaluate(
        self,
        sources: Sequence[str],
        references: Sequence[str],
        *,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Scores:
        """Translate and compare with references: BLEU, chrF, signature, confidence interval."""
        pairs = list(zip(sources, references, strict=True))
        decoding = self._decoding(options)
        return self.bundle.task.evaluate(self.bundle.model, pairs, decoding, self.device, done=done)

    def record(self, source: str, target: str | None = None) -> tuple[Recording, Reading]:
        """Read a pair and keep all that happens: attention, vectors, what was expected next.

        Without a target, the model's own translation is looked at.
        """
        check_text(source)
        target = self.translate([source])[0] if target is None else target
        check_text(target)
        return self.bundle.task.record(self.bundle.model, source, target, self.device)

    def _decoding(self, options: dict[str, Any]) -> DecodingConfig:
        return change_decoding(self.bundle.recipe.decoding, options)


def check_text(text: object) -> None:
    """Refuse what is no text, bytes of another encoding on the command line too."""
    if not isinstance(text, str) or text.encode(errors="ignore").decode() != text:
        raise DataError(f"{text!r:.80} is not Unicode text; give strings, in UTF-8")


def load(run: str | Path, device: str = "auto") -> Translator:
    """Load a run folder for translating."""
    folder = Path(run)
    return Translator(load_bundle(folder, find_device(device)), read_words(folder))
