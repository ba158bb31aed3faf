"""attendo compare: several recipes, one corpus, one budget, one report."""

from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import (
    Data,
    Device,
    Pairs,
    Settings,
    Source,
    Target,
    TestData,
    TestPairs,
    TestSource,
    TestTarget,
    ValidData,
    ValidPairs,
    ValidSource,
    ValidTarget,
    between,
    file_settings,
)

if TYPE_CHECKING:
    from attendo.lab.compare.findings import Findings

SHOWN = {
    "system", "BLEU", "parameters", "training time", "training tokens/s",
    "decoding sentences/s", "memory",
}  # fmt: skip
"""Columns of the report's table that fit a terminal."""


def compare(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RECIPE...",
            help="Presets ('attendo recipes') or .toml files (default: four demo recipes).",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            metavar="REPORT",
            help="Folder for runs and report (default: runs/compare; probes: runs/probes).",
        ),
    ] = None,
    probe: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run a probe instead: one of the list above, or all."),
    ] = None,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Run the probes in a larger size, for a GPU.")
    ] = False,
    budget_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**15,
            metavar="N",
            help="Training budget per system, in target tokens (with padding).",
        ),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(
            callback=between(0.001, 1e8),
            metavar="S",
            help="Training budget per system, in seconds.",
        ),
    ] = None,
    budget_parameters: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10**12,
            metavar="N",
            help="Parameters per model; its width is changed to fit.",
        ),
    ] = None,
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    data: Data = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    valid_data: ValidData = None,
    test_source: TestSource = None,
    test_target: TestTarget = None,
    test_pairs: TestPairs = None,
    test_data: TestData = None,
    settings: Settings = None,
    watts: Annotated[
        float | None,
        typer.Option(
            callback=between(0.0, 1e6),
            metavar="W",
            help="Power in training, in watts, to estimate the energy.",
        ),
    ] = None,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print all numbers as JSON.")] = False,
) -> None:
    """Train several recipes on one corpus and compare them.

    Every system is trained on the same data with the same budget: target
    tokens, seconds, or the steps of its recipe. With --budget-parameters all
    models have about the same size. Without recipes, four model families are
    trained on the built-in corpus for 90 seconds each. The report
    (report.html, report.md, report.json) contains quality, speed, memory,
    energy and learning curves; for translation also significance, quality by
    sentence length and examples. --set applies to all recipes. Ctrl-C saves;
    the same command continues.

    Probes are small experiments, each for one claim about attention: recall,
    gradients, speed, table1, order, extrapolation, scaling, heads, long. They
    write probes.html. NAME may be several, separated by commas.

    \b
    Examples:
      attendo compare
      attendo compare small my-recipe.toml --source a.en --target a.de --out report
      attendo compare classification mine.toml --data reviews.tsv --out report
      attendo compare demo-transformer demo-gru --budget-tokens 500000 --out report
      attendo compare demo-transformer demo-conv --budget-seconds 60 --out report
      attendo compare demo-lstm demo-conv --budget-tokens 500000 --budget-parameters 1000000
      attendo compare --probe order,heads
      attendo compare --probe all --thorough --device cuda --out probes
    """
    import sys
    from pathlib import Path

    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.errors import command_line
    from attendo.lab.compare.comparison import compare as compare_all
    from attendo.lab.compare.plan import choose_budget
    from attendo.reporter import Console
    from attendo.training.complete import Interrupted

    overrides = file_settings(
        source=source, target=target, pairs=pairs, files=data,
        valid_source=valid_source, valid_target=valid_target, valid_pairs=valid_pairs,
        valid_files=valid_data,
        test_source=test_source, test_target=test_target, test_pairs=test_pairs,
        test_files=test_data,
    )  # fmt: skip
    if probe or thorough:
        others = {
            "the recipes": recipes, "the files": overrides, "--set": settings,
            "--budget-tokens": budget_tokens, "--budget-seconds": budget_seconds,
            "--budget-parameters": budget_parameters, "--watts": watts,
        }  # fmt: skip
        _refuse([name for name, value in others.items() if value not in (None, [], {})])
        _probe(probe or [], out or "runs/probes", device, thorough, as_json=json)
        return
    command = command_line(*(word for word in sys.argv[1:] if word != "--debug"))
    try:
        compared = compare_all(
            recipes or [],
            {**overrides, **parse_overrides(settings or [])},
            Path(out or "runs/compare"),
            str(find_device(device)),
            budget=choose_budget(budget_tokens, budget_seconds, budget_parameters),
            watts=watts,
            command=command,
            reporter=Console(),
        )
    except Interrupted as interrupted:
        typer.echo(f"{interrupted}; continue with: {command}", err=True)
        raise typer.Exit(130) from None
    _print(compared.findings, as_json=json)
    typer.echo(f"report: {compared.page}", err=True)
    if compared.findings.failed:
        raise typer.Exit(1)


def _refuse(given: list[str]) -> None:
    from attendo.errors import ConfigError

    if given:
        raise ConfigError(
            "--probe and --thorough have their own models and data: leave them out, or leave out "
            f"{' and '.join(given)}"
        )


def _probe(names: list[str], out: str, device: str, thorough: bool, *, as_json: bool) -> None:
    import json
    from pathlib import Path

    from attendo.bundle import find_device
    from attendo.lab.probes import Settings, choose_probes, run_probes
    from attendo.lab.probes.report import describe_check, verdict_of
    from attendo.reporter import Console

    probes = choose_probes(names, thorough=thorough)
    findings, page = run_probes(probes, Path(out), Settings(find_device(device)), Console())
    if as_json:
        print(json.dumps([one.model_dump(mode="json") for one in findings], ensure_ascii=False))
    else:
        for finding in findings:
            print(f"{finding.title}: {verdict_of(finding)}")
            print(*(f"- {describe_check(check)}" for check in finding.checks), sep="\n")
    typer.echo(f"report: {page}", err=True)


def _print(findings: "Findings", *, as_json: bool) -> None:
    import json

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from attendo.lab.compare.summary import summarise
    from attendo.lab.compare.tables import main_table

    if as_json:
        print(json.dumps(findings.to_dict(), ensure_ascii=False))
        return
    found = main_table(findings)
    shown = [number for number, title in enumerate(found.columns) if title in SHOWN]
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number in shown:
        title = found.columns[number].replace(" ", "\n")
        table.add_column(title, justify="right" if number else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(*(escape(row[number]) for number in shown))
    console = Console(highlight=False)
    # A file has no width that would count.
    console = console if console.is_terminal else Console(highlight=False, width=200)
    console.print(table)
    for sentence in summarise(findings):
        console.print(f"- {sentence}", markup=False, soft_wrap=True)
