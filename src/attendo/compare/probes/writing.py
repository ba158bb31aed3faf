"""Where findings are kept: one JSON and one text for each, and a page for all of a folder."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from attendo.compare.probes.finding import Finding
from attendo.compare.probes.pages import compose_finding, compose_page
from attendo.compare.report.document import Document
from attendo.compare.report.html import to_html
from attendo.compare.report.markdown import PLOTS, to_markdown
from attendo.errors import BundleError
from attendo.files import explained, write_json, write_text

PAGE = "probes.html"


def make_folder(folder: Path) -> None:
    """Make the folder for findings, before anything is found that could be lost."""
    with explained(folder):
        (folder / PLOTS).mkdir(parents=True, exist_ok=True)


def write_finding(finding: Finding, folder: Path) -> None:
    """Write probe-NAME.json, probe-NAME.md and the pictures of it."""
    make_folder(folder)
    document = compose_finding(finding)
    _write_plots(document, folder)
    write_text(folder / f"probe-{finding.probe}.md", to_markdown(document))
    write_json(folder / f"probe-{finding.probe}.json", finding.model_dump(mode="json"))


def write_page(names: Sequence[str], folder: Path) -> Path:
    """Write one page of all findings of a folder, in the order of the names; returns it."""
    paths = [folder / f"probe-{name}.json" for name in names]
    findings = [read_finding(path) for path in paths if path.exists()]
    write_text(folder / PAGE, to_html(compose_page(findings)))
    return folder / PAGE


def read_finding(path: Path) -> Finding:
    """Read what an earlier probe has found.

    Raises:
        BundleError: It is not what a probe has written.
    """
    try:
        return Finding.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise BundleError(f"{str(path)!r} cannot be read: {reason}; give another --out") from None


def _write_plots(document: Document, folder: Path) -> None:
    for plot in document.plots:
        write_text(folder / PLOTS / f"{plot.name}.svg", plot.svg)
