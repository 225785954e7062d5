"""The door for strangers: `POST /ingress/<source>`, verified by that source's own scheme instead of the instance's token.

Wrapped around the interface by the daemon. A delivery is answered 202 once its event is committed (200 when it was before), or
refused in one line with nothing appended. It never reads more of a body than a source may send, and reads none of it as
anything before its signature was verified.
"""

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rucher.control.problems import problem
from rucher.control.tallies import UNKNOWN, Reason, Tallies
from rucher.protocol.errors import BadInput, Denied, Retryable
from rucher.protocol.ports import Appended, Clock
from rucher.surfaces.ingress import IncomingEvent
from rucher.surfaces.pacing import Bucket
from rucher.surfaces.payloads import FORM, challenge_of, event_of, kind_of, read_payload
from rucher.surfaces.sources import Source
from rucher.surfaces.verification import Delivery, Headers, Scheme, demand_usable, headers_of, verify
from rucher.surfaces.watching import SourceBook

PREFIX = "/ingress/"
READ_S = 20.0
"""Seconds in which a whole body must arrive."""
MOST_HELD = 64 * 1024 * 1024
"""Bytes of bodies that are held at once, of all deliveries that are under way."""
MOST_COMMITTING = 1000
"""Deliveries that may wait for the store at once; whoever comes then is asked to come again."""
COME_AGAIN_S = 1.0
STORE_AGAIN_S = 5.0

Secrets = Callable[[str], tuple[str, ...]]
"""The secrets of a source that count now; raises BadInput when they cannot be read."""
Accept = Callable[[IncomingEvent], Awaitable[Appended]]


class _Refused(Exception):
    """This delivery is not taken."""

    def __init__(self, status: int, reason: Reason, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status = status
        self.reason = reason
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _Gone(Exception):
    """The sender went away."""


@dataclass(slots=True)
class _Letter:
    """A delivery on its way in: which source it claims, and how far it was read."""

    source: str = UNKNOWN
    whole: bool = False
    body: bytearray = field(default_factory=bytearray)


class Doors:
    """ASGI middleware that answers all below `/ingress/`, and lets everything else through to `app`."""

    def __init__(
        self, app: ASGIApp, book: SourceBook, secrets: Secrets, accept: Accept, clock: Clock, tallies: Tallies
    ) -> None:
        self._app = app
        self._book = book
        self._secrets = secrets
        self._accept = accept
        self._clock = clock
        self._tallies = tallies
        self._buckets: dict[str, Bucket] = {}
        self._held = 0
        self._committing = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a delivery, or let the request through."""
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        letter = _Letter()
        try:
            response = await self._answer(scope, receive, letter)
        except _Refused as refusal:
            self._tallies.refused(letter.source, refusal.reason)
            response = problem(refusal.status, refusal.reason.value, str(refusal), refusal.headers)
        except _Gone:
            self._tallies.refused(letter.source, Reason.GONE)
            return
        finally:
            self._held -= len(letter.body)
        if not letter.whole:
            # What is still to come is not read, so the connection is of no more use.
            response.headers["connection"] = "close"
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, letter: _Letter) -> Response:
        source = self._source(scope, letter)
        headers = headers_of(scope["headers"])
        secrets = self._secrets_of(source)
        kind = _kind(source, headers)
        await self._read(source, headers, receive, letter)
        delivery = Delivery(headers, bytes(letter.body), self._clock.now())
        try:
            verified = verify(source.scheme, secrets, delivery)
        except Denied as error:
            realm = {"www_authenticate": "Bearer"} if source.scheme is Scheme.BEARER else {}
            raise _Refused(401, Reason.SIGNATURE, f"{error}; nothing was taken", **realm) from error
        except BadInput as error:
            raise _Refused(400, Reason.MALFORMED, str(error)) from error
        payload = _payload(kind, delivery.body)
        if (challenge := challenge_of(source, payload)) is not None:
            return JSONResponse({"challenge": challenge})
        self._demand_pace(source)
        try:
            incoming = event_of(source, verified, delivery, payload)
            appended = await self._commit(incoming)
        except BadInput as error:
            raise _Refused(422, Reason.UNUSABLE, str(error)) from error
        self._tallies.took(source.name, first=appended.first)
        return _taken(source, kind, appended)

    def _source(self, scope: Scope, letter: _Letter) -> Source:
        source = self._book.find(scope["path"].removeprefix(PREFIX))
        if source is None:
            raise _Refused(404, Reason.NO_SOURCE, "there is no source of this name; see `rucher sources list`")
        letter.source = source.name
        if scope["method"] != "POST":
            raise _Refused(405, Reason.METHOD, "deliveries come by POST; send it so", allow="POST")
        return source

    def _secrets_of(self, source: Source) -> tuple[str, ...]:
        if source.scheme is Scheme.ED25519:
            return source.public_keys
        with contextlib.suppress(BadInput):
            secrets = self._secrets(source.name)
            for secret in secrets:
                demand_usable(source.scheme, secret)
            if secrets:
                return secrets
        detail = "this source has no usable secret here; its owner sees why in `rucher sources list`"
        raise _Refused(503, Reason.NO_SECRET, detail)

    async def _read(self, source: Source, headers: Headers, receive: Receive, letter: _Letter) -> None:
        """The whole body, unless it is larger than the source may send, by its length or by what arrives."""
        too_large = _Refused(
            413, Reason.TOO_LARGE, f"a delivery of this source may have up to {source.max_bytes:,} bytes; send less"
        )
        length = headers.get("content-length", "")
        if length.isdigit() and int(length) > source.max_bytes:
            raise too_large
        try:
            async with asyncio.timeout(READ_S):
                while not letter.whole:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _Gone
                    self._hold(message.get("body", b""), letter)
                    if len(letter.body) > source.max_bytes:
                        raise too_large
                    letter.whole = not message.get("more_body", False)
        except TimeoutError as error:
            detail = f"the body did not arrive within {READ_S:.0f} s; send it faster"
            raise _Refused(408, Reason.TOO_SLOW, detail) from error

    def _hold(self, part: bytes, letter: _Letter) -> None:
        if self._held + len(part) > MOST_HELD:
            raise _busy()
        self._held += len(part)
        letter.body += part

    def _demand_pace(self, source: Source) -> None:
        if source.rate is None:
            return
        now = self._clock.monotonic()
        bucket = self._buckets.get(source.name)
        if bucket is None or bucket.rate != source.rate:
            bucket = self._buckets[source.name] = Bucket(source.rate, now)
        if wait := bucket.take(now):
            raise _Refused(
                429,
                Reason.TOO_FAST,
                "this source sends faster than its rate; send it again later",
                retry_after=_whole(wait),
            )

    async def _commit(self, incoming: IncomingEvent) -> Appended:
        if self._committing >= MOST_COMMITTING:
            raise _busy()
        self._committing += 1
        try:
            return await self._accept(incoming)
        except Retryable as error:
            wait = _whole(error.retry_after or STORE_AGAIN_S)
            detail = "the store cannot write just now, and nothing was taken; send it again later"
            raise _Refused(503, Reason.STORE, detail, retry_after=wait) from error
        finally:
            self._committing -= 1


def _kind(source: Source, headers: Headers) -> str:
    kind = kind_of(source.scheme, headers)
    if kind is None:
        given = headers.get("content-type", "")[:100] or "none"
        raise _Refused(
            415, Reason.CONTENT_TYPE, f"the content type {given!r} is not taken; send application/json in UTF-8"
        )
    return kind


def _payload(kind: str, body: bytes) -> Any:
    try:
        return read_payload(kind, body)
    except BadInput as error:
        raise _Refused(400, Reason.MALFORMED, str(error)) from error


def _taken(source: Source, kind: str, appended: Appended) -> Response:
    if source.scheme is Scheme.SLACK and kind == FORM:
        # Slack shows the body of an answer to a command in the chat.
        return Response(status_code=200)
    event = appended.event
    body = {"event_id": event.id, "trace_id": event.trace_id, "duplicate": not appended.first}
    return JSONResponse(body, 202 if appended.first else 200)


def _busy() -> _Refused:
    detail = "more arrives than can be stored just now, and this was not taken; send it again later"
    return _Refused(429, Reason.BUSY, detail, retry_after=_whole(COME_AGAIN_S))


def _whole(seconds: float) -> str:
    return str(max(1, math.ceil(seconds)))
