"""attendo distill: a small, fast model learns from a large one."""

from typing import Annotated

import typer

from attendo.cli.options import (
    BatchSize,
    Beam,
    Device,
    Pairs,
    Settings,
    Source,
    Target,
    TestPairs,
    TestSource,
    TestTarget,
    ValidPairs,
    ValidSource,
    ValidTarget,
    file_settings,
)

ShardSize = Annotated[
    int,
    typer.Option(min=1, max=10**6, metavar="N", help="Texts between two saves of translations."),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue what was interrupted.")]


def distill(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of the teacher.")],
    out: Annotated[str, typer.Option(metavar="STUDENT", help="Folder to write the student to.")],
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    text: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="More source sentences, without translations."),
    ] = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    valid_pairs: ValidPairs = None,
    test_source: TestSource = None,
    test_target: TestTarget = None,
    test_pairs: TestPairs = None,
    recipe: Annotated[str, typer.Option(metavar="RECIPE", help="Of the student.")] = "student",
    settings: Settings = None,
    best_of: Annotated[
        int,
        typer.Option(
            min=1, max=64, metavar="N", help="Of N translations take the one nearest the reference."
        ),
    ] = 1,
    originals: Annotated[
        bool, typer.Option("--originals", help="Train on the original pairs, too.")
    ] = False,
    beam: Beam = None,
    batch_size: BatchSize = None,
    shard_size: ShardSize = 4096,
    resume: Resume = False,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Train a small, fast student on the translations of a teacher.

    The teacher translates the sources of the training pairs (those that its
    own recipe names, unless you give others) and the sentences of --text.
    Empty, repeating and far too long or short translations are left out. Then
    the student is trained on the rest, and both are scored on the same test
    pairs. Ctrl-C saves; --resume continues.

    --beam and --batch-size are for the teacher, --recipe and --set for the
    student.

    \b
    Examples:
      attendo distill run --out student
      attendo distill run --pairs all.tsv --text more.en.gz --out student
      attendo distill run --out student --best-of 4 --set training.steps=5000
      attendo distill run --out student --resume
    """
    from pathlib import Path

    from attendo.cli.output import print_scores
    from attendo.config import parse_overrides
    from attendo.errors import ConfigError, command_line
    from attendo.reporter import Console
    from attendo.synthesis.distillation import Lesson, distill
    from attendo.training.complete import Interrupted

    if not out.strip():
        raise ConfigError("--out is empty; give the folder to write the student to")
    given = file_settings(
        source=source, target=target, pairs=pairs,
        valid_source=valid_source, valid_target=valid_target, valid_pairs=valid_pairs,
        test_source=test_source, test_target=test_target, test_pairs=test_pairs,
    )  # fmt: skip
    options = {"beam": max(beam or 4, best_of) if best_of > 1 else beam, "batch_size": batch_size}
    lesson = Lesson(
        data={key.removeprefix("data."): tuple(paths) for key, paths in given.items()},
        texts=text or (),
        best_of=best_of,
        originals=originals,
        options={key: value for key, value in options.items() if value is not None},
        size=shard_size,
    )
    try:
        card = distill(
            Path(run), Path(out), lesson,
            recipe=recipe, settings=parse_overrides(settings or []),
            device=device, resume=resume, reporter=Console(),
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt) as interrupt:
        typer.echo(
            f"{str(interrupt) or 'stopped'}; continue with the same command and --resume", err=True
        )
        raise typer.Exit(130) from None
    print_scores(card, as_json=json)
    typer.echo(
        f"the student is in {out}; try: {command_line('translate', out, 'some text')}", err=True
    )
