"""A strict receiver of signed messages on a real socket: it refuses what a real one refuses, and does as it is told besides.

It verifies with the `standardwebhooks` library, or the v1a signature of an instance with the node's public key; a message
that arrives twice under one `webhook-id` counts once.
"""

import base64
import json
import os
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from typing_extensions import override

KINDS = {"v1": "application/json", "v1a": "application/cloudevents+json"}
STALE_S = 300


@dataclass
class Says:
    """What to answer. `lose`: the message is taken, and the connection reset before the answer."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"thanks"
    lose: bool = False
    hang: bool = False


class Receiver:
    """Secrets or keys that it verifies with, what it says next (in order; then 200), what it took, and what it refused."""

    def __init__(self, secret: str = "", key: VerifyKey | None = None) -> None:
        self.secret = secret
        self.key = key
        self.says: list[Says] = []
        self.url = ""
        self.taken: dict[str, dict[str, Any]] = {}
        self.attempts: list[dict[str, str]] = []
        self.refused: list[str] = []
        self.released = threading.Event()

    def judge(self, headers: dict[str, str], body: bytes) -> str:
        """Why this cannot be taken; empty when it can."""
        kind = "v1a" if self.key else "v1"
        if headers.get("content-type") != KINDS[kind]:
            return f"content-type {headers.get('content-type')}"
        if "content-length" not in headers:
            return "no content-length"
        try:
            if self.key:
                _verify_v1a(self.key, headers, body)
            else:
                Webhook(self.secret).verify(body, headers)
        except (WebhookVerificationError, BadSignatureError, KeyError, ValueError) as error:
            return f"signature: {error}"
        return ""


class _Server(ThreadingHTTPServer):
    """One that takes broken connections for granted."""

    @override
    def handle_error(self, *args: Any) -> None:
        pass


@contextmanager
def receiving(receiver: Receiver, certificate: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """The receiver listening on a loopback port, over TLS where it has a certificate."""

    class Handler(BaseHTTPRequestHandler):
        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            with suppress(OSError):
                _answer(self, receiver)

    server = _Server(("127.0.0.1", 0), Handler)
    if certificate:
        server.socket = certificate.wrap_socket(server.socket, server_side=True)
    receiver.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.released.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _answer(handler: BaseHTTPRequestHandler, receiver: Receiver) -> None:
    headers = {name.lower(): value for name, value in handler.headers.items()}
    receiver.attempts.append(headers | {":path": handler.path})
    says = receiver.says.pop(0) if receiver.says else Says()
    body = handler.rfile.read(int(headers.get("content-length", "0")))
    if why := receiver.judge(headers, body):
        receiver.refused.append(why)
        says = Says(400, body=why.encode())
    if says.hang:
        receiver.released.wait(30)
        return
    if 200 <= says.status < 300:
        receiver.taken.setdefault(headers["webhook-id"], json.loads(body))
    if says.lose:
        _reset(handler)
        return
    handler.send_response(says.status)
    for name, value in says.headers.items():
        handler.send_header(name, value)
    handler.send_header("content-length", str(len(says.body)))
    handler.end_headers()
    handler.wfile.write(says.body)


def _reset(handler: BaseHTTPRequestHandler) -> None:
    """Close the connection as a crash does: with a reset, not an end."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    os.close(handler.connection.detach())


def _verify_v1a(key: VerifyKey, headers: dict[str, str], body: bytes) -> None:
    at = int(headers["webhook-timestamp"])
    if abs(at - time.time()) > STALE_S:  # noqa: TID251 - a real receiver asks its own clock
        raise ValueError("stale")
    (version, signature) = headers["webhook-signature"].split(",")
    if version != "v1a":
        raise ValueError(f"version {version}")
    key.verify(f"{headers['webhook-id']}.{at}.".encode() + body, base64.b64decode(signature))
