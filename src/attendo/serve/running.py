"""Starting and stopping the server."""

import socket
from collections.abc import Callable, Sequence

from attendo.errors import ConfigError, install_command

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def run_server(
    runs: Sequence[str], host: str, port: int, device: str, ready: Callable[[str], None]
) -> None:
    """Load the models and serve until somebody says stop; `ready` is told the address."""
    try:
        import uvicorn

        from attendo.serve.app import make_app
        from attendo.serve.library import Library
    except ImportError as error:
        raise ConfigError(
            f"serving needs the package {error.name}; install it with: "
            f"{install_command(error.name or 'fastapi')}"
        ) from None

    listener = _listen(host, port)
    with listener:
        app = make_app(Library(runs, device), LOOPBACK if host in LOOPBACK else ())
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        name = f"[{host}]" if ":" in host else host
        ready(f"http://{name}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Take the port before the models are loaded, so that a taken one is noticed at once."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason}; choose another --port or --host"
        ) from None
