"""The gate before the interface: no request gets further without the instance's token, or with more than it may bring.

Wrapped around the application by `rucher.control.api`, so that not one byte of a stranger's body is read.
"""

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from rucher.control.problems import problem

MOST_BYTES = 1 << 20
"""The largest body of a request."""
_CLOSED = "this needs the instance's token, which is in its file state/token; commands read it by themselves"


class Gate:
    """ASGI middleware that demands `Authorization: Bearer TOKEN` and bounds the body."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] != "http":
            return
        headers = dict(scope["headers"])
        if not hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
            await problem(403, "Denied", _CLOSED)(scope, receive, send)
        elif not _small(headers):
            detail = f"a request may have up to {MOST_BYTES:,} bytes, with its length given; send less"
            await problem(413, "BadInput", detail)(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _small(headers: dict[bytes, bytes]) -> bool:
    """Whether the body is short, by the length that the server holds the client to; one of unknown length is not."""
    length = headers.get(b"content-length", b"0")
    return b"transfer-encoding" not in headers and length.isdigit() and int(length) <= MOST_BYTES
