"""attendo look: what a model attends to, as a page, an image or an animation."""

from typing import Annotated

import typer

from attendo.cli.options import Device


def look(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The source sentence.")],
    target: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="A translation (else the model's own)."),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FILE", help="File to write: .html, .png, .svg or .gif.")
    ] = "look.html",
    what: Annotated[
        str, typer.Option(metavar="KIND", help="In an image: cross, encoder or decoder attention.")
    ] = "cross",
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
    """Show what a model attends to while it translates a sentence.

    A page (.html) has all layers and heads and needs no network. An image
    (.png, .svg) has one layer or head. An animation (.gif) shows the
    translation token by token.

    \b
    Examples:
      attendo look run 'The old dog sleeps.'
      attendo look run 'The old dog sleeps.' --out map.png --layer 2 --head 1
      attendo look run 'The old dog sleeps.' --target 'Der Hund schläft.' --out page.html
    """
    from pathlib import Path

    from attendo.engines import load
    from attendo.look.about import card_of
    from attendo.look.heads import parse_head
    from attendo.look.record import look as look_at
    from attendo.look.write import show

    translator = load(run, device)
    ablated = [parse_head(name, translator.bundle.model, first=1) for name in ablate or ()]
    recorded = look_at(translator, text, target, ablated)
    choice = (what, None if layer is None else layer - 1, None if head is None else head - 1)
    show(translator, recorded, Path(out), *choice, card=card_of(Path(run)))
    print(recorded.target)
    typer.echo(f"written: {out}", err=True)
