"""The HTTP server inside the daemon: a loopback socket taken before anything else starts, and uvicorn on it.

A connection on which no whole head of a request arrives in time is closed: strangers who begin and never go on do not pile up.
"""

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from rucher.protocol.errors import BadInput

LOOPBACK = "127.0.0.1"
MOST_FILES = 65_536
FAREWELL_S = 1
"""Seconds that a request may still take once the daemon stops."""
HEAD_S = 10.0
"""Seconds in which the head of a request must have arrived, from its first byte or from the beginning of the connection."""


def listen(port: int, config: str) -> socket.socket:
    """A listening socket on the loopback address; raises BadInput when another program has the port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise BadInput(
                f"port {port} is in use or not allowed; set another one as daemon.port in {config}"
            ) from error
        raise
    return listener


def allow_many_files() -> None:
    """Let this process open as many files as the machine allows it: each connection, session and sandbox needs some."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Signals belong to the daemon, which stops everything in order."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Impatient(H11Protocol):
    """Waits `HEAD_S` for the head of a request, and no longer."""

    _deadline: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's own
        super().connection_made(transport)
        self._watch()

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._relax()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Begin to wait when no request is under way, and end it when one is."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._relax()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_S, self.transport.close)

    def _relax(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


async def serve(app: ASGIApp, listener: socket.socket) -> None:
    """Answer requests until cancelled; those under way then have a moment to end."""
    config = uvicorn.Config(
        app, http=_Impatient, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=FAREWELL_S
    )
    server = _Server(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise
