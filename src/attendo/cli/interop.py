"""attendo import and attendo export: models of other software."""

from pathlib import Path
from typing import Annotated, Any

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
    to: Annotated[str, typer.Option(metavar="FORMAT", help="ctranslate2, onnx or huggingface.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write.")],
    quantization: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For ctranslate2: float32 (default), float16 or int8."),
    ] = None,
    max_loss: Annotated[
        float | None,
        typer.Option(
            metavar="BLEU", min=0, max=100, help="Most BLEU that --quantization may cost (0.3)."
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Sentences to measure that on (else validation pairs)."),
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="FILE", help="Their reference translations.")
    ] = None,
) -> None:
    """Write a run for other software.

    DIR is a folder that plain ctranslate2.Translator, onnxruntime or Hugging
    Face transformers loads. It is loaded before the command ends, and compared
    with RUN on a few sentences (greedy translations, or logits); if they
    differ, there is an error and no folder. An export to ctranslate2 in int8
    is refused if it loses more than 0.3 BLEU on the validation pairs.

    \b
    Examples:
      attendo export en-de --to ctranslate2 --quantization int8 --out en-de-int8
      attendo export en-de --to onnx --out en-de-onnx
      attendo export en-de --to huggingface --out en-de-hf
    """
    from attendo.config import choose
    from attendo.data.readers import read_aligned
    from attendo.errors import ConfigError
    from attendo.interop import FORMATS
    from attendo.reporter import Console

    write = choose(FORMATS, to, "--to")
    options: dict[str, Any] = {}
    if quantization is not None:
        options["quantization"] = quantization
    if max_loss is not None:
        options["most_lost"] = max_loss
    if (source is None) != (target is None):
        raise ConfigError("give both --source and --target, or neither")
    if source is not None and target is not None:
        options["pairs"] = list(zip(*read_aligned(source, target), strict=True))
    if to == "ctranslate2":
        options["reporter"] = Console()
    elif options:
        raise ConfigError(
            f"--quantization, --max-loss, --source and --target are for --to ctranslate2, "
            f"not for --to {to}"
        )
    print(write(Path(run), out, **options))
