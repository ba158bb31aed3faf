"""attendo train: from sentence pairs to a trained model."""

from typing import Annotated

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
    file_settings,
)


def train(
    out: Annotated[str, typer.Option(metavar="RUN", help="Folder to write the run to.")],
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A preset ('attendo recipes') or a .toml file.")
    ] = "auto",
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
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN", help="Start from the parameters of a trained run."),
    ] = None,
    compare_scratch: Annotated[
        bool,
        typer.Option(
            "--compare-scratch",
            help="With --from: train the same model from new parameters, too, and compare.",
        ),
    ] = False,
    settings: Settings = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue the run in RUN, if there is one. The parameters are the same as without "
            "an interruption, bit for bit on a CPU with the same number of threads.",
        ),
    ] = False,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print the score card as JSON.")] = False,
) -> None:
    """Train a model from sentence pairs or other data.

    The recipe 'auto' chooses all settings for the data and the hardware, and
    reports what it chose and why. Validation and test pairs are held out if
    none are given. Files may be compressed (.gz, .xz, .zst). Ctrl-C saves the
    run; --resume continues it.

    With --from, training starts from the vocabulary, the size and the
    parameters of a trained run. At the end, BLEU before and after is reported
    for the new test pairs and for those of the first run. If the new pairs do
    not help, the parameters are not changed. A run of another task is started
    with a new head. Settings of [finetuning] freeze layers, lower their
    learning rates, or add low-rank matrices (LoRA).

    \b
    Examples:
      attendo train --source a.en --target a.de --out run
      attendo train small --pairs all.tsv.gz --out run --set training.steps=5000
      attendo train my-recipe.toml --out run --resume
      attendo train --from run --pairs legal.tsv --out legal
      attendo train language-model --data book.txt --out book
      attendo train classification --data reviews.tsv --out reviews
      attendo train image-classification --data photos/ --out photos
      attendo train classification --from pretrained --data reviews.tsv --out reviews
      attendo train classification --from pretrained --data reviews.tsv --out reviews \
        --set finetuning.lora_rank=8 --compare-scratch
    """
    from pathlib import Path

    from attendo.bundle import RECIPE, find_device
    from attendo.cli.output import print_scores
    from attendo.config import parse_overrides
    from attendo.errors import ConfigError, command_line
    from attendo.reporter import Console
    from attendo.tasks import TASKS
    from attendo.training.complete import Interrupted
    from attendo.training.run import train_run

    if not out.strip():
        raise ConfigError("--out is empty; give the folder to write the run to")
    overrides = file_settings(
        source=source, target=target, pairs=pairs,
        valid_source=valid_source, valid_target=valid_target, valid_pairs=valid_pairs,
        test_source=test_source, test_target=test_target, test_pairs=test_pairs,
        files=data, valid_files=valid_data, test_files=test_data,
    )  # fmt: skip
    overrides |= {} if start is None else {"start": start}
    overrides |= parse_overrides(settings or [])
    try:
        card = train_run(
            recipe, overrides, Path(out), find_device(device),
            resume=resume, compare_scratch=compare_scratch, reporter=Console(),
        )  # fmt: skip
    except (Interrupted, KeyboardInterrupt) as interrupt:
        if (Path(out) / RECIPE).exists():
            command = command_line("train", "--out", out, "--resume")
            typer.echo(f"{str(interrupt) or 'stopped'}; continue with: {command}", err=True)
        raise typer.Exit(130) from None
    print_scores(card, as_json=json)
    words = TASKS[card.get("task", "translation")].command  # older cards do not name it
    try_it = command_line(*(out if word == "RUN" else word for word in words))
    typer.echo(f"the model is in {out}; try: {try_it}", err=True)
