"""The command line: each command parses, calls one library function and prints.

Results go to standard output, messages and progress to standard error. A person's mistake is one
line, `error: ...`, and exit code 2. Heavy imports wait until a command runs, so that `--help` is
instant.
"""

import sys
from typing import Annotated

import click
import typer

from attendo.cli.check import check
from attendo.cli.demo import demo
from attendo.cli.evaluate import evaluate
from attendo.cli.recipes import recipes
from attendo.cli.train import train
from attendo.cli.translate import translate
from attendo.errors import AttendoError

app = typer.Typer(
    name="attendo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def attendo(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, use and measure Transformers on your own pairs of sequences."""


for command in (demo, check, train, translate, evaluate, recipes):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    try:
        code = app(standalone_mode=False)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        print(f"error: {message}", file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _explain(error: Exception) -> tuple[str, int]:
    """Say an error in one line; 2 for mistakes of the person, 1 for ours."""
    if isinstance(error, click.ClickException):
        return " ".join(error.format_message().split()), 2
    if isinstance(error, AttendoError):
        return " ".join(str(error).split()), 2
    if type(error).__name__ == "OutOfMemoryError":
        return (
            "the device has too little memory; "
            "lower training.batch_tokens or raise training.accumulate (training), "
            "or lower --batch-size (translating)"
        ), 2
    return f"unexpected {type(error).__name__}: {error} (see it whole with --debug)", 1
