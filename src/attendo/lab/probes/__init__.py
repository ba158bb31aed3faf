"""Probes: experiments that isolate one claim each (`attendo compare --probe NAME`).

A probe states a claim as a tutorial would, makes a small experiment with the parts of this package,
and returns a finding: numbers, plots, and for every part of the claim whether it held.
"""

from collections.abc import Sequence
from pathlib import Path

from attendo.config import choose
from attendo.errors import ConfigError
from attendo.lab.probes.extrapolation import Extrapolation
from attendo.lab.probes.gradients import Gradients
from attendo.lab.probes.heads import Heads
from attendo.lab.probes.long import Long
from attendo.lab.probes.order import Order
from attendo.lab.probes.probe import Finding, Probe, Settings
from attendo.lab.probes.recall import Recall
from attendo.lab.probes.report import make_folder, write_finding, write_page
from attendo.lab.probes.scaling import Scaling
from attendo.lab.probes.speed import Speed
from attendo.lab.probes.table1 import Table1
from attendo.reporter import Reporter

__all__ = ["PROBES", "Finding", "Probe", "Settings", "choose_probes", "run_probes"]

PROBES: dict[str, type[Probe]] = {
    probe.name: probe
    for probe in (
        Recall, Gradients, Speed, Table1, Order, Extrapolation, Scaling, Heads, Long,
    )
}  # fmt: skip


def choose_probes(names: Sequence[str], *, thorough: bool = False) -> list[Probe]:
    """Find probes by their names, several of them joined by commas; all of them by "all".

    Raises:
        ConfigError: No probe has such a name, or none was named.
    """
    given = [name.strip() for joined in names for name in joined.split(",")]
    if not given:
        raise ConfigError(f"--probe is missing; choose from: {', '.join(PROBES)}, all")
    for name in given:
        choose({**PROBES, "all": None}, name, "--probe")
    wanted = [name for name in PROBES if name in given or "all" in given]
    return [PROBES[name].thorough() if thorough else PROBES[name]() for name in wanted]


def run_probes(
    probes: Sequence[Probe], folder: Path, settings: Settings, reporter: Reporter
) -> tuple[list[Finding], Path]:
    """Run probes one after the other, each written as soon as it is done; returns the page, too."""
    make_folder(folder)
    findings = []
    for probe in probes:
        reporter.say(f"{probe.name}: {probe.claim}")
        findings.append(probe.run(settings, reporter))
        write_finding(findings[-1], folder)
        page = write_page(list(PROBES), folder)
    return findings, page
