"""Conversions: the parameters of a run in the format of CTranslate2, kept beside it.

    RUN/ctranslate2/conversion.json     what was converted, compared and measured
    RUN/ctranslate2/float32, int8       folders that `ctranslate2.Translator` loads

A conversion is used as long as model.safetensors is the file that it was made from. A run that has
a conversion and no model.safetensors can be used with it alone.
"""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from attendo.errors import AttendoError, ConfigError
from attendo.files import read_text, write_text
from attendo.reporter import Reporter
from attendo.runs import PARAMETERS, PrecisionScores, update_score_card

FOLDER = "ctranslate2"
RECORD = "conversion.json"
KEY = "conversion"
"""Of a score card."""
FORMAT = 1
"""Changed when older conversions are to be made again."""

MOST_LOST = 0.3
"""Most BLEU on the validation pairs that int8 may cost."""

_MOST_BYTES = 1 << 16


class Origin(BaseModel):
    """The file that a conversion was made from."""

    model_config = ConfigDict(frozen=True)

    sha256: str
    size: int
    modified: int
    """Nanoseconds since 1970. A file of this size and time is not read again."""

    @classmethod
    def of(cls, path: Path) -> "Origin":
        """Describe a file."""
        about = path.stat()
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(sha256=digest, size=about.st_size, modified=about.st_mtime_ns)

    def is_still(self, path: Path) -> bool:
        """Return whether a file has the same content."""
        about = path.stat()
        if about.st_size != self.size:
            return False
        return about.st_mtime_ns == self.modified or Origin.of(path).sha256 == self.sha256


class Conversion(BaseModel):
    """What is known about a conversion."""

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    origin: Origin
    positions: int
    """Positions that it knows: no longer sequence can be translated."""
    compared: int
    """Sentences whose greedy translations are those of PyTorch in float32, token by token."""
    difference: float
    """Largest difference of the scores of these translations, relative to the score."""
    sentences: int = 0
    """Validation pairs that `bleu` is measured on; 0 if the run has none."""
    bleu: dict[str, float] = {}
    """BLEU of greedy translations of the validation pairs, by precision."""

    @property
    def lost(self) -> float | None:
        """Return the BLEU that int8 costs; None if it has not been measured."""
        return self.bleu["float32"] - self.bleu["int8"] if self.bleu else None

    def choose(self, precision: str) -> str:
        """Return the precision to use.

        Raises:
            ConfigError: int8 is requested and costs too much.
        """
        lost = self.lost
        if precision == "auto":
            return "int8" if lost is not None and lost <= MOST_LOST else "float32"
        if precision == "int8" and lost is not None and lost > MOST_LOST:
            raise ConfigError(
                f"--precision int8 costs {lost:.2f} BLEU on the validation pairs of this run, more "
                f"than {MOST_LOST}; use --precision float32"
            )
        return precision

    def scores(self) -> PrecisionScores:
        """Return what the score card of the run has of it."""
        return PrecisionScores(
            precision=self.choose("auto"),
            sentences=self.sentences,
            bleu=self.bleu,
            difference=None if self.lost is None else round(-self.lost, 4),
        )

    def describe(self) -> str:
        """Return one line for people."""
        text = f"same translations as PyTorch in float32 ({self.compared} sentences)"
        lost = self.lost
        if lost is None:
            return f"{text}; int8 is not used: the run has no validation pairs to measure it on"
        verb = "is used" if lost <= MOST_LOST else "is not used"
        return (
            f"{text}; int8 {verb}: {self.bleu['int8']:.2f} BLEU on {self.sentences} validation "
            f"pairs, float32 {self.bleu['float32']:.2f}"
        )


def find_conversion(run: Path) -> Conversion | None:
    """Return the conversion of a run, or None if there is none of its present parameters."""
    folder, parameters = run / FOLDER, run / PARAMETERS
    try:
        found = Conversion.model_validate_json(read_text(folder / RECORD, _MOST_BYTES))
        is_current = not parameters.exists() or found.origin.is_still(parameters)
    except (OSError, ValueError, ValidationError):
        return None  # it is made again
    return found if found.format == FORMAT and is_current else None


def parameters_file(run: Path) -> Path | None:
    """Return the file with the parameters of a run, that of its conversion if it has no other."""
    own = run / PARAMETERS
    if own.exists() or find_conversion(run) is None:
        return own if own.exists() else None
    paths = (run / FOLDER / precision / "model.bin" for precision in ("float32", "int8"))
    return next((path for path in paths if path.is_file()), None)


def scores_of(run: Path) -> dict[str, Any]:
    """Return the part of a score card that is about the conversion of a run, if there is one."""
    found = find_conversion(run)
    return {} if found is None else {KEY: found.scores().model_dump()}


def add_to_card(run: Path, reporter: Reporter) -> None:
    """Add what is known about the conversion of a run to its score card."""
    scores = scores_of(run)
    try:
        if scores:
            update_score_card(run, lambda card: card | scores)
    except AttendoError as error:  # the run can be used nevertheless
        reporter.say(f"BLEU in int8 is not in the score card: {error}")


def write_record(folder: Path, conversion: Conversion) -> None:
    """Write what is known about the conversion in a folder."""
    write_text(folder / RECORD, conversion.model_dump_json(indent=2) + "\n")
