"""The command line: each command parses, calls one library function and prints.

Results go to standard output, messages and progress to standard error. A person's mistake is one
line, `error: ...`, and exit code 2. Heavy imports wait until a command runs, so that `--help` is
instant.
"""

import sys
from typing import Annotated

import typer

from attendo.cli.bench import bench
from attendo.cli.check import check
from attendo.cli.compare import compare
from attendo.cli.demo import demo
from attendo.cli.evaluate import evaluate
from attendo.cli.look import look
from attendo.cli.recipes import recipes
from attendo.cli.serve import serve
from attendo.cli.train import train
from attendo.cli.translate import translate
from attendo.errors import AttendoError
from attendo.reporter import prepare_streams

app = typer.Typer(
    name="attendo",
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def attendo(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, use and measure Transformers on your own pairs of sequences."""


for command in (demo, check, train, translate, evaluate, look, compare, serve, recipes):
    app.command()(command)
app.add_typer(bench)


def main() -> None:
    """Run the command line."""
    prepare_streams()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        code = app(arguments or ["--help"], standalone_mode=False)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        message, code = _explain(error)
        print(f"error: {' '.join(message.split())}", file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _explain(error: Exception) -> tuple[str, int]:
    """Say what went wrong, and whose mistake it is: 2 for the person's, 1 for ours."""
    if isinstance(error, typer.TyperException):
        return error.format_message(), 2
    if isinstance(error, AttendoError):
        return str(error), 2
    # Torch raises its own OutOfMemoryError for GPUs, and a plain RuntimeError for the CPU.
    if type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error):
        return (
            "the device has too little memory; "
            "lower training.batch_tokens, raise training.accumulate (training), "
            "lower --batch-size (translating), or take a smaller model"
        ), 2
    if isinstance(error, OSError):
        return f"the system says: {error}", 2
    return f"unexpected {type(error).__name__}: {error} (see it whole with --debug)", 1
