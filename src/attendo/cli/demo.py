"""attendo demo: the whole path on the built-in corpus."""

from typing import Annotated

import typer

from attendo.cli.options import Device, Settings


def demo(
    out: Annotated[
        str, typer.Option(metavar="RUN", help="Folder to write the run to.")
    ] = "runs/demo",
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Train on the built-in corpus, translate, score, draw attention.

    Takes a few minutes on a laptop. A second call shows the same model again;
    an interrupted one goes on.

    \b
    Examples:
      attendo demo
      attendo demo --out runs/mine --set training.steps=500
    """
    from pathlib import Path

    from attendo.bundle import find_device
    from attendo.cli.output import print_scores
    from attendo.config import parse_overrides
    from attendo.demo import demonstrate
    from attendo.reporter import Console
    from attendo.training.run import Interrupted

    try:
        shown = demonstrate(
            Path(out), find_device(device), Console(), parse_overrides(settings or [])
        )
    except Interrupted as interrupted:
        typer.echo(f"{interrupted}; 'attendo demo' goes on from there", err=True)
        raise typer.Exit(130) from None
    print("\nSentences with combinations of words that were not in the training data:\n")
    for example in shown.examples:
        mark = "✓" if example.translation == example.reference else "✗"
        print(f"    {example.source}\n  {mark} {example.translation}")
        if example.translation != example.reference:
            print(f"    (expected: {example.reference})")
        print()
    print_scores(shown.card, as_json=False)
    print(f"\nattention  {shown.heatmap}\ncurve      {shown.curve}\n")
    print("Next:")
    print(f"  attendo translate {out} 'Yesterday the farmer woke up because the dogs ran away.'")
    print(f"  attendo translate {out} --n-best 3 'The cat saw the big dog.'")
    print(f"  attendo serve {out}        # a page to look inside with")
    print("  attendo train --source your.en --target your.de --out runs/mine")
    print("  attendo recipes")
