"""Limits for clients that send slowly or not at all: uvicorn waits for headers and bodies forever.

A connection without a complete request is closed after HEADERS_S; of such connections MOST may be open, the
oldest gives way. A body may pause for PAUSE_S and must come with RATE bytes per second after that.
"""

from __future__ import annotations

import asyncio
import socket
import time
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

HEADERS_S = 10.0
MOST = 128
PAUSE_S = 30.0
RATE = 1024
_SWEEP_S = 1.0


class TooSlow(Exception):
    """The body did not come in time."""


class Connections:
    """The open HTTP connections of a uvicorn server. Uvicorn has no option for this, and under ``streamlit
    run`` nobody of ours sees its configuration: new connections are noted as its protocol class opens
    them."""

    def __init__(self) -> None:
        self.open: weakref.WeakSet = weakref.WeakSet()
        self._since: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def note(self, protocol: type) -> None:
        """Begin to note the connections of a protocol class."""
        made = protocol.connection_made

        def connection_made(connection, transport):
            made(connection, transport)
            _at_once(transport)
            self.open.add(connection)
            self._since[connection] = (None, time.monotonic())
            if len(self.open) > MOST:  # a flood does not wait for the next look
                self.sweep()

        protocol.connection_made = connection_made

    def sweep(self) -> None:
        """Close the connections that have waited for a request for too long, and the oldest of too many."""
        now, waiting = time.monotonic(), []
        for connection in list(self.open):
            transport, cycle = connection.transport, connection.cycle
            if transport.is_closing() or transport.get_protocol() is not connection:  # or now a WebSocket
                self.open.discard(connection)
                continue
            before, since = self._since[connection]
            if cycle is not before or (cycle is not None and not cycle.response_complete):
                self._since[connection] = (cycle, now)
            else:
                waiting.append((since, connection))
        waiting.sort(key=lambda pair: pair[0])
        for since, connection in waiting:
            if now - since > HEADERS_S:
                connection.transport.abort()
        for _, connection in waiting[: max(0, len(waiting) - MOST)]:
            connection.transport.abort()

    async def watch(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.sweep()


def _at_once(transport) -> None:
    """Send what is written without waiting for the client's receipt, 40 ms for the body after each header.
    asyncio does so itself, but not for the socket that Streamlit makes, which does not name its protocol."""
    connected = transport.get_extra_info("socket")
    if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def timed(receive: Callable[[], Awaitable[dict[str, Any]]]) -> Callable[[], Awaitable[dict[str, Any]]]:
    """``receive`` of a request, raising TooSlow where its body does not come in time."""
    begun, got, complete = time.monotonic(), 0, False

    async def next_message() -> dict[str, Any]:
        nonlocal got, complete
        if complete:
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), PAUSE_S)
        except TimeoutError:
            raise TooSlow from None
        got += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if not complete and time.monotonic() - begun > PAUSE_S + got / RATE:
            raise TooSlow
        return message

    return next_message
