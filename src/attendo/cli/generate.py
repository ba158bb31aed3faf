"""attendo generate: continue a text."""

from typing import Annotated

import typer

from attendo.cli.options import Device


def generate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a trained language model.")],
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="The beginning of the text.")
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="Most tokens to add.")
    ] = 200,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="Below 1: more likely text; above: less.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="K", help="Sample among the K most likely tokens.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Random seed.")] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most likely token.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Continue a text with a language model.

    \b
    Examples:
      attendo generate book 'It was a dark'
      attendo generate book --tokens 500 --temperature 0.8 --seed 7
      attendo generate book 'It was a dark' --greedy
    """
    from attendo.engines import load_generator

    given = {"temperature": temperature, "top_k": top_k, "seed": seed}
    options: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if greedy:
        options["strategy"] = "greedy"
    prompt = prompt or ""
    print(prompt + load_generator(run, device).generate(prompt, tokens=tokens, **options))
