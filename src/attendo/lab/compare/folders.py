"""Run folders that are ready to be trained: the same pairs for all, models of the right size.

What is made here is what `attendo train` makes before its first step, so that it can continue.
"""

import math
import os
import shutil
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from attendo.bundle import RECIPE, load_task, parameters_file, parameters_of, save_task
from attendo.config import AnyModelConfig, Recipe, TransformerConfig
from attendo.data.texts import Texts, open_texts
from attendo.errors import BundleError, ConfigError
from attendo.files import clear_leftovers, explained, write_folder
from attendo.lab.compare.plan import RUNS, Plan, System
from attendo.models.outline import shapes_only
from attendo.reporter import Reporter
from attendo.tasks import TASKS, Task, Translation
from attendo.training.prepare import make_task, prepare, sentences_per_source, set_sentences

MULTIPLES = (8, 2)
"""Of which widths are: of 8, as matrix units are slow with others; of 2 where that is coarse."""

NEAR = 0.03
"""Relative difference from the given number of parameters that is accepted."""

WIDEST = 2**14
"""Width beyond which a number of parameters is taken for a mistake."""

Count = Callable[[AnyModelConfig], int]
"""Returns the number of parameters of a model."""


def resized(name: str, model: AnyModelConfig, n_parameters: int, count: Count) -> AnyModelConfig:
    """Change the width of a model until it has about so many parameters.

    All widths change alike, the inner ones of feed-forward networks within a half; layers,
    heads and everything else are not changed.

    Raises:
        ConfigError: Even the narrowest has more, or the widest fewer.
    """

    def miss(found: AnyModelConfig) -> float:
        return abs(count(found) / n_parameters - 1)

    for multiple in MULTIPLES:
        around = _around(name, model, n_parameters, count, multiple)
        refined = [_refined(one, n_parameters, count, multiple) for one in around]
        nearest = min(refined, key=miss)
        if miss(nearest) <= NEAR:
            break
    return nearest


def _around(
    name: str, model: AnyModelConfig, n_parameters: int, count: Count, multiple: int
) -> list[AnyModelConfig]:
    """Return the next narrower and the next wider model."""
    # Heads share the width, and rotary embeddings rotate pairs.
    shares = 2 * model.n_heads if isinstance(model, TransformerConfig) else 1
    step = widest = math.lcm(multiple, shares)

    @cache
    def parameters(width: int) -> int:
        return count(_with_width(model, width, multiple))

    while parameters(widest) < n_parameters and widest < WIDEST:
        widest *= 2
    if not parameters(step) <= n_parameters <= parameters(widest):
        what, end = ("little", step) if n_parameters < parameters(step) else ("much", widest)
        raise ConfigError(
            f"--budget-parameters {n_parameters} is too {what} for {name!r}, which has "
            f"{parameters(end):,} parameters with model.d_model = {end}"
        )
    # The wider a model, the more parameters it has, so the width is found by bisection.
    widths = range(step, widest + 1, step)
    place = bisect_left(widths, n_parameters, key=parameters)
    return [_with_width(model, w, multiple) for w in widths[max(0, place - 1) : place + 1]]


def _with_width(model: AnyModelConfig, width: int, multiple: int) -> AnyModelConfig:
    """Return a model with another width, and the inner width of its layers in proportion."""
    if not isinstance(model, TransformerConfig):
        return _changed(model, d_model=width)
    inner = _rounded(model.d_ff * width / model.d_model, multiple)
    return _changed(model, d_model=width, d_ff=inner)


def _refined(
    model: AnyModelConfig, n_parameters: int, count: Count, multiple: int
) -> AnyModelConfig:
    """Adjust the inner width alone, as the width itself must suit the heads."""
    if not isinstance(model, TransformerConfig):
        return model
    here = count(model)
    slope = count(_changed(model, d_ff=model.d_ff + multiple)) - here
    most = model.d_ff / 2
    more = max(-most, min(most, (n_parameters - here) * multiple / slope))
    return _changed(model, d_ff=_rounded(model.d_ff + more, multiple))


def _rounded(width: float, multiple: int) -> int:
    return max(1, round(width / multiple)) * multiple


def _changed(model: AnyModelConfig, **widths: int) -> AnyModelConfig:
    return type(model).model_validate({**model.model_dump(), **widths})


Fit = Callable[[System, Task], Recipe]
"""Resizes the model of a recipe to the common size; the vocabulary must be known for it."""


class Ready(NamedTuple):
    """A system whose data are prepared."""

    system: System
    run: Path
    n_parameters: int

    @property
    def data(self) -> Path:
        """Return the folder of the encoded pairs."""
        return self.run / "state" / "data"


def prepare_all(plan: Plan, folder: Path, reporter: Reporter) -> list[Ready]:
    """Create the run of every system, unless it exists; all must have the same test pairs."""

    @cache
    def texts() -> Texts:
        task = TASKS[plan.task]
        found = open_texts(plan.data, task.record_type, task.convert)
        reporter.say(
            f"data: {found.n_train:,} training, {len(found.valid):,} validation, "
            f"{len(found.test):,} test records"
        )
        for reason, count in found.report.dropped.items():
            reporter.say(f"dropped {count:,} lines: {reason}")
        return found

    @cache
    def sentences() -> int:
        return sentences_per_source(texts())

    def fit(system: System, task: Task) -> Recipe:
        recipe = _resized(system, task, plan.budget.n_parameters)
        if recipe.model != system.recipe.model:
            before, now = system.recipe.model.d_model, recipe.model.d_model
            reporter.say(f"{system.name}: model.d_model = {now} instead of {before}")
        return set_sentences(recipe, sentences) if plan.task == Translation.name else recipe

    ready: list[Ready] = []
    for system in plan.systems:
        run = folder / RUNS / system.name
        if not _is_started(run):
            same = (one for one in ready if _needs(one.system) == _needs(system))
            if first := next(same, None):
                _start_like(first, system, run, fit)
            else:
                _start(system, texts(), run, fit, reporter)
        ready.append(Ready(system, run, count_parameters(run)))
    _check_split(ready)
    return ready


def count_parameters(run: Path) -> int:
    """Count the parameters of a system, without making it."""
    recipe, task = load_task(run)
    return _count(recipe.model, task)


def _count(config: AnyModelConfig, task: Task) -> int:
    with shapes_only():
        model = task.build(config)
    return sum(one.numel() for one in parameters_of(model).values())


def _resized(system: System, task: Task, n_parameters: int | None) -> Recipe:
    """Resize the model of a recipe to the common number of parameters, if one is given."""
    name, recipe = system
    if n_parameters is None:
        return recipe
    model = resized(name, recipe.model, n_parameters, lambda config: _count(config, task))
    return recipe.model_copy(update={"model": model})


def _is_started(run: Path) -> bool:
    has_begun = (run / "state" / "data").exists() or parameters_file(run) is not None
    return (run / RECIPE).exists() and has_begun


def _needs(system: System) -> tuple[Any, ...]:
    """Return the settings that the encoded pairs depend on, besides the corpus."""
    config = system.recipe.tokenizer
    return config, system.recipe.training.seed if config.dropout else None


def _start(system: System, texts: Texts, run: Path, fit: Fit, reporter: Reporter) -> None:
    _make_folder(run)
    task = make_task(system.recipe, texts)
    recipe = fit(system, task)  # before the work, for it may be impossible
    with reporter.bar(f"{system.name}: encoding", texts.n_train) as advance:
        report = prepare(
            texts, task, system.recipe, run / "state" / "data", lambda n: advance(n, "")
        )
    for message in report.messages():
        reporter.say(f"{system.name}: {message}")
    save_task(run, recipe, task)


def _start_like(first: Ready, system: System, run: Path, fit: Fit) -> None:
    """Link vocabulary and encoded pairs of another system with the same settings."""
    _make_folder(run)
    _, task = load_task(first.run)
    recipe = fit(system, task)
    write_folder(run / "state" / "data", lambda temporary: _link_all(first.data, temporary))
    save_task(run, recipe, task)


def _make_folder(run: Path) -> None:
    """Create an empty folder; an incomplete one is removed."""
    with explained(run):
        (run / "state").mkdir(parents=True, exist_ok=True)
        clear_leftovers(run / "state")
        shutil.rmtree(run / "state" / "data", ignore_errors=True)


def _link_all(there: Path, here: Path) -> None:
    """Create hard links to files, or copies; the files are never changed again."""
    for file in there.iterdir():
        try:
            os.link(file, here / file.name)
        except OSError:
            shutil.copy2(file, here / file.name)


def _check_split(ready: list[Ready]) -> None:
    """Raise an error unless all systems are validated and tested on the same pairs."""
    with_data = [one for one in ready if one.data.exists()]  # a trained run can do without
    for first, other in pairwise(with_data):
        for name in ("valid.jsonl", "test.jsonl"):
            if (first.data / name).read_bytes() != (other.data / name).read_bytes():
                raise BundleError(
                    f"{first.system.name!r} and {other.system.name!r} have different pairs in "
                    f"state/data/{name}: the files have changed; start again with another --out"
                )
