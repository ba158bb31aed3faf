"""attendo look: what a model attends to, as a page, an image or an animation."""

from typing import Annotated

import typer

from attendo.cli.options import Device


def look(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text or file to inspect.")],
    target: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="A translation (else the model's own), or the second text of a pair.",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="File to write: .html, .png, .svg or .gif.")
    ] = "look.html",
    what: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="In an image: cross, decoder or encoder attention (else the first of them that "
            "the model has).",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(metavar="N", help="In an image: layer, from 1 (else the lowest entropy)."),
    ] = None,
    head: Annotated[
        int | None,
        typer.Option(metavar="N", help="In an image: head, from 1 (else the mean)."),
    ] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(metavar="HEAD", help="Ablate a head: cross.2.1 is head 1 of layer 2."),
    ] = None,
    device: Device = "auto",
) -> None:
    """Show what a model attends to while it reads a text.

    A page (.html) has all layers and heads and needs no network. An image
    (.png, .svg) has one layer or head. An animation (.gif) shows a
    translation token by token.

    Prints the translation; for a language model, the perplexity of the text
    and the most probable next tokens; for a classifier, the label and its
    probability; for a masked language model, the most probable words for each
    <mask>; for speech recognition, the text; for a parser, the tree. Attention
    over an image is drawn on it, attention over a recording below its
    spectrogram.

    \b
    Examples:
      attendo look run 'The old dog sleeps.'
      attendo look run 'The old dog sleeps.' --out map.png --layer 2 --head 1
      attendo look run 'The old dog sleeps.' --target 'Der Hund schläft.' --out page.html
      attendo look reviews 'A wonderful film.' --out map.svg --ablate encoder.1.2
      attendo look bert 'The old <mask> sleeps.'
      attendo look digits seven.png --out map.png
    """
    from pathlib import Path

    from attendo.engines import load_engine
    from attendo.look.about import card_of
    from attendo.look.heads import parse_head
    from attendo.look.record import look as look_at
    from attendo.look.write import show

    engine = load_engine(run, device)
    ablated = [parse_head(name, engine.bundle.model, first=1) for name in ablate or ()]
    recorded = look_at(engine, text, target, ablated)
    choice = (what, None if layer is None else layer - 1, None if head is None else head - 1)
    show(engine, recorded, Path(out), *choice, card=card_of(Path(run)))
    print(recorded.summary)
    typer.echo(f"written: {out}", err=True)
