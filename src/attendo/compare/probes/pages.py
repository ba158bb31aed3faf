"""Findings as a document: every claim with its result, its numbers and its plots."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from attendo.compare.probes.finding import Check, Finding, Rows
from attendo.compare.probes.pictures import draw_finding
from attendo.compare.report.document import (
    Bullets,
    Code,
    Document,
    Heading,
    Paragraph,
    Part,
    Pictures,
    Table,
)
from attendo.compare.report.wording import timed

HELD = {True: "Confirmed", False: "Not confirmed"}


def compose_page(findings: Sequence[Finding]) -> Document:
    """Put all findings on one page, with a summary at the top."""
    machines = {f"{one.machine['hardware']}, torch {one.machine['torch']}" for one in findings}
    n_seconds = sum(finding.seconds for finding in findings)
    return Document(
        title="Probes: claims about attention, tested",
        subtitle=(
            "Common claims about attention, each tested by a small experiment. "
            f"{'; '.join(sorted(machines))}; {timed(n_seconds)} in total."
        ),
        parts=[
            Heading("Summary"),
            Bullets([f"{one.title}: {verdict_of(one)}" for one in findings]),
            *(part for finding in findings for part in (Heading(finding.title), *_parts(finding))),
        ],
    )


def compose_finding(finding: Finding) -> Document:
    """Give a finding a document of its own."""
    return Document(finding.title, f"{finding.claim}.", list(_parts(finding, with_claim=False)))


def verdict_of(finding: Finding) -> str:
    """Return the result of a claim, with the parts that were not confirmed."""
    n_held, n_all = sum(check.holds for check in finding.checks), len(finding.checks)
    failed = [check.claim for check in finding.checks if not check.holds]
    said = f"{finding.verdict}, {n_held} of {n_all} checks."
    return f"{said} Not confirmed: {'; '.join(failed)}." if failed else said


def told(check: Check) -> str:
    """Return a check as a sentence: the claim and what was measured."""
    return f"{HELD[check.holds]}: {check.claim}. Measured: {check.measured}."


def _parts(finding: Finding, *, with_claim: bool = True) -> Iterator[Part]:
    if with_claim:
        yield Paragraph(f"Claim: {finding.claim}.")
    yield Paragraph(f"Result: {verdict_of(finding)}")
    yield Bullets([told(check) for check in finding.checks])
    if finding.panels:
        yield Pictures(finding.method, draw_finding(finding), is_wide=True)
    for table in finding.tables:
        yield _table(table)
    if finding.notes:
        yield Bullets(list(finding.notes))
    yield Code(_settings(finding))


def _table(rows: Rows) -> Table:
    cells = [["–" if cell is None else str(cell) for cell in row] for row in rows.rows]
    return Table(rows.caption, list(rows.columns), cells)


def _settings(finding: Finding) -> str:
    sizes = ", ".join(f"{key} = {value}" for key, value in finding.settings.items())
    said = f"{timed(finding.seconds)} on {finding.machine['hardware']} with {sizes}"
    lines = wrap(said, width=96, initial_indent="# ", subsequent_indent="# ")
    return "\n".join([finding.command, *lines])
