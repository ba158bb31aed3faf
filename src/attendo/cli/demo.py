"""attendo demo: train on the built-in corpus and show the result."""

from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import Device, Settings

if TYPE_CHECKING:
    from attendo.demo import Demonstration


def demo(
    out: Annotated[
        str, typer.Option(metavar="RUN", help="Folder to write the run to.")
    ] = "runs/demo",
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Train on the built-in corpus, translate, score, draw attention.

    Takes a few minutes on a laptop. Run again, it continues a run that was
    interrupted, or shows a finished one without training it again.

    \b
    Examples:
      attendo demo
      attendo demo --out runs/mine --set training.steps=500
    """
    from pathlib import Path

    from attendo.bundle import find_device
    from attendo.config import parse_overrides
    from attendo.demo import demonstrate
    from attendo.errors import command_line
    from attendo.reporter import Console
    from attendo.training.complete import Interrupted

    try:
        shown = demonstrate(
            Path(out), find_device(device), Console(), parse_overrides(settings or [])
        )
    except Interrupted as interrupted:
        again = command_line("demo", "--out", out)
        typer.echo(f"{interrupted}; continue with: {again}", err=True)
        raise typer.Exit(130) from None
    _print_results(shown)
    _print_next_steps(out)


def _print_results(shown: "Demonstration") -> None:
    from attendo.cli.output import print_scores

    print("\nTest sentences, with combinations of words that are not in the training data:\n")
    for example in shown.examples:
        is_right = example.translation == example.reference
        print(f"    {example.source}\n  {'✓' if is_right else '✗'} {example.translation}")
        print("" if is_right else f"    (reference: {example.reference})\n")
    print_scores(shown.card, as_json=False)
    print(f"\nattention map   {shown.heatmap}\nlearning curve  {shown.curve}\n")


def _print_next_steps(out: str) -> None:
    """Print commands to try, each of which works as typed."""
    import os
    import shlex
    import sys

    from attendo.errors import as_typed, command_line

    sentence = "Yesterday the farmer woke up because the dogs ran away."
    files = ("--source", "your.en", "--target", "your.de")
    steps = {
        "Translate with this model. It was trained on the words of the built-in corpus only:": [
            command_line("translate", out, sentence),
            command_line("translate", out, "--n-best", "3", "The cat saw the big dog."),
        ],
        "Inspect it in a browser:": [command_line("serve", out)],
        "Train on your own text, two files with one sentence per line:": [
            command_line("check", *files),
            command_line("train", *files, "--out", "runs/mine"),
        ],
        "List the recipes:": [command_line("recipes")],
    }
    activate = os.path.join(os.path.dirname(sys.executable), "activate")
    if command_line() != "attendo" and os.path.isfile(activate):
        steps["Put attendo on the PATH, to type just 'attendo' from now on:"] = [
            f"source {shlex.quote(as_typed(activate))}"
        ]
    for title, commands in steps.items():
        print(title, *(f"  {command}" for command in commands), sep="\n")
