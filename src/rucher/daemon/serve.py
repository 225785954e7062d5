"""The HTTP server inside the daemon: a loopback socket taken before anything else starts, and uvicorn on it."""

import contextlib
import errno
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from typing_extensions import override

from rucher.protocol.errors import BadInput

LOOPBACK = "127.0.0.1"


def listen(port: int, config: str) -> socket.socket:
    """A listening socket on the loopback address; raises BadInput when another program has the port."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
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


class _Server(uvicorn.Server):
    """Signals belong to the daemon, which stops everything in order."""

    @override
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: FastAPI, listener: socket.socket) -> None:
    """Answer requests until cancelled."""
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, timeout_graceful_shutdown=2)
    server = _Server(config)
    await server.serve(sockets=[listener])
