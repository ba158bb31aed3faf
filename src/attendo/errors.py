"""Every error a person can cause, drawn once.

AttendoError
├── ConfigError      a recipe, an option or a combination of them
├── DataError        text files and what they hold
├── TokenizerError   vocabularies and tokenizer files
├── BundleError      a run folder that cannot be loaded or resumed
└── TrainingError    a training that cannot go on

A message says what was given, what was expected and what to do. The command line prints it as one
line, `error: ...`, with exit code 2; a traceback is shown for our own mistakes only.
"""

import difflib
from collections.abc import Iterable


class AttendoError(Exception):
    """Base of all errors that are meant to be read by the person who caused them."""


class ConfigError(AttendoError):
    """A recipe or an option is wrong."""


class DataError(AttendoError):
    """A data file is missing, unreadable or holds what cannot be used."""


class TokenizerError(AttendoError):
    """A tokenizer cannot be trained, read or used in this way."""


class BundleError(AttendoError):
    """A run folder is missing parts, damaged or does not fit."""


class TrainingError(AttendoError):
    """A training has to stop."""


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """Name the nearest of the choices, or all of them: the last sentence of many messages."""
    choices = sorted(choices)
    near = difflib.get_close_matches(given, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(choices)}"
