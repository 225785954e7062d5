"""Posts one signed message to one address, and says what became of it: what deliverers over HTTP share.

The signature is that of Standard Webhooks (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
the receiver knows a message by its `webhook-id`, so that one that arrives twice counts once. No redirect is followed, no
proxy used, nothing taken from the environment, and of an answer no more is read than is recorded.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2

from rucher import __version__
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.ports import Clock
from rucher.protocol.retrying import retry_after

MOST_READ = 4096
"""Bytes of an answer that are read."""
MOST_SHOWN = 200
"""Characters of an answer that are recorded."""
LONGEST_WAIT_S = 86_400.0
"""The longest time that a receiver can ask to be left alone."""

_US = 1_000_000
_BUSY = frozenset({408, 409, 425, 429})
_SERVER_FAILS = 500
_GONE = 410

Sign = Callable[[bytes], Sequence[str]]
"""The signatures over these bytes, as `v1,...` or `v1a,...`."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to post. `ca` is a file of the authorities that vouch for the server, instead of the well-known ones."""

    url: str
    timeout_s: float
    headers: Mapping[str, str] = field(default_factory=dict)
    ca: str = ""

    @property
    def host(self) -> str:
        """The server, for people."""
        return httpx2.URL(self.url).netloc.decode("ascii")


@dataclass(frozen=True, slots=True)
class Parcel:
    """One message: its key, which is the receiver's idempotency key, and its bytes."""

    key: str
    content_type: str
    body: bytes


async def post(target: Target, parcel: Parcel, sign: Sign, clock: Clock) -> dict[str, Any]:
    """Post the parcel; the receipt is the answer's status and the beginning of its text.

    Raises Retryable when the server is away, busy or says so, also when no answer came: the same key goes again. Raises
    Permanent when the server refuses, or wants it sent elsewhere.
    """
    seconds = clock.now() // _US
    signed = f"{parcel.key}.{seconds}.".encode() + parcel.body
    headers = {
        **target.headers, "content-type": parcel.content_type, "accept-encoding": "identity",
        "user-agent": f"rucher/{__version__}", "webhook-id": parcel.key, "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(sign(signed)),
    }  # fmt: skip
    try:
        async with asyncio.timeout(target.timeout_s):
            status, answered, said = await _exchanged(target, headers, parcel.body)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        raise Retryable(f"{target.host} cannot be reached: {error or 'no connection in time'}") from error
    except TimeoutError as error:
        raise Retryable(f"{target.host} gave no answer within {target.timeout_s:g} s; it goes again") from error
    except httpx2.RequestError as error:
        raise Retryable(
            f"{target.host}: the connection broke ({error or type(error).__name__}); it goes again"
        ) from error
    return _receipt(status, answered, said, target.host)


async def _exchanged(target: Target, headers: Mapping[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
    verify = await asyncio.to_thread(_trusted, target.ca) if target.url.startswith("https:") else False
    async with (
        httpx2.AsyncClient(verify=verify, trust_env=False, timeout=None, follow_redirects=False) as client,
        client.stream("POST", target.url, headers=headers, content=body) as response,
    ):
        said = b""
        async for piece in response.aiter_raw():
            said += piece
            if len(said) > MOST_READ:
                break
        return response.status_code, response.headers, said


@cache
def _trusted(ca: str) -> ssl.SSLContext:
    """The authorities of this file, or the well-known ones; read once, as that takes long."""
    try:
        return ssl.create_default_context(cafile=ca) if ca else httpx2.create_ssl_context(trust_env=False)
    except (OSError, ssl.SSLError) as error:
        raise Retryable(
            f"the certificates in {ca} cannot be read ({error}); correct ca in destinations.toml"
        ) from error


def _receipt(status: int, headers: Mapping[str, str], said: bytes, host: str) -> dict[str, Any]:
    """The receipt of an answer that took the message; any other is an error."""
    shown = " ".join(said.decode("utf-8", "replace").split())[:MOST_SHOWN]
    if status in range(200, 300):
        return {"status": status, "answer": shown}
    told = f"{host} answered {status}{f': {shown}' if shown else ''}"
    if status in _BUSY or status >= _SERVER_FAILS:
        wait = retry_after(headers)
        raise Retryable(told, None if wait is None else min(wait, LONGEST_WAIT_S))
    if status in range(300, 400):
        where = headers.get("location", "")[:MOST_SHOWN]
        raise Permanent(
            f"{told}: it wants this sent to {where!r}; redirects are not followed, write the new url yourself"
        )
    if status == _GONE:
        raise Permanent(f"{told}: it wants no more messages; remove this destination and the rules that name it")
    raise Permanent(told)
