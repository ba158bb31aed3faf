"""attendo serve: web pages to use and to inspect models."""

from typing import Annotated

import typer

from attendo.cli.options import Device, Engine, Precision


def serve(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN]...", help="Trained models; without any, the installed translators."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")
    ] = 8000,
    time_limit: Annotated[
        float, typer.Option(min=1, max=86400, metavar="SECONDS", help="Time limit of a request.")
    ] = 60,
    device: Device = "auto",
    engine: Engine = "auto",
    precision: Precision = "auto",
) -> None:
    """Serve a web page to translate and to inspect models.

    Without RUN, the installed translators are served ('attendo translate --about').
    Runs of all tasks can be served.
    The HTTP API behind it is described at /docs and in /api/openapi.json. Only this machine
    can connect unless --host is set.

    \b
    Examples:
      attendo serve
      attendo serve runs/demo
      attendo serve runs/demo runs/mine --port 9000
    """
    from attendo.reporter import Console
    from attendo.serve.running import run_server
    from attendo.translators import by_folder, installed_translators

    run_server(
        runs or list(map(str, by_folder(installed_translators()))),
        host,
        port,
        device,
        ready=lambda address: typer.echo(f"open {address}", err=True),
        translating={"engine": engine, "precision": precision, "reporter": Console()},
        time_limit=time_limit,
    )
