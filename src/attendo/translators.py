"""Installed translators: found by direction, chosen by the language of each text.

A translator is a run folder with the name translate-SOURCE-TARGET, such as translate-en-de; or
translate-ONE+OTHER, if it translates each of two languages into the other, and knows by the text
itself which. Folders are searched in this order; the first translator of a direction is used:

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
from attendo.reporter import Reporter
from attendo.text import fold_case, iterate_words
from attendo.text.streams import Translated

VARIABLE = "ATTENDO_TRANSLATORS"

NAME = re.compile(r"translate-([a-z]{2,3})([-+])([a-z]{2,3})")

CARDS = ("README.md", "card.md")
"""Names of the description of a translator: data, licences, scores and limits."""

MARGIN = 10
"""Difference of log-probabilities from which the letters of a text decide about its language."""

PRIOR = 2
"""The same for a text in the language to translate into, where there are no lists of words: few
texts are."""

WINDOW = 2048
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
        for path in sorted(folder.glob("translate-*")):
            if (path / "recipe.toml").is_file():
                for direction in _directions(path.name):
                    found.setdefault(direction, path)
    return found


def _directions(name: str) -> list[Direction]:
    """Return the directions of the folder of a translator, by its name."""
    match = NAME.fullmatch(name)
    if not match:
        return []
    one, sign, other = match.groups()
    return [Direction(one, other), Direction(other, one)][: 1 if sign == "-" else 2]


def installed_translators() -> dict[Direction, Path]:
    """Return the folders of all installed translators; raise a ConfigError if there are none."""
    found = find_translators()
    if not found:
        raise ConfigError(
            "no translator is installed; give the folder of a trained run (train one with "
            f"'attendo train'), or put such a folder into {user_folder()}, named translate-en-de"
        )
    return found


def by_folder(translators: Mapping[Direction, Path]) -> dict[Path, list[Direction]]:
    """Return the directions of each folder."""
    found: dict[Path, list[Direction]] = {}
    for direction, folder in translators.items():
        found.setdefault(folder, []).append(direction)
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

    If there is only one language to translate into, a text that is clearly in this language stays
    as it is, unless its translation must begin with a prefix. The options are those of
    `load_translator`.
    """

    def __init__(
        self,
        source: str | None = None,
        target: str | None = None,
        *,
        reporter: Reporter | None = None,
        **options: Any,
    ) -> None:
        chosen = choose_directions(source, target)
        self.folders = {one.source: path for one, path in chosen.items()}
        self.target = _needs_no_translation(chosen)
        self.detector = LanguageDetector(self.folders, self.target)
        self.reporter = reporter or Reporter()
        self.options = options
        self._loaded: dict[Path, TextTranslator] = {}
        self._has_kept = False

    def stream(
        self,
        texts: Iterable[tuple[str, str]],
        *,
        n_best: int = 1,
        done: Callable[[int], None] = lambda n: None,
        **options: Any,
    ) -> Iterator[list[Translated]]:
        """Translate texts, each with a prefix, and yield their translations in order."""
        from attendo.engines.loading import check_search

        for folder in set(self.folders.values()):
            check_search(folder, n_best, options)
        how = {"n_best": n_best, "done": done, **options}
        if not self.detector.has_choice:
            yield from self._engine(self.detector.default).stream(texts, **how)
            return
        waiting = iter(texts)
        while some := list(islice(waiting, WINDOW)):
            languages = [self._language(*one) for one in some]
            found = {
                language: self._stream_from(
                    language,
                    [one for one, own in zip(some, languages, strict=True) if own == language],
                    how,
                )
                for language in dict.fromkeys(languages)
            }
            for language in languages:
                yield next(found[language])

    def _language(self, text: str, prefix: str) -> str:
        language = self.detector.detect(text)
        return self.detector.default if prefix and language == self.target else language

    def _stream_from(
        self, language: str, texts: list[tuple[str, str]], how: dict[str, Any]
    ) -> Iterator[list[Translated]]:
        """Translate texts of one language, except those that need no translation."""
        if language != self.target:
            return self._engine(language).stream(texts, **how)
        if not self._has_kept:
            self.reporter.say(f"text that is in the language {language!r} already stays as it is")
        self._has_kept = True
        how["done"](len(texts))
        return ([Translated(text, 0.0, finished=True)] for text, _ in texts)

    def unknown_words(self, text: str) -> list[str]:
        """List the words of a text that the training data of its translator did not contain."""
        language = self._language(text, "")
        return [] if language == self.target else self._engine(language).unknown_words(text)

    def _engine(self, language: str) -> TextTranslator:
        from attendo.engines.loading import load_translator

        folder = self.folders[language]
        if folder not in self._loaded:
            self._loaded[folder] = load_translator(folder, **self.options)
        return self._loaded[folder]


def _needs_no_translation(chosen: Mapping[Direction, Path]) -> str | None:
    """Return the one language to translate into, if a text in it would be translated as well.

    A translator for both directions does that, into the wrong language.
    """
    targets = {one.target for one in chosen}
    if len(targets) > 1:
        return None
    (target,) = targets
    back = (Direction(target, one.source) in _directions(path.name) for one, path in chosen.items())
    return target if any(back) else None


class LanguageDetector:
    """Tells the source languages of some translators apart, and one more that needs none.

    Where the letters of a text do not decide (py3langid), its words do: those in the training data
    of each translator. Short texts need it: "Hallo" and "Ja" look like English.
    """

    def __init__(self, folders: Mapping[str, Path], other: str | None = None) -> None:
        self.folders = folders
        self.languages = [*folders, *([other] if other else [])]
        self.default = "en" if "en" in folders else next(iter(folders))
        """The language of a text that says nothing about it."""

    @property
    def has_choice(self) -> bool:
        """Return whether it matters in which of the languages a text is."""
        return len(set(self.folders.values())) > 1 or len(self.languages) > len(self.folders)

    def detect(self, text: str) -> str:
        """Return the language of a text, or a default where it does not matter."""
        if not self.has_choice or self._identifier is None:
            return self.default
        ranked = self._identifier.rank(text)
        (best, score), (_, second) = ranked[:2]
        if score - second > MARGIN:
            return str(best)
        fitting = [str(one) for one, _ in ranked if one in self.folders]
        if score - second < PRIOR:
            best = fitting[0]
        if all(self._words.values()):
            words = [fold_case(word) for word in iterate_words(text)]
            known = {one: sum(word in self._words[one] for word in words) for one in fitting}
            most = max(known.values())
            fitting = [one for one in fitting if known[one] == most]
            best = fitting[0] if most else best
        return self.default if score == second and self.default in fitting else str(best)

    @cached_property
    def _identifier(self) -> Any:
        """Return what ranks the languages; None if there is only one to translate from."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE)
        try:
            identifier.set_languages(self.languages)
        except ValueError as error:
            if len(self.folders) == 1:
                return None
            raise ConfigError(
                f"the language of a text cannot be detected ({error}); choose it with --from"
            ) from None
        return identifier

    @cached_property
    def _words(self) -> dict[str, frozenset[str]]:
        """Return the source words of each translator; none where one has no list."""
        return {language: _read_words(folder) for language, folder in self.folders.items()}


def _read_words(folder: Path) -> frozenset[str]:
    """Read the source words of the training data; a translator without a list has none."""
    try:
        return frozenset(read_text(folder / "words.txt", 1 << 25).split("\n")) - {""}
    except (OSError, ValueError):
        return frozenset()
