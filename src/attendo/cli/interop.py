"""attendo import and attendo export: published models."""

from pathlib import Path
from typing import Annotated

import typer


def import_(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Folder with config.json and model.safetensors."),
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Run folder to write.")],
) -> None:
    """Make a run of a published model.

    DIR is a folder of Hugging Face transformers, as downloaded from a hub:
    Marian (opus-mt), BERT and MiniLM encoders, or GPT-2, with its
    tokenizer. Parameters are read from safetensors files only.

    \b
    Examples:
      attendo import opus-mt-en-de --out en-de
      attendo translate en-de 'The dog sleeps.'
      attendo import gpt2 --out gpt2-run
    """
    from attendo.errors import command_line
    from attendo.interop import import_model
    from attendo.reporter import Console

    found, console = import_model(folder, out), Console()
    console.say(f"{found.architecture}: {found.n_parameters:,} parameters, checked")
    if found.left_out:
        console.say(f"not needed, left out: {', '.join(found.left_out)}")
    if found.new:
        console.say(f"not in the published model, untrained here: {', '.join(found.new)}")
    words = [str(out) if word == "RUN" else word for word in found.command]
    console.say(f"use it: {command_line(*words)}")


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained model.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help="huggingface.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
) -> None:
    """Write a run for other software.

    With --to huggingface, DIR is a folder that Hugging Face transformers
    loads. It is loaded before the command ends, and its tokens and logits
    are compared with those of RUN on a few sentences; if they differ, there
    is an error and no folder.

    \b
    Examples:
      attendo export en-de --to huggingface --out en-de-hf
      attendo export gpt2-run --to huggingface --out gpt2-hf
    """
    from attendo.config import choose
    from attendo.interop import export_model

    print(choose({"huggingface": export_model}, to, "--to")(Path(run), out))
