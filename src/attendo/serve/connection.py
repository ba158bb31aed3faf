"""Connections: what the HTTP parser refuses, and clients that send or read too slowly.

uvicorn limits the time between requests only. Here each connection is checked every second: headers
must arrive in time, and a response that is being sent must make progress.
"""

import asyncio
from typing import Any

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from attendo.serve.guard import Limits, RequestError

CHECK_SECONDS = 1.0


class Connection(H11Protocol):
    """A connection of uvicorn with time limits; its errors are JSON with our headers."""

    limits = Limits()
    _check: asyncio.TimerHandle | None = None
    _stage: tuple[Any, ...] = ()
    _since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start; a connection over the limit gets 503, and one far over it is closed."""
        super().connection_made(transport)
        n_open = len(self.connections)
        if n_open > self.limits.connections:
            self.app = _too_many
        if n_open > 2 * self.limits.connections:
            transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the check for progress."""
        if self._check is not None:
            self._check.cancel()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Close the connection if nothing has changed for too long."""
        now = self.loop.time()
        stage, seconds = self._waiting_for()
        if stage != self._stage:
            self._stage, self._since = stage, now
        elif now - self._since > seconds:
            self._give_up()
        self._check = self.loop.call_later(min(CHECK_SECONDS, seconds / 4), self._watch)

    def _waiting_for(self) -> tuple[tuple[Any, ...], float]:
        """Return what the client has to do, in a form that changes with its progress."""
        if n_unsent := self.transport.get_write_buffer_size():
            return ("read", n_unsent), self.limits.write_seconds
        if self.conn.their_state is h11.IDLE:
            return ("headers", self.cycle), self.limits.header_seconds
        return ("nothing", self.cycle), float("inf")

    def _give_up(self) -> None:
        is_begun = self._stage[0] == "headers" and self.conn.trailing_data[0]
        if is_begun and not self.transport.is_closing():
            seconds = f"{self.limits.header_seconds:g} seconds"
            self._refuse(RequestError(408, f"the headers did not arrive within {seconds}"))
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with 400."""
        self._refuse(RequestError(400, "the request is not valid HTTP"))

    def _refuse(self, refusal: RequestError) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True  # what it would send comes too late
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = refusal.response()
            headers = [*response.raw_headers, (b"connection", b"close")]
            for event in (
                h11.Response(status_code=refusal.status, headers=headers),
                h11.Data(data=bytes(response.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def make_protocol(limits: Limits) -> type[Connection]:
    """Return the class of connections with these limits, for uvicorn."""
    return type("LimitedConnection", (Connection,), {"limits": limits})


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    response = RequestError(503, "the server has too many connections", retry=2).response()
    response.headers["Connection"] = "close"
    await response(scope, receive, send)
