"""Installed translators: found by direction, chosen by the language of each text.

A translator is a run folder with the name translate-SOURCE-TARGET, such as translate-en-de. Folders
are searched in this order; the first translator of a direction is used:

    the folders in the variable ATTENDO_TRANSLATORS
    ~/.local/share/attendo/translators (or attendo/translators in XDG_DATA_HOME)
    shipped/ in the package

Nothing here imports torch before a text is translated.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from attendo.engines.base import TextTranslator, TranslatesLines
from attendo.errors import ConfigError
from attendo.files import read_text
from attendo.text import fold_case, iterate_words
from attendo.text.streams import Translated

VARIABLE = "ATTENDO_TRANSLATORS"

NAME = re.compile(r"translate-([a-z]{2,3})-([a-z]{2,3})")

CARDS = ("README.md", "card.md")
"""Names of the description of a translator: data, licences, scores and limits."""

MARGIN = 10
"""Difference of log-probabilities from which the letters of a text decide about its language."""

WINDOW = 256
"""Texts whose languages are detected, and which are then translated together."""


class Direction(NamedTuple):
    """From which language a translator translates into which."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source} to {self.target}"


def user_folder() -> Path:
    """Return the folder where a person can install translators."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "attendo" / "translators"


def find_translators() -> dict[Direction, Path]:
    """Return the folders of all installed translators."""
    named = filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    found: dict[Direction, Path] = {}
    for folder in (*map(Path, named), user_folder(), Path(str(files("attendo") / "shipped"))):
        for path in sorted(folder.glob("translate-*-*")):
            match = NAME.fullmatch(path.name)
            if match and (path / "recipe.toml").is_file():
                found.setdefault(Direction(*match.groups()), path)
    return found


def installed_translators() -> dict[Direction, Path]:
    """Return the same; raises a ConfigError if there are none."""
    found = find_translators()
    if not found:
        raise ConfigError(
            "no translator is installed; give the folder of a trained run (train one with "
            f"'attendo train'), or put such a folder into {user_folder()}, named translate-en-de"
        )
    return found


def read_card(folder: Path) -> str:
    """Return what is known about a translator, as Markdown."""
    for name in CARDS:
        if (folder / name).is_file():
            try:
                return read_text(folder / name, 1 << 20)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{folder / name} cannot be read: {error}") from None
    return f"{folder.name} has no description ({' or '.join(CARDS)}).\n"


def choose_directions(source: str | None, target: str | None) -> dict[Direction, Path]:
    """Return the translators that may be needed, one for each source language.

    Raises:
        ConfigError: None is installed that fits, or the target language is not clear.
    """
    installed = installed_translators()
    fitting = {
        one: path
        for one, path in installed.items()
        if source in (None, one.source) and target in (None, one.target)
    }
    if not fitting:
        wanted = f"from {source or 'any language'} to {target or 'any language'}"
        have = ", ".join(map(str, installed))
        raise ConfigError(f"no translator {wanted} is installed; there are: {have}")
    for language in {one.source for one in fitting}:
        targets = [one.target for one in fitting if one.source == language]
        if len(targets) > 1:
            raise ConfigError(
                f"{language!r} can be translated to {', '.join(targets)}; choose one with --to"
            )
    return fitting


class InstalledTranslator(TranslatesLines):
    """Translates each text with the translator of its language.

    The options are those of `load_translator`.
    """

    def __init__(
        self, source: str | None = None, target: str | None = None, **options: Any
    ) -> None:
        self.folders = {one.source: path for one, path in choose_directions(source, target).items()}
        self.options = options
        self.detector = LanguageDetector(self.folders)
        self._loaded: dict[str, TextTranslator] = {}

    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations in order."""
        if len(self.folders) == 1:
            translator = self._engine(self.detector.default)
            yield from translator.stream(texts, n_best=n_best, done=done, **options)
            return
        waiting = iter(texts)
        while some := list(islice(waiting, WINDOW)):
            languages = [self.detector.detect(text) for text, _ in some]
            found = {
                language: self._engine(language).stream(
                    [one for one, own in zip(some, languages, strict=True) if own == language],
                    n_best=n_best,
                    done=done,
                    **options,
                )
                for language in dict.fromkeys(languages)
            }
            for language in languages:
                yield next(found[language])

    def unknown_words(self, text: str) -> list[str]:
        """List the words of a text that the training data of its translator did not contain."""
        return self._engine(self.detector.detect(text)).unknown_words(text)

    def _engine(self, language: str) -> TextTranslator:
        from attendo.engines.loading import load_translator

        if language not in self._loaded:
            self._loaded[language] = load_translator(self.folders[language], **self.options)
        return self._loaded[language]


class LanguageDetector:
    """Tells the source languages of some translators apart.

    Where the letters of a text do not decide (py3langid), its words do: those in the training data
    of each translator. Short texts need it: "Hallo" and "Ja" look like English.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self.folders = folders
        self.default = "en" if "en" in folders else next(iter(folders))
        """The language of a text that says nothing about it."""

    def detect(self, text: str) -> str:
        """Return the language of a text."""
        if len(self.folders) == 1:
            return self.default
        (best, score), (_, second) = self._identifier.rank(text)[:2]
        if score - second > MARGIN:
            return str(best)
        words = [fold_case(word) for word in iterate_words(text)]
        known = {one: sum(word in own for word in words) for one, own in self._words.items()}
        most = max(known.values())
        fitting = [language for language, n_known in known.items() if n_known == most]
        if len(fitting) == 1:
            return fitting[0]
        return self.default if score == second else str(best)

    @cached_property
    def _identifier(self) -> Any:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        try:
            identifier.set_languages(list(self.folders))
        except ValueError as error:
            raise ConfigError(
                f"the language of a text cannot be detected ({error}); choose it with --from"
            ) from None
        return identifier

    @cached_property
    def _words(self) -> dict[str, frozenset[str]]:
        return {language: _read_words(folder) for language, folder in self.folders.items()}


def _read_words(folder: Path) -> frozenset[str]:
    """Read the source words of the training data; a translator without a list has none."""
    try:
        return frozenset(read_text(folder / "words.txt", 1 << 25).split("\n")) - {""}
    except (OSError, ValueError):
        return frozenset()
