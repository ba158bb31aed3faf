"""Findings as a document: every claim with its verdict, its numbers and its pictures."""

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

HELD = {True: "As claimed", False: "Not as claimed"}


def compose_page(findings: Sequence[Finding]) -> Document:
    """Put all findings on one page, and what came out of each first."""
    machines = {f"{one.machine['hardware']}, torch {one.machine['torch']}" for one in findings}
    n_seconds = sum(finding.seconds for finding in findings)
    return Document(
        title="Claims about attention, put to the test",
        subtitle=(
            "Sentences that every introduction to attention has, and what small experiments with "
            f"real parts say of them. {'; '.join(sorted(machines))}; all together "
            f"{timed(n_seconds)}."
        ),
        parts=[
            Heading("In short"),
            Bullets([f"{one.title}: {verdict_of(one)}" for one in findings]),
            *(part for finding in findings for part in (Heading(finding.title), *_parts(finding))),
        ],
    )


def compose_finding(finding: Finding) -> Document:
    """Give a finding a document of its own."""
    return Document(finding.title, f"{finding.claim}.", list(_parts(finding, with_claim=False)))


def verdict_of(finding: Finding) -> str:
    """Say what came of a claim, and where it failed."""
    n_held, n_all = sum(check.holds for check in finding.checks), len(finding.checks)
    failed = [check.claim for check in finding.checks if not check.holds]
    said = f"{finding.verdict}, {n_held} of {n_all} points as claimed."
    return f"{said} Not as claimed: {'; '.join(failed)}." if failed else said


def told(check: Check) -> str:
    """Say what was claimed, and what was measured."""
    return f"{HELD[check.holds]}: {check.claim}. Measured: {check.measured}."


def _parts(finding: Finding, *, with_claim: bool = True) -> Iterator[Part]:
    if with_claim:
        yield Paragraph(f"The claim: {finding.claim}.")
    yield Paragraph(f"What came out: {verdict_of(finding)}")
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
