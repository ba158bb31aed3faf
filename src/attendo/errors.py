"""Every error that a user can cause.

AttendoError
├── ConfigError      a recipe, an option or a combination of them
├── DataError        text files and what they hold
├── TokenizerError   vocabularies and tokenizer files
├── BundleError      a run folder that cannot be loaded or resumed
└── TrainingError    a training that cannot continue

A message says what was given, what was expected and what to do. The command line prints it as one
line, `error: ...`, with exit code 2; a traceback is shown for our own mistakes only.
"""

import difflib
from collections.abc import Iterable


class AttendoError(Exception):
    """Base of all errors with a message for the user."""


class ConfigError(AttendoError):
    """A recipe or an option is wrong."""


class DataError(AttendoError):
    """A data file is missing, unreadable or has unusable content."""


class TokenizerError(AttendoError):
    """A tokenizer cannot be trained, read or used in this way."""


class BundleError(AttendoError):
    """A run folder is incomplete, damaged or does not match its recipe."""


class TrainingError(AttendoError):
    """A training has to stop."""


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """Suggest the nearest of the choices, or list all of them."""
    choices = sorted(choices)
    near = difflib.get_close_matches(given, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(choices)}"
