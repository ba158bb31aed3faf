"""Checks of every request before it reaches the application, whatever its headers claim."""

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Sent with every response, errors included."""

LINGER_SECONDS = 2.0
"""How long a refused body is read and discarded, so that the client receives the reason."""


@dataclass(frozen=True)
class Limits:
    """What one client may take from the others."""

    time_limit: float = 60.0
    """Seconds for a request, waiting included."""
    waiting: int = 16
    """Requests that may wait for each kind of work."""
    body_bytes: int = 200_000
    """Bytes of the body of a request."""
    header_seconds: float = 10.0
    """Seconds for the headers of a request to arrive."""
    body_seconds: float = 20.0
    """Seconds for the body of a request to arrive."""
    write_seconds: float = 20.0
    """Seconds without progress while a response is sent."""
    connections: int = 200
    """Open connections."""


class RequestError(Exception):
    """A request that is answered with an error: a status, one line, when to try again."""

    def __init__(self, status: int, message: str, retry: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry = status, retry

    def response(self) -> JSONResponse:
        """Build the response."""
        extra = {} if self.retry is None else {"Retry-After": str(self.retry)}
        return JSONResponse({"error": str(self)}, self.status, headers={**HEADERS, **extra})


class Guard:
    """An ASGI application around another: checks, limits, security headers, cancellation."""

    def __init__(self, app: ASGIApp, limits: Limits, names: Iterable[str] | None) -> None:
        """Wrap an application.

        Args:
            app: The application.
            limits: Size of a body and the time it may take.
            names: Host names the server answers to, besides loopback addresses; None is any.
        """
        self.app, self.limits = app, limits
        self.names = None if names is None else frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sender = _Sender(send)
        try:
            self._check(scope)
            body = await self._read_body(receive)
        except RequestError as error:
            await _refuse(error, receive, send)
            return
        if body is not None:
            await self._run(scope, body, receive, sender)

    def _check(self, scope: Scope) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        host = self._check_host([value for name, value in headers if name == b"host"])
        if scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            _check_origin(dict(headers), host)
        lengths = [value for name, value in headers if name == b"content-length"]
        if scope["method"] == "POST" and not lengths:
            raise RequestError(411, "the request has no Content-Length header")
        if any(len(value) > 9 or int(value) > self.limits.body_bytes for value in lengths):
            raise self._too_large()

    def _check_host(self, values: list[bytes]) -> str:
        """Return the Host header; an unknown host name is refused."""
        host = values[0].decode("latin-1") if len(values) == 1 else ""
        name = parse_host(host)
        if name is None:
            raise RequestError(
                400, "the Host header is missing or malformed; expected name or name:port"
            )
        if self.names is not None and not (is_loopback(name) or name in self.names):
            allowed = ", ".join(sorted({"localhost", "127.0.0.1", *self.names}))
            raise RequestError(403, f"the Host header names another server; use one of: {allowed}")
        return host

    def _too_large(self) -> RequestError:
        return RequestError(
            413, f"the request is too large: the limit is {self.limits.body_bytes:,} bytes"
        )

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Read the whole body, counting what arrives; None if the client disconnects."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            seconds = f"{self.limits.body_seconds:g} seconds"
            raise RequestError(408, f"the body did not arrive within {seconds}") from None

    async def _run(self, scope: Scope, body: bytes, receive: Receive, sender: "_Sender") -> None:
        """Run the application; if the client disconnects before the response, cancel it."""
        running = asyncio.create_task(self._call(scope, body, sender))
        watching = asyncio.create_task(_wait_for_disconnect(receive))
        try:
            await asyncio.wait({running, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not (running.done() or sender.is_complete):
                running.cancel()
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            await sender.fail(RequestError(503, "the server is stopping"))
            return
        finally:
            running.cancel()
            watching.cancel()
        if running.cancelled() or (error := running.exception()) is None:
            return
        # A panic of Rust code is no `Exception`, so the application has not answered it.
        await sender.fail(RequestError(500, "the server failed; its log has the details"))
        raise error

    async def _call(self, scope: Scope, body: bytes, sender: "_Sender") -> None:
        await self.app(scope, _replay(body), sender.send)


_NAME = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
_HOST = re.compile(
    rf"(?:({_NAME}(?:\.{_NAME})*)|\[([0-9a-f:.]+)\])(?::([0-9]{{1,5}}))?", re.IGNORECASE
)


def parse_host(host: str) -> str | None:
    """Return the name in a Host header, `name` or `name:port`; None if it is malformed.

    >>> parse_host("LocalHost:8000"), parse_host("[::1]"), parse_host("evil.com:")
    ('localhost', '::1', None)
    """
    found = _HOST.fullmatch(host)
    if found is None or not 0 < int(found[3] or 80) < 65536:
        return None
    if found[2] is None:
        return found[1].lower()
    try:
        return str(IPv6Address(found[2]))
    except ValueError:
        return None


def is_loopback(name: str) -> bool:
    """Return whether a name or an address is that of the machine itself.

    >>> [is_loopback(name) for name in ("localhost", "127.9.9.9", "::1", "128.0.0.1", "127.1")]
    [True, True, True, False, False]
    """
    if name == "localhost":
        return True
    try:
        address: IPv4Address | IPv6Address = ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _check_origin(headers: dict[bytes, bytes], host: str) -> None:
    """Raise an error if a page of another site has caused a browser to send the request."""
    site = headers.get(b"sec-fetch-site")
    origin = headers.get(b"origin", b"").decode("latin-1")
    if site is None:
        # Programs send neither header; browsers send at least the second.
        is_ours = not origin or origin.lower().partition("://")[2] == host.lower()
    else:
        is_ours = site in (b"same-origin", b"none")
    if not is_ours:
        raise RequestError(403, "the request comes from a page of another site")


class _Sender:
    """Forwards a response with the headers of all responses, and tracks its progress."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = self.is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.is_started = True
            message = {**message, "headers": with_headers(message.get("headers", ()))}
        elif not message.get("more_body", False):
            self.is_complete = True
        await self._send(message)

    async def fail(self, error: RequestError) -> None:
        """Send an error, unless a response has been started."""
        if not self.is_started:
            response = error.response()
            start = {"status": error.status, "headers": response.raw_headers}
            await self.send({"type": "http.response.start", **start})
            await self.send({"type": "http.response.body", "body": response.body})


def with_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with those of all responses in place of its own."""
    ours = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
    names = {name for name, _ in ours}
    return [*((name, value) for name, value in headers if name.lower() not in names), *ours]


def _replay(body: bytes) -> Receive:
    """Return a `receive` that replays a body which has been read; a disconnect cancels instead."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    return receive


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse(error: RequestError, receive: Receive, send: Send) -> None:
    """Send an error and close the connection, once the client has had time to read the error."""
    response = error.response()
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    with suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    await send({"type": "http.response.body", "body": b""})
