"""attendo serve: a page to translate and look inside with."""

from typing import Annotated

import typer

from attendo.cli.options import Device


def serve(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Trained models.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 finds a free one.")] = 8000,
    device: Device = "auto",
) -> None:
    """Serve a page where you translate and look inside.

    Behind it is an interface for programs: JSON over HTTP, described at
    /api/openapi.json.

    \b
    Examples:
      attendo serve runs/demo
      attendo serve runs/demo runs/mine --port 9000
    """
    from attendo.serve.running import run_server

    run_server(
        runs, host, port, device, ready=lambda address: typer.echo(f"open {address}", err=True)
    )
