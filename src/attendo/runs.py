"""A run folder without its parameters: recipe, tokenizers, words and score card.

Nothing here needs PyTorch, so that an engine that does not need it either starts quickly.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from attendo.config import Recipe, load_recipe
from attendo.errors import AttendoError, BundleError, ConfigError
from attendo.files import one_at_a_time, read_json, read_text, write_json, write_text
from attendo.text.limits import MOST_BYTES
from attendo.text.tokenizer import Tokenizer

RECIPE = "recipe.toml"
TOKENIZER = "tokenizer.json"
TARGET_TOKENIZER = "target_tokenizer.json"
PARAMETERS = "model.safetensors"
SCORE_CARD = "scorecard.json"
WORDS = "words.txt"
LABELS = "labels.json"

_MOST_WORD_BYTES = 1 << 25
_MOST_CARD_BYTES = 1 << 24
_MOST_LABEL_BYTES = 1 << 24


def load_run_recipe(folder: Path, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """Read the recipe of a run, with overrides; it is complete and names no other recipe."""
    if not folder.is_dir():
        raise BundleError(
            f"{str(folder)!r} is not a folder; expected a run made by 'attendo train'"
        )
    if not (folder / RECIPE).is_file():
        raise BundleError(
            f"{str(folder)!r} has no {RECIPE}, so it is not a run; "
            "expected a folder made by 'attendo train'"
        )
    return load_recipe(str(folder / RECIPE), overrides, allow_like=False)


def read_tokenizer(path: Path) -> Tokenizer:
    """Read the tokenizer of a run folder."""
    if not path.is_file():
        raise BundleError(f"{str(path)!r} does not exist; the run folder is incomplete")
    try:
        return Tokenizer.from_json(read_text(path, MOST_BYTES))
    except (AttendoError, OSError, ValueError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}") from None


def read_tokenizers(folder: Path, recipe: Recipe) -> tuple[Tokenizer, Tokenizer]:
    """Read the tokenizers of the source and of the target, which may be one."""
    source = target = read_tokenizer(folder / TOKENIZER)
    if recipe.tokenizer.shared is not True:
        target = read_tokenizer(folder / TARGET_TOKENIZER)
    check_tokenizers(source, target, recipe)
    return source, target


def check_tokenizers(source: Tokenizer, target: Tokenizer, recipe: Recipe) -> None:
    """Raise an error unless two tokenizers share what the recipe says."""
    if recipe.tokenizer.shared == "ids" and source.fingerprint() != target.fingerprint():
        raise ConfigError(
            'tokenizer.shared = "ids" needs two tokenizers with the same ids, and these differ;'
            " set tokenizer.shared to true or false"
        )


def read_validation_pairs(folder: Path) -> list[tuple[str, str]]:
    """Read the validation pairs of a translation run; none if its state/ has been removed."""
    from attendo.data.corpus import read_texts
    from attendo.data.readers import Pair

    path = folder / "state" / "data" / "valid.jsonl"
    return list(read_texts(path, Pair)) if path.is_file() else []


def write_words(folder: Path, words: Iterable[str]) -> None:
    """Write the source words of the training data, one a line."""
    write_text(folder / WORDS, "".join(f"{word}\n" for word in words))


def read_words(folder: Path) -> frozenset[str]:
    """Read the source words of the training data; runs of older versions have none."""
    path = folder / WORDS
    if not path.is_file():
        return frozenset()
    try:
        return frozenset(read_text(path, _MOST_WORD_BYTES).split("\n")) - {""}
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)!r} is damaged: {error}; remove it") from None


def write_labels(**labels: Sequence[str]) -> str:
    """Return labels of one or several kinds as the content of labels.json."""
    return json.dumps(labels, ensure_ascii=False, indent=2) + "\n"


def read_labels(folder: Path, *kinds: str) -> list[list[str]]:
    """Read the labels of each kind that the model of a run folder predicts."""
    path = folder / LABELS
    try:
        content = read_json(path, _MOST_LABEL_BYTES)
        found = [content[kind] for kind in kinds]
        for labels in found:
            is_list = isinstance(labels, list) and bool(labels)
            if not is_list or not all(isinstance(label, str) for label in labels):
                raise ValueError("expected lists of labels")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error}") from None
    return found


# -- the score card ------------------------------------------------------------------------------

_Number = Annotated[float, Field(allow_inf_nan=False)]


class _Scores(BaseModel):
    """The scores of the translations of one test set; other keys are allowed."""

    model_config = ConfigDict(extra="allow", strict=True)

    bleu: _Number
    chrf: _Number
    signature: str
    sentences: int
    bleu_interval: Annotated[list[_Number], Field(min_length=2, max_length=2)] | None
    test: list[str] = []
    decoding: dict[str, Any] = {}


class PrecisionScores(BaseModel):
    """What the engine CTranslate2 uses, and what it was measured on; other keys are allowed."""

    model_config = ConfigDict(extra="allow", strict=True)

    precision: str
    """The one that is chosen: int8 or float32."""
    sentences: int
    """Validation pairs that BLEU is measured on; 0 if the run has none."""
    bleu: dict[str, _Number]
    """BLEU of greedy translations, by precision; empty if it is not measured."""
    difference: _Number | None
    """BLEU of int8 less that of float32; None if it is not measured."""


class _ScoreCard(BaseModel):
    """What the code relies on in a score card."""

    model_config = ConfigDict(extra="allow", strict=True)

    task: str = "translation"
    steps: int = 0
    start: dict[str, Any] = {}
    evaluations: list[dict[str, Any]] = []
    conversion: PrecisionScores | None = None
    untrained: list[str] = []
    """Parameters of an imported model that the published one does not have."""

    @model_validator(mode="after")
    def _translations_have_all_scores_or_none(self) -> "_ScoreCard":
        if self.task == "translation":
            TypeAdapter(list[_Scores]).validate_python(self.evaluations)
            if "bleu" in (self.model_extra or {}):
                _Scores.model_validate(self.model_extra)
        return self


def list_untrained(folder: Path) -> list[str]:
    """List the parameters of an imported model that the published one does not have."""
    if not (folder / SCORE_CARD).exists():  # as before the end of a training
        return []
    found: list[str] = read_score_card(folder).get("untrained", [])
    return found


def read_score_card(folder: Path) -> dict[str, Any]:
    """Read the scores that training or `evaluate` has written."""
    path = folder / SCORE_CARD
    try:
        card: dict[str, Any] = read_json(path, _MOST_CARD_BYTES)
        _ScoreCard.model_validate(card)
    except FileNotFoundError:
        raise BundleError(f"{str(path)!r} does not exist; the run folder is incomplete") from None
    except (OSError, ValueError) as error:
        reason = _in_one_line(error) if isinstance(error, ValidationError) else error
        raise BundleError(
            f"{str(path)!r} cannot be read: {reason}; remove it to write a new one"
        ) from None
    return card


def _in_one_line(error: ValidationError) -> str:
    problem = error.errors()[0]
    return ": ".join((*map(str, problem["loc"]), problem["msg"]))


def update_score_card(
    folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> dict[str, Any]:
    """Replace the score card by `change(card)` while other processes wait; return the new one."""
    with one_at_a_time(folder):
        path = folder / SCORE_CARD
        card = change(read_score_card(folder) if path.exists() else {})
        write_json(path, card)
    return card
