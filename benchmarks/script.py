"""How a script of this folder ends when the person has made a mistake: as attendo itself does."""

import sys

import typer

from attendo.errors import AttendoError


def run(app: typer.Typer) -> None:
    """Run a script; an error of the user is printed in one line."""
    try:
        app()
    except AttendoError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
