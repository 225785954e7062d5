"""One HTTP endpoint that streams chat completions: the only module of the wire that does I/O.

Used by the adapters `chat` and `embedded`. It never retries, never follows a redirect, never reads proxies or keys from
the environment, and never lets the key into an error.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from typing import Any

import httpx2
from pydantic import SecretStr

from rucher.engine.models.wire import chunks, failures
from rucher.engine.models.wire.reading import Reader
from rucher.protocol.conversation import ModelEvent
from rucher.protocol.errors import BadInput, Permanent, Retryable

_CONNECT_S = 10.0
_LONGEST_REFUSAL = 65536


class Endpoint:
    """A base URL, a key and the connections kept open to it. Raises BadInput for a URL or key that cannot be one."""

    def __init__(self, base_url: str, key: SecretStr | None) -> None:
        self._url = _checked(base_url).rstrip("/") + "/chat/completions"
        self._where = httpx2.URL(self._url).netloc.decode("ascii")
        self._key = _usable(key)
        headers = {"Authorization": f"Bearer {self._key.get_secret_value()}"} if self._key else {}
        self._client = httpx2.AsyncClient(
            headers=headers, trust_env=False, timeout=httpx2.Timeout(None, connect=_CONNECT_S)
        )

    async def stream(
        self, body: Mapping[str, Any], reader: Reader, timeout_s: float
    ) -> AsyncGenerator[ModelEvent, None]:
        """The events of one answer, Finished last, within `timeout_s` in all. Raises Retryable and Permanent."""
        where = f"{self._where}, model {body['model']}"
        deadline = asyncio.get_running_loop().time() + timeout_s
        with _told(where, timeout_s):
            async with asyncio.timeout_at(deadline):
                response = await self._client.send(
                    self._client.build_request("POST", self._url, json=body), stream=True
                )
            try:
                async with asyncio.timeout_at(deadline):
                    await self._check(response, where)
                async for chunk in _chunks(response, deadline):
                    if chunk.error is not None:
                        raise failures.failed_midway(self._without_key(json.dumps(chunk.error)), where)
                    for event in reader.feed(chunk):
                        yield event
                for event in reader.end():
                    yield event
            finally:
                await response.aclose()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _check(self, response: httpx2.Response, where: str) -> None:
        if response.status_code != httpx2.codes.OK:
            text = await self._refusal(response)
            raise failures.refused(response.status_code, response.headers, text, where)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "text/event-stream":
            raise Permanent(
                f"{where}: answered with {kind or 'no content type'}, not with an event stream (check base_url "
                "under [model]; it usually ends in /v1)"
            )

    async def _refusal(self, response: httpx2.Response) -> str:
        text = ""
        async for piece in response.aiter_text():
            text += piece
            if len(text) > _LONGEST_REFUSAL:
                break
        return self._without_key(text)

    def _without_key(self, text: str) -> str:
        """What the endpoint said, without the key should it echo it."""
        return text.replace(self._key.get_secret_value(), "***") if self._key else text


async def _chunks(response: httpx2.Response, deadline: float) -> AsyncIterator[chunks.Chunk]:
    """The chunks until the stream says that it is done, or is closed; each is waited for until the deadline."""
    events = aiter(httpx2.EventSource(response))
    while True:
        async with asyncio.timeout_at(deadline):
            event = await anext(events, None)
        if event is None or event.data.strip() == "[DONE]":
            return
        if event.data:
            yield chunks.parse(event.data)


@contextlib.contextmanager
def _told(where: str, timeout_s: float) -> Iterator[None]:
    """Turn what the network did into what it means."""
    try:
        yield
    except TimeoutError as error:
        raise Retryable(f"{where}: no complete answer within {timeout_s:g} s") from error
    except httpx2.ConnectTimeout as error:
        raise Retryable(f"{where}: no connection within {_CONNECT_S:g} s") from error
    except httpx2.ConnectError as error:
        raise Retryable(f"{where}: cannot be reached ({error})") from error
    except httpx2.TransportError as error:
        raise Retryable(f"{where}: the connection broke ({error or type(error).__name__})") from error


def _checked(base_url: str) -> str:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise BadInput(f"base_url {base_url!r} cannot be read; write it like https://host/v1") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise BadInput(f"base_url {base_url!r} is no web address; write it like https://host/v1")
    if url.userinfo or url.query:
        raise BadInput(f"base_url for {url.host} carries a password or a query; put the key under key_env instead")
    return base_url


def _usable(key: SecretStr | None) -> SecretStr | None:
    if key is None or not key.get_secret_value():
        return None
    if not all("!" <= char <= "~" for char in key.get_secret_value()):
        raise BadInput("the model's key holds a blank, a line end or another character no key has; set it again")
    return key
