"""Everything that a comparison leaves for its readers: a page, a text, pictures and numbers."""

from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import attendo
from attendo.compare.findings import Findings
from attendo.compare.report.composing import Making, compose
from attendo.compare.report.html import to_html
from attendo.compare.report.markdown import PLOTS, to_markdown
from attendo.files import write_json, write_text

PAGE = "report.html"


def write_report(findings: Findings, command: str, folder: Path) -> Path:
    """Write report.html, report.md with its plots, and report.json; returns the page."""
    machine = findings.systems[0].machine
    versions = {
        "attendo": attendo.__version__,
        "torch": machine["torch"],
        "Python": machine["python"],
        "sacrebleu": version("sacrebleu"),
    }
    making = Making(command, versions, datetime.now().astimezone(), str(folder))
    document = compose(findings, making)
    (folder / PLOTS).mkdir(exist_ok=True)
    for old in (folder / PLOTS).glob("*.svg"):  # of an earlier report
        old.unlink()
    for plot in document.plots:
        write_text(folder / PLOTS / f"{plot.name}.svg", plot.svg)
    write_text(folder / "report.md", to_markdown(document))
    write_text(folder / PAGE, to_html(document))
    made = {"command": command, "versions": versions, "date": making.date.isoformat()}
    write_json(folder / "report.json", {**made, **findings.to_dict()})
    return folder / PAGE
