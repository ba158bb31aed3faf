"""attendo augment: more training pairs from text in one language."""

from typing import Annotated, Literal

import typer

from attendo.cli.distill import Resume, ShardSize
from attendo.cli.options import BatchSize, Beam, Device, check_sampled

augment = typer.Typer(name="augment", help="Make more training pairs.", rich_markup_mode=None)


@augment.callback()
def _more_training_pairs() -> None:
    """Make more training pairs."""


@augment.command("back-translate")
def back_translate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A model of the opposite direction.")],
    text: Annotated[
        list[str], typer.Option(metavar="FILE", help="Sentences in the target language.")
    ],
    out: Annotated[
        str, typer.Option(metavar="FILE", help="File of pairs to write (.tsv, .jsonl; .gz, .zst).")
    ],
    strategy: Annotated[
        Literal["beam", "sample", "greedy"], typer.Option(help="How to translate.")
    ] = "beam",
    beam: Beam = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, max=10**6, metavar="N", help="Sample among the N likeliest tokens."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.001, max=1000, metavar="T", help="Of sampling.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**62, metavar="N", help="Random seed of sampling.")
    ] = None,
    tag: Annotated[
        str, typer.Option(metavar="TEXT", help="Put this before every synthetic source.")
    ] = "",
    batch_size: BatchSize = None,
    shard_size: ShardSize = 4096,
    resume: Resume = False,
    device: Device = "auto",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Translate text in the target language back, to get training pairs.

    A model of the opposite direction makes the source of each pair; the target
    is the original sentence. Train on them together with real pairs:
    --pairs real.tsv --pairs synthetic.tsv. Sampling (--strategy sample) gives
    more variety than beam search; a --tag lets the model know what is
    synthetic. Empty, repeating and far too long or short translations are left
    out. Ctrl-C saves; --resume continues.

    \b
    Examples:
      attendo augment back-translate de-en --text news.de --out synthetic.tsv
      attendo augment back-translate de-en --text news.de --out pairs.tsv --tag '<bt>'
      attendo augment back-translate de-en --text a.de --out b.tsv --strategy sample --top-k 10
    """
    import json as writer
    from pathlib import Path

    from attendo.reporter import Console
    from attendo.synthesis.back_translation import BackTranslation, back_translate

    check_sampled(strategy, {"top_k": top_k, "temperature": temperature, "seed": seed})
    given = {
        "strategy": strategy, "beam": beam, "top_k": top_k, "temperature": temperature,
        "batch_size": batch_size,
        "seed": seed or 0,
    }  # fmt: skip
    options = {key: value for key, value in given.items() if value is not None}
    request = BackTranslation(text, options, tag, shard_size)
    try:
        report = back_translate(Path(run), Path(out), request, device, Console(), resume=resume)
    except KeyboardInterrupt:
        typer.echo("stopped; continue with the same command and --resume", err=True)
        raise typer.Exit(130) from None
    if json:
        print(writer.dumps(report, ensure_ascii=False))
        return
    print(f"pairs     {report['pairs']:,}")
    for reason, count in report["dropped"].items():
        print(f"left out  {count:,} ({reason})")
    typer.echo(f"written: {out}", err=True)
