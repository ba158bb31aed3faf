"""Starting and stopping the server."""

import socket
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from attendo.errors import ConfigError, install_command

PACKAGES = ("fastapi", "uvicorn", "scipy")
"""What the server needs and the rest of the program does not."""

STOP_SECONDS = 3
"""How long requests may continue after Ctrl-C or SIGTERM."""


def run_server(
    runs: Sequence[str],
    host: str,
    port: int,
    device: str,
    ready: Callable[[str], None],
    translating: Mapping[str, Any] | None = None,
    **limits: Any,
) -> None:
    """Load the models and serve until SIGINT or SIGTERM.

    Args:
        runs: Run folders.
        host: Name or address to listen on; the server answers to other names only if this is not
            an address of the machine itself.
        port: Port to listen on; 0 chooses a free one.
        device: Device of the models.
        ready: Called with the address of the server.
        translating: How `Library` translates: engine, precision, reporter.
        **limits: Fields of `attendo.serve.guard.Limits`, such as time_limit.
    """
    _check_packages()
    with _listen(host, port) as listener:
        import uvicorn

        from attendo.serve.app import make_app
        from attendo.serve.connection import make_protocol
        from attendo.serve.guard import Limits, is_loopback
        from attendo.serve.library import Library

        limited = Limits(**limits)
        bound, bound_port = listener.getsockname()[:2]
        names = [host] if is_loopback(bound) else None
        config = uvicorn.Config(
            make_app(Library(runs, device, **(translating or {})), limited, names),
            http=make_protocol(limited),
            ws="none",
            log_level="warning",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        ready(f"http://{f'[{host}]' if ':' in host else host}:{bound_port}")
        uvicorn.Server(config).run(sockets=[listener])


def _check_packages() -> None:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise ConfigError(
            f"serving needs packages that are not installed: {', '.join(missing)}; "
            f"install them with: {install_command(*missing)}"
        )


def _listen(host: str, port: int) -> socket.socket:
    """Bind the port before the slow imports, so that a port in use is reported at once."""
    try:
        if not host:
            raise ValueError("the host name is empty")
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except (OSError, OverflowError, TypeError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while")[0]
        raise ConfigError(
            f"cannot listen on {host!r}, port {port}: {reason}; choose another --port or --host"
        ) from None
