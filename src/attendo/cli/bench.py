"""attendo bench: how fast this machine trains, translates and prepares."""

from typing import Annotated

import typer

from attendo.cli.options import Device, Pairs, Settings, Source, Target, file_settings

bench = typer.Typer(
    name="bench",
    help="Measure how fast this machine trains, translates and prepares.",
    rich_markup_mode=None,
)

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A preset ('attendo recipes') or a .toml file.")
]
MeanLength = Annotated[
    float, typer.Option(metavar="N", help="Mean tokens a side (news: 27, captions: 13).")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]


@bench.command()
def train(
    recipe: RecipeName = "paper-base",
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps to time (GPU: 100, CPU: 10).")
    ] = None,
    warmup: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Steps before (GPU: 20, CPU: 2).")
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", help="Places for target tokens (recipe's; CPU: 2048)."),
    ] = None,
    mean_length: MeanLength = 27.0,
    settings: Settings = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Start of every random choice (the recipe's).")
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Time training steps on made-up sentences; no files are needed.

    Everything else is as in a real training: the stream of batches, the
    learner, the recipe's settings. Speed is the median of five stretches of
    steps, in target tokens a second, padding not counted.

    \b
    Examples:
      attendo bench train
      attendo bench train tiny --steps 20 --json
      attendo bench train --batch-tokens 50000 --set training.compile=true
    """
    from attendo.bench.report import print_report
    from attendo.bench.train import bench_train
    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.reporter import Console

    given = {"training.seed": seed, "training.batch_tokens": batch_tokens}
    overrides = parse_overrides(settings or [])
    overrides |= {key: value for key, value in given.items() if value is not None}
    report = bench_train(
        recipe,
        overrides,
        find_device(device),
        steps=steps,
        warmup=warmup,
        mean_length=mean_length,
        reporter=Console(),
    )
    print_report(report, as_json=json)


@bench.command()
def translate(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN|RECIPE", help="A trained run, or a recipe for fresh weights."),
    ] = "paper-base",
    input: Annotated[
        str | None, typer.Option(metavar="FILE", help="Text for a trained run, a sentence a line.")
    ] = None,
    sentences: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Sentences to translate.")
    ] = None,
    mean_length: MeanLength = 27.0,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Width of the beam (recipe's).")
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="Sentences at a time; may be given several times."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Times that each case is measured.")
    ] = 3,
    settings: Settings = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Time greedy and beam search, 1, 8 and 64 sentences at a time.

    A trained run translates --input FILE. A recipe gets fresh weights and
    made-up sentences; since fresh weights do not know when to stop, the length
    of every output is then forced to that of its source and one token more.

    \b
    Examples:
      attendo bench translate run --input news.en
      attendo bench translate small --batch-size 1 --batch-size 32
      attendo bench translate paper-base --device cuda --json
    """
    from attendo.bench.report import print_report
    from attendo.bench.translate import BATCH_SIZES, bench_translate
    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.reporter import Console

    report = bench_translate(
        model,
        parse_overrides(settings or []),
        find_device(device),
        input=input,
        sentences=sentences,
        mean_length=mean_length,
        beam=beam,
        batch_sizes=batch_size or BATCH_SIZES,
        rounds=rounds,
        reporter=Console(),
    )
    print_report(report, as_json=json)


@bench.command()
def prepare(
    recipe: RecipeName = "small",
    source: Source = None,
    target: Target = None,
    pairs: Pairs = None,
    settings: Settings = None,
    json: Json = False,
) -> None:
    """Time the way from text files to batches, stage by stage.

    Reads and splits, checks ('attendo check'), learns the vocabulary, encodes,
    and makes the batches of one epoch, all in a temporary folder. Without
    files the built-in corpus is taken.

    \b
    Examples:
      attendo bench prepare
      attendo bench prepare --pairs train.tsv.gz
      attendo bench prepare paper-base --source train.en --target train.de --json
    """
    from attendo.bench.prepare import bench_prepare
    from attendo.bench.report import print_report
    from attendo.config import parse_overrides
    from attendo.reporter import Console

    overrides = file_settings(source=source, target=target, pairs=pairs)
    overrides |= parse_overrides(settings or [])
    print_report(bench_prepare(recipe, overrides, Console()), as_json=json)
