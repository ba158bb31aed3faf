"""attendo bench: the speed of training, translation and data preparation on this machine."""

from typing import Annotated

import typer

from attendo.cli.options import Device, Pairs, Settings, Source, Target, between, file_settings

bench = typer.Typer(
    name="bench",
    help="Measure the speed of training, translation and preparation.",
    rich_markup_mode=None,
)

RecipeName = Annotated[
    str, typer.Argument(metavar="RECIPE", help="A preset ('attendo recipes') or a .toml file.")
]
MeanLength = Annotated[
    float,
    typer.Option(
        callback=between(1.0, 1e6),
        metavar="N",
        help="Mean number of tokens of a generated sentence (news: 27, captions: 13).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@bench.command()
def train(
    recipe: RecipeName = "paper-base",
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**6, metavar="N", help="Steps to measure (default: GPU 100, CPU 10)."
        ),
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(
            min=1, max=10**6, metavar="N", help="Steps before measuring (default: GPU 20, CPU 2)."
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=16,
            max=10**7,
            metavar="N",
            help="Target tokens per batch, with padding (default: the recipe's; CPU 2048).",
        ),
    ] = None,
    mean_length: MeanLength = 27.0,
    settings: Settings = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="Random seed (default: the recipe's)."),
    ] = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure training speed on generated sentences.

    No files are needed. Everything else is as in a real training: the batches, the update, the
    settings of the recipe. The speed is the median of five measurements, in
    target tokens per second without padding.

    \b
    Examples:
      attendo bench train
      attendo bench train tiny --steps 20 --json
      attendo bench train --batch-tokens 50000 --set training.compile=true
    """
    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.lab.bench.results import print_report
    from attendo.lab.bench.train import bench_train
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
        typer.Argument(metavar="RUN|RECIPE", help="A run, or a recipe for an untrained model."),
    ] = "paper-base",
    input: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Text to translate with a run, one sentence per line."),
    ] = None,
    sentences: Annotated[
        int | None,
        typer.Option(min=1, max=10**6, metavar="N", help="Number of sentences to translate."),
    ] = None,
    mean_length: MeanLength = 27.0,
    beam: Annotated[
        int | None,
        typer.Option(min=1, max=64, metavar="N", help="Beam size (default: the recipe's)."),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            max=10_000,
            metavar="N",
            help="Sentences per batch; may be given several times (default: 1, 8, 64).",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, metavar="N", help="Measurements of each case.")
    ] = 3,
    settings: Settings = None,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Measure the speed of greedy and beam search.

    A run translates --input FILE, in batches of 1, 8 and 64 sentences. A recipe
    is measured with an untrained model and generated sentences; since such a
    model does not end its output, all are as long as the source plus one token.

    \b
    Examples:
      attendo bench translate run --input news.en
      attendo bench translate small --batch-size 1 --batch-size 32
      attendo bench translate paper-base --device cuda --json
    """
    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.lab.bench.results import print_report
    from attendo.lab.bench.translate import BATCH_SIZES, bench_translate
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
    """Measure the speed of data preparation, stage by stage.

    The stages: read and split, check ('attendo check'), train the tokenizer,
    encode, and make the batches of one epoch, all in a temporary folder.
    Without files the built-in corpus is used.

    \b
    Examples:
      attendo bench prepare
      attendo bench prepare --pairs train.tsv.gz
      attendo bench prepare paper-base --source train.en --target train.de --json
    """
    from attendo.config import parse_overrides
    from attendo.lab.bench.prepare import bench_prepare
    from attendo.lab.bench.results import print_report
    from attendo.reporter import Console

    overrides = file_settings(source=source, target=target, pairs=pairs)
    overrides |= parse_overrides(settings or [])
    print_report(bench_prepare(recipe, overrides, Console()), as_json=json)
