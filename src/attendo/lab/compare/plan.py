"""What is compared with what, and with which budget: checked before anything runs."""

import json
import math
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from attendo.config import DataConfig, Recipe, TrainingConfig, load_recipe, make_recipe
from attendo.errors import BundleError, ConfigError
from attendo.files import write_json
from attendo.training.kinds import check_kinds, check_tokenizers

VALIDATIONS = 8
"""Points of a learning curve, at least, where a budget decides when a training ends."""


class Budget(NamedTuple):
    """The same for all: target tokens, seconds of training, or each recipe's steps.

    With a budget of parameters models are made wider or narrower to have as many.
    """

    kind: Literal["steps", "tokens", "seconds"] = "steps"
    amount: float = 0.0
    n_parameters: int | None = None

    def __str__(self) -> str:
        units = {"tokens": "target tokens", "seconds": "seconds of training"}
        spent = "the steps of each recipe"
        if self.kind != "steps":
            spent = f"{self.amount:,.10g} {units[self.kind]} each"
        size = f", and about {self.n_parameters:,} parameters each" if self.n_parameters else ""
        return spent + size

    def settings(self, name: str, training: TrainingConfig) -> dict[str, Any]:
        """Return the settings with which a recipe's training ends with the budget.

        Raises:
            ConfigError: The budget is smaller than one step.
        """
        if self.kind == "seconds":
            return {"training.seconds": self.amount, **_intervals(training, training.steps)}
        if self.kind == "steps":
            return {}
        steps = int(self.amount // training.batch_tokens)
        if steps < 1:
            raise ConfigError(
                f"--budget-tokens {self.amount:.10g} is too little for {name!r}: one step takes "
                f"{training.batch_tokens:,} (training.batch_tokens); give more, or a smaller recipe"
            )
        limit = {"training.seconds": 0.0} if training.seconds else {}
        return fitted(training, steps) | limit


OWN_STEPS = Budget()


def choose_budget(tokens: int | None, seconds: float | None, n_parameters: int | None) -> Budget:
    """Return the budget of the given options: one of the first two, or neither."""
    if tokens is not None and seconds is not None:
        raise ConfigError("--budget-tokens and --budget-seconds: give one of them, not both")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ConfigError(f"--budget-seconds {seconds:g}: give a number of seconds above 0")
    if tokens is not None:
        return Budget("tokens", float(tokens), n_parameters)
    if seconds is not None:
        return Budget("seconds", seconds, n_parameters)
    return Budget(n_parameters=n_parameters)


def fitted(training: TrainingConfig, steps: int) -> dict[str, Any]:
    """Return the settings with which a recipe's schedule, stretched or shrunk, ends at a step.

    The warm-up keeps its share of all steps and the learning rate its highest value.
    """
    if steps == training.steps:
        return {}
    warmup = _scaled(training.warmup_steps, steps / training.steps)
    settings: dict[str, Any] = {
        "training.steps": steps,
        "training.warmup_steps": warmup,
        **_intervals(training, steps),
    }
    if training.schedule == "paper" and training.warmup_steps:
        # Its highest rate is learning_rate · (d_model · warmup_steps)^-0.5.
        share = math.sqrt(warmup / training.warmup_steps)
        settings["training.learning_rate"] = training.learning_rate * share
    return settings


def _intervals(training: TrainingConfig, steps: int) -> dict[str, int]:
    """Return how often to validate, save and log in so many steps."""
    every = math.ceil(steps / max(VALIDATIONS, round(training.steps / training.validate_every)))
    return {
        "training.validate_every": every,
        "training.save_every": min(training.save_every, max(1, 2 * every)),
        "training.log_every": min(training.log_every, every),
    }


def _scaled(warmup: int, ratio: float) -> int:
    return max(1, round(warmup * ratio)) if warmup else 0


DEFAULT_RECIPES = ("demo-gru", "demo-lstm-attention", "demo-conv", "demo-transformer")
"""What is compared where no recipes are given: model families, on the built-in corpus."""

DEFAULT_BUDGET = Budget("seconds", 90.0)
"""Their budget: the whole comparison takes less than ten minutes on two cores."""

PLAN = "comparison.json"
"""The file that identifies the comparison of a folder."""

LOCK = ".lock"
"""The file by which a call keeps others out."""

RUNS, MEASURED = "runs", "measured"
"""Folders for what each system learns, and for what is measured of it."""

FILES = ("source", "target", "pairs", "files")


class System(NamedTuple):
    """One of those that are compared."""

    name: str
    recipe: Recipe


@dataclass(frozen=True, slots=True)
class Plan:
    """All that the runs of a comparison depend on."""

    systems: tuple[System, ...]
    budget: Budget
    device: str

    @property
    def data(self) -> DataConfig:
        """Return the settings of the data, which are the same for all."""
        return self.systems[0].recipe.data

    @property
    def task(self) -> str:
        """What is learned: the same for all."""
        return self.systems[0].recipe.task

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "recipes": {system.name: _values(system.recipe) for system in self.systems},
            "budget": self.budget._asdict(),
            "device": self.device,
        }


def make_plan(
    names: Sequence[str], overrides: Mapping[str, Any], budget: Budget, device: str
) -> Plan:
    """Read the recipes and refuse what could not be compared.

    Without names these are the default recipes and, unless a budget is given, their seconds.

    Raises:
        ConfigError: A recipe is unknown or wrong, two of them have the same name or read
            different corpora, or the budget does not pay for a step.
    """
    if not names and budget.kind == "steps":
        budget = DEFAULT_BUDGET._replace(n_parameters=budget.n_parameters)
    names = list(names) or list(DEFAULT_RECIPES)
    overrides = _with_files_first(overrides)
    _check_budget(budget, overrides)
    systems = tuple(System(_short(name), _settled(name, overrides)) for name in names)
    _check_names(names, systems)
    _check_data(systems)
    for name, recipe in systems:
        budget.settings(name, recipe.training)
    return Plan(systems, budget, device)


def check_folder(folder: Path) -> None:
    """Raise an error unless a folder is new or that of a comparison.

    Raises:
        ConfigError: There is something else.
    """
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is a file; give a folder as --out")
    others = folder.exists() and [path for path in folder.iterdir() if path.name != LOCK]
    if others and not (folder / PLAN).exists():
        raise ConfigError(
            f"{str(folder)!r} is not empty and holds no comparison; give another --out"
        )


def keep_plan(plan: Plan, folder: Path) -> None:
    """Write the plan into its folder, or make sure that the folder's is the same.

    Until a system has learned something, another plan may take the place of the first.

    Raises:
        ConfigError: The folder holds another comparison.
    """
    path = folder / PLAN
    if path.exists():
        difference = _difference(_read(path), json.loads(json.dumps(plan.to_dict())))
        if not difference:
            return
        if any(folder.glob(f"{RUNS}/*/log.jsonl")):
            raise ConfigError(
                f"{str(folder)!r} holds another comparison: {difference}. Give the same arguments "
                "to continue it, or another --out to start a new one"
            )
        for name in (RUNS, MEASURED):
            shutil.rmtree(folder / name, ignore_errors=True)
    write_json(path, plan.to_dict())


def _with_files_first(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the built-in corpus of a recipe by given files."""
    if any(f"data.{key}" in overrides for key in FILES):
        return {"data.builtin": 0, **overrides}
    return dict(overrides)


def _short(name: str) -> str:
    """Return the name of a system: that of its preset or its file."""
    return Path(name).stem if name.endswith(".toml") else Path(name).name


def _settled(name: str, overrides: Mapping[str, Any]) -> Recipe:
    recipe = load_recipe(name, overrides)
    if recipe.auto:
        raise ConfigError(
            f"the recipe {name!r} chooses its settings from the data; start a run with it "
            "('attendo train') and compare the recipe.toml of that run"
        )
    if recipe.start is not None:
        raise ConfigError(
            f"the recipe {name!r} starts with the parameters of {recipe.start!r}, but a comparison "
            "trains all systems from scratch; remove 'start' from it"
        )
    check_kinds(recipe)
    check_tokenizers(recipe.tokenizer)
    return recipe


def _check_budget(budget: Budget, overrides: Mapping[str, Any]) -> None:
    """Raise an error if a setting contradicts the budget."""
    decided: dict[str, str] = {}
    if budget.kind != "steps":
        decided = dict.fromkeys(("training.steps", "training.seconds"), budget.kind)
    if budget.n_parameters:
        decided |= {"model.d_model": "parameters", "model.d_ff": "parameters"}
    for key, kind in decided.items():
        if key in overrides:
            raise ConfigError(
                f"--budget-{kind} and --set {key} contradict each other, since the budget sets "
                f"{key}; leave one of them out"
            )


def _check_names(names: Sequence[str], systems: Sequence[System]) -> None:
    if len(systems) < 2:
        raise ConfigError(
            f"{names[0]!r} alone cannot be compared: give two recipes or more, or none for "
            "the default ones"
        )
    [(name, count)] = Counter(system.name for system in systems).most_common(1)
    if count > 1:
        same = [given for given in names if _short(given) == name]
        raise ConfigError(
            f"{', '.join(map(repr, same))} would all be called {name!r}: give every recipe once, "
            "and a copy with other settings a file name of its own"
        )


def _check_data(systems: Sequence[System]) -> None:
    """Raise an error unless all read the same pairs; only packing may differ."""
    first, *others = systems
    for other in others:
        if first.recipe.task != other.recipe.task:
            raise ConfigError(
                f"{first.name!r} and {other.name!r} have different tasks: {first.recipe.task} and "
                f"{other.recipe.task}; compare recipes of one task"
            )
        for key in DataConfig.model_fields:
            here, there = getattr(first.recipe.data, key), getattr(other.recipe.data, key)
            if key != "layout" and here != there:
                raise ConfigError(
                    f"{first.name!r} and {other.name!r} have different corpora: data.{key} is "
                    f"{here!r} in one and {there!r} in the other; set it for all, "
                    f"with --set data.{key}=... or the options for files"
                )


def _values(recipe: Recipe) -> dict[str, Any]:
    """Return the settings of a recipe that a run depends on, as plain values."""
    return recipe.model_dump(mode="json", exclude={"description"})


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(kept, dict) or not isinstance(kept.get("recipes"), dict):
            raise ValueError("not the plan of a comparison")
    except (OSError, ValueError) as error:
        raise BundleError(f"{str(path)!r} cannot be read: {error}; give another --out") from None
    return kept


def _difference(kept: dict[str, Any], given: dict[str, Any]) -> str:
    """Return the first difference between two plans, or an empty text."""
    before, now = kept["recipes"], given["recipes"]
    if list(before) != list(now):
        return f"it compares {', '.join(before)}, not {', '.join(now)}"
    for name in before:
        # Settings that a later version has added are read with their defaults.
        if key := _first_other(_values(make_recipe(before[name], PLAN)), now[name]):
            return f"the recipe {name!r} had another {key}"
    for key, words in (("budget", _budget_of), ("device", str)):
        if (was := words(kept.get(key))) != (now_is := words(given[key])):
            return f"its {key} was {was}, not {now_is}"
    return ""


def _first_other(before: dict[str, Any], now: dict[str, Any], within: str = "") -> str:
    """Find the dotted key of the first value that differs."""
    for key in {**before, **now}:
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if found := _first_other(old, new, f"{within}{key}."):
                return found
        elif old != new:
            return f"{within}{key}"
    return ""


def _budget_of(kept: Any) -> str:
    """Return a saved budget, perhaps of an earlier version that lacks some of its fields."""
    if not isinstance(kept, dict):
        return str(kept)
    fields = {("n_parameters" if key == "n_weights" else key): kept[key] for key in kept}
    return str(Budget(**fields) if fields.keys() <= set(Budget._fields) else kept)
