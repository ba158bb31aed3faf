"""attendo generate: continue a text."""

from typing import Annotated

import typer

from attendo.cli.options import Device, check_sampled


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
    top_p: Annotated[
        float | None,
        typer.Option(metavar="P", help="Sample among the tokens that together have probability P."),
    ] = None,
    stop: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Stop before this text; may be repeated."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="UNIT", help="For code: stop at the end of its block or function."),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", help="Random seed.")] = None,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Always take the most likely token.")
    ] = False,
    device: Device = "auto",
) -> None:
    """Continue a text with a language model.

    The text is printed token by token, as it is generated. The same seed
    gives the same text. Without PROMPT, a new text is begun; PROMPT may also
    come from standard input (-).

    \b
    Examples:
      attendo generate book 'It was a dark'
      attendo generate book --tokens 500 --temperature 0.8 --seed 7
      attendo generate book 'It was a dark' --greedy --stop '.'
      cat beginning.txt | attendo generate book -
      attendo generate code 'def main(argv):' --until function
    """
    import sys

    from attendo.engines import load_generator

    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    options: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    if greedy:
        check_sampled("greedy", given)
        options["strategy"] = "greedy"
    generator = load_generator(run, device)
    prompt = sys.stdin.read() if prompt == "-" else prompt or ""

    beginning = [prompt]  # printed with the first token: a wrong option is reported before

    def show(text: str) -> None:
        print("".join(beginning), text, sep="", end="", flush=True)
        beginning.clear()

    generator.generate(prompt, tokens=tokens, stop=stop or (), until=until, emit=show, **options)
    show("\n")
