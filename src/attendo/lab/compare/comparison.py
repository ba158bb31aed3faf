"""A whole comparison: plan, prepare, train, test, measure, report; or the rest of it."""

import fcntl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from attendo.errors import ConfigError, TrainingError
from attendo.files import explained
from attendo.lab.compare.findings import UNEVEN, Findings, find
from attendo.lab.compare.folders import Ready, prepare_all
from attendo.lab.compare.measure import measure_system
from attendo.lab.compare.plan import (
    LOCK,
    MEASURED,
    OWN_STEPS,
    Budget,
    Plan,
    check_folder,
    keep_plan,
    make_plan,
)
from attendo.lab.compare.processes import work
from attendo.lab.compare.report import write_report
from attendo.lab.compare.worker import DECODING
from attendo.reporter import Reporter

PATIENCE = 60
"""Seconds that are waited for the process of an earlier call, which saves its last step."""


class Compared(NamedTuple):
    """The findings of a comparison, and the page that presents them."""

    findings: Findings
    page: Path


class Place(NamedTuple):
    """The folder of a comparison, and its reporter."""

    folder: Path
    lock: IO[str]
    reporter: Reporter

    def measured(self, name: str) -> Path:
        """Return the folder for the measurements of a system."""
        path = self.folder / MEASURED / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def compare(
    names: Sequence[str],
    overrides: Mapping[str, Any],
    folder: Path,
    device: str,
    *,
    budget: Budget = OWN_STEPS,
    watts: float | None = None,
    command: str = "",
    reporter: Reporter | None = None,
) -> Compared:
    """Train recipes on one corpus with one budget, and report what came of it.

    Args:
        names: Presets or TOML files; none for the families of the demo, some seconds each.
        overrides: Settings for all of them, such as {"data.builtin": 1000}.
        folder: Where runs and report are written; an interrupted comparison continues there.
        device: cpu, cuda or cuda:1.
        budget: What each may spend; without one, the steps of its recipe.
        watts: Power for the estimate of energy.
        command: The same call on the command line, for the report.
        reporter: Who is shown what happens.

    Raises:
        AttendoError: Recipes, data or folder are invalid; the message names what is wrong.
        Interrupted: Ctrl-C was pressed; all is saved, and the same call continues from there.
    """
    plan = make_plan(names, overrides, budget, device)
    with explained(folder):
        check_folder(folder)
        folder.mkdir(parents=True, exist_ok=True)
    reporter = reporter or Reporter()
    with _locked(folder, reporter) as lock:
        with explained(folder):
            keep_plan(plan, folder)
        place = Place(folder, lock, reporter)
        ready = prepare_all(plan, folder, reporter)
        _warn_of_sizes(ready, reporter)
        failed = _train_all(ready, plan, place)
        findings = _measure_all(ready, plan, failed, watts, place)
        page = write_report(findings, command, folder)
    return Compared(findings, page)


@contextmanager
def _locked(folder: Path, reporter: Reporter) -> Iterator[IO[str]]:
    """Lock the folder; a worker without its parent may hold it until it has saved."""
    with (folder / LOCK).open("a") as lock:
        deadline = time.monotonic() + PATIENCE
        if not _acquire(lock):
            reporter.say(f"waiting for another process that is running in {folder}")
        while not _acquire(lock):
            if time.monotonic() > deadline:
                raise ConfigError(
                    f"another 'attendo compare' is running in {str(folder)!r}; "
                    "wait for it, or give another --out"
                )
            time.sleep(0.2)
        yield lock


def _acquire(lock: IO[str]) -> bool:
    """Acquire a lock without waiting, or keep it; return whether that succeeded."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _warn_of_sizes(ready: list[Ready], reporter: Reporter) -> None:
    """Warn before any training if the models differ in size."""
    smallest, *_, largest = sorted(ready, key=lambda one: one.n_parameters)
    if largest.n_parameters > UNEVEN * smallest.n_parameters:
        reporter.say(
            f"note: {largest.system.name} has {largest.n_parameters:,} parameters and "
            f"{smallest.system.name} {smallest.n_parameters:,}; "
            "--budget-parameters makes them equal"
        )


def _train_all(ready: list[Ready], plan: Plan, place: Place) -> dict[str, str]:
    """Train and test, one system after the other; returns those that failed, and why."""
    failed: dict[str, str] = {}
    batch_size = min(one.system.recipe.decoding.batch_size for one in ready)
    for number, one in enumerate(ready, start=1):
        name, recipe = one.system
        title = f"{name} ({number} of {len(ready)})"
        if (place.measured(name) / DECODING).exists():
            place.reporter.say(f"{title}: done")
            continue
        place.reporter.say(f"{title}: {one.n_parameters:,} parameters")
        try:
            settings = plan.budget.settings(name, recipe.training)
            _work(one, plan, place, title, settings=settings, batch_size=batch_size)
        except TrainingError as error:
            failed[name] = str(error)
            place.reporter.say(f"{title} failed: {error}")
    return failed


def _work(one: Ready, plan: Plan, place: Place, title: str, **more: Any) -> None:
    measured = place.measured(one.system.name)
    job = {
        "run": str(one.run.resolve()),
        "measured": str(measured.resolve()),
        "device": plan.device,
        **more,
    }
    work(job, measured / "worker.log", place.reporter, title, place.lock)


def _measure_all(
    ready: list[Ready], plan: Plan, failed: dict[str, str], watts: float | None, place: Place
) -> Findings:
    done = [one for one in ready if one.system.name not in failed]
    if len(done) < 2:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        raise TrainingError(f"fewer than two systems were trained. {reasons}")
    place.reporter.say("comparing")
    measured = [
        measure_system(
            one.system.name,
            one.system.recipe.description,
            one.run,
            place.measured(one.system.name),
            watts,
        )
        for one in done
    ]
    return find(measured, plan.data, plan.budget, failed, _count_tests(done[0]))


def _count_tests(one: Ready) -> int:
    with (one.data / "test.jsonl").open(encoding="utf-8") as lines:
        return sum(1 for _ in lines)
