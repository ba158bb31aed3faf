"""The command line: each command parses, calls one library function and prints.

Results go to standard output, messages and progress to standard error. A mistake of the user is
reported in one line, `error: ...`, with exit code 2. Heavy imports wait until a command runs, so
that `--help` is instant.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

import attendo as package
from attendo.cli.augment import augment
from attendo.cli.bench import bench
from attendo.cli.check import check
from attendo.cli.compare import compare
from attendo.cli.demo import demo
from attendo.cli.distill import distill
from attendo.cli.embed import embed
from attendo.cli.evaluate import evaluate
from attendo.cli.generate import generate
from attendo.cli.interop import export, import_
from attendo.cli.look import look
from attendo.cli.plan import plan
from attendo.cli.predict import predict
from attendo.cli.recipes import recipes
from attendo.cli.serve import serve
from attendo.cli.train import train
from attendo.cli.translate import translate
from attendo.errors import AttendoError, install_command
from attendo.reporter import prepare_streams

app = typer.Typer(
    name="attendo",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(is_asked: bool) -> bool:
    if is_asked:
        print(f"attendo {package.__version__}")
        raise typer.Exit
    return is_asked


@app.callback()
def attendo(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Train, use, measure and inspect Transformers on your own sentence pairs."""


for command in (
    demo,
    check,
    train,
    distill,
    translate,
    generate,
    predict,
    embed,
    evaluate,
    look,
    compare,
    serve,
    plan,
    recipes,
    export,
):
    app.command()(command)
app.command("import")(import_)
app.add_typer(augment)
app.add_typer(bench)


def main() -> None:
    """Run the command line."""
    prepare_streams()
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    if arguments in ([], ["augment"], ["bench"]):  # a group without a command
        arguments.append("--help")
    with _noted_interrupt() as interrupt:
        try:
            code = app(arguments, prog_name="attendo", standalone_mode=False)
        except Exception as error:
            if "--debug" in sys.argv:
                raise
            message, code = _explain(error)
            if interrupt:  # in an import, which made another error of it
                code = 130
            else:
                print(f"error: {' '.join(message.split())}", file=sys.stderr)
        except KeyboardInterrupt:
            code = 130
    sys.exit(code)


@contextmanager
def _noted_interrupt() -> Iterator[list[int]]:
    """Collect the signals of Ctrl-C, which still raise KeyboardInterrupt."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        if _is_importing(frame):  # an exception would abort the process inside C++ code of torch
            sys.stdout.flush()
            os._exit(130)
        raise KeyboardInterrupt

    is_usual = before is signal.default_int_handler  # not ignored, as in a background process
    if is_usual:
        signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        if is_usual:
            signal.signal(signal.SIGINT, before)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def _explain(error: Exception) -> tuple[str, int]:
    """Return the message and the exit code: 2 for a mistake of the user, 1 for a bug."""
    if isinstance(error, typer.TyperException):
        return error.format_message(), 2
    if isinstance(error, AttendoError):
        return str(error), 2
    # Torch raises its own OutOfMemoryError for GPUs, and a plain RuntimeError for the CPU.
    is_full = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if is_full or "allocate memory" in str(error):
        return (
            "out of memory on the device; "
            "raise training.accumulate, also of a run that is resumed (training), "
            "lower --batch-size (translation), or use a smaller model"
        ), 2
    if isinstance(error, OSError):
        return f"the operating system reports: {error}", 2
    if isinstance(error, ModuleNotFoundError) and error.name and not _is_ours(error.name):
        package = error.name.partition(".")[0]
        return (
            f"this command needs the package {package}, which is not installed; "
            f"install it with: {install_command(package)}"
        ), 2
    return f"unexpected {type(error).__name__}: {error} (--debug shows the traceback)", 1


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == "attendo"
