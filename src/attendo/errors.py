"""Every error that a user can cause, and helpers for the messages.

AttendoError
├── ConfigError      a recipe, an option or a combination of them
├── DataError        text files and what they hold
├── TokenizerError   vocabularies and tokenizer files
├── BundleError      a run folder that cannot be loaded or resumed
└── TrainingError    a training that cannot continue

A message names what was given, what was expected and what to do. The command line prints it as one
line, `error: ...`, with exit code 2; a traceback is shown for bugs only.
"""

import difflib
import os
import shlex
import shutil
import sys
from collections.abc import Iterable


class AttendoError(Exception):
    """Base of all errors that are reported to the user without a traceback.

    >>> try:
    ...     attendo.load_recipe("smal")
    ... except attendo.AttendoError as error:
    ...     print(error)
    no recipe is called 'smal'; did you mean 'small'? (or give a .toml file)
    """


class ConfigError(AttendoError):
    """A recipe or an option is wrong."""


class DataError(AttendoError):
    """A data file is missing, unreadable or has unusable contents."""


class TokenizerError(AttendoError):
    """A tokenizer cannot be trained, read or used in this way."""


class BundleError(AttendoError):
    """A run folder is missing parts, damaged or does not fit."""


class TrainingError(AttendoError):
    """A training has to stop."""


def did_you_mean(given: str, choices: Iterable[str]) -> str:
    """Return a question that names the nearest choice, or a list of all choices."""
    choices = sorted(choices)
    near = difflib.get_close_matches(given, choices, n=1)
    return f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(choices)}"


def command_line(*words: object) -> str:
    """Return an attendo command that works as typed in this folder, whatever the PATH is."""
    script = sys.argv[0]
    if os.path.basename(script) != "attendo":  # python -m attendo, a notebook, a worker
        script = os.path.join(os.path.dirname(sys.executable), "attendo")
    program = [as_typed(script)]
    if not os.path.isfile(script):
        program = [as_typed(sys.executable), "-m", "attendo"]
    return shlex.join([*program, *map(str, words)])


def install_command(*packages: str) -> str:
    """Return the command that installs missing packages for the running Python."""
    return shlex.join([as_typed(sys.executable), "-m", "pip", "install", *packages])


def as_typed(program: str) -> str:
    """Return the name of a program that the PATH finds, else its path, relative if it is below."""
    name, place = os.path.basename(program), os.path.abspath(program)
    found = shutil.which(name)
    if found and os.path.abspath(found) == place:
        return name
    relative = os.path.relpath(place)
    if relative.startswith(os.pardir):
        return place
    return relative if os.sep in relative else os.path.join(os.curdir, relative)
