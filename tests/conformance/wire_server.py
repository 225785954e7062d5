"""A strict chat-completions endpoint on a real socket, which says what it is told to: for tests of what providers do wrong.

It refuses, with status 400, what a real provider refuses: another path, a missing field, a tool result without its call.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

KEY = "sk-a-secret-that-must-not-show"


def piece(delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    chunk = {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    }
    return b"data: " + json.dumps({**chunk, **more}).encode() + b"\n\n"


def usage(prompt: int = 7, cached: int = 3, completion: int = 2) -> bytes:
    """The event that counts tokens, which holds no choice."""
    counted = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return b"data: " + json.dumps({"choices": [], "usage": counted}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


@dataclass
class Said:
    """An answer: status, headers and the bytes of its body, in the pieces in which they leave."""

    body: Sequence[bytes] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})
    cut: bool = False
    """Whether the connection is torn after the body, before the answer's end."""
    stall: bool = False
    """Whether nothing more comes after the body, and the connection stays."""


@dataclass
class WireServer:
    """What to say next, in order; the last is said again; and what was asked."""

    answers: list[Said]
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    aborted: int = 0

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.aborted += 1
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        complaint = _complaint(lines[0], headers, body)
        self.asked.append(body)
        if complaint:
            self.complaints.append(complaint)
            said = refusal(400, complaint)
        else:
            said = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await self._say(said, reader, writer)

    async def _say(self, said: Said, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        fields = {**said.headers, "transfer-encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"HTTP/1.1 {said.status} Said\r\n{lines}\r\n".encode())
        for part in said.body:
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
        if said.stall:
            await reader.read()
            raise ConnectionAbortedError
        if said.cut:
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


@asynccontextmanager
async def serving(*answers: Said) -> AsyncIterator[WireServer]:
    """A running server that says these answers in order."""
    state = WireServer(list(answers))
    server = await asyncio.start_server(state._handle, "127.0.0.1", 0)  # noqa: SLF001 - its own
    async with server:
        host, port = server.sockets[0].getsockname()
        state.url = f"http://{host}:{port}/v1"
        yield state


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> Said:
    """A provider's refusal in its usual shape."""
    body = json.dumps({"error": {"message": message, "type": "error", "code": code, "param": None}}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Said([body], status, {"content-type": "application/json", **named})


def _complaint(request: str, headers: dict[str, str], body: dict[str, Any]) -> str:
    checks: list[tuple[bool, str]] = [
        (request.startswith("POST /v1/chat/completions HTTP/1.1"), f"unknown request {request}"),
        (headers.get("authorization") == f"Bearer {KEY}", "no key"),
        (body.get("stream") is True, "only streams are served"),
        (isinstance(body.get("model"), str), "no model"),
        (isinstance(body.get("max_tokens"), int), "no max_tokens"),
    ]
    wrong = next((text for right, text in checks if not right), "")
    return wrong or _unanswered(body["messages"])


def _unanswered(messages: Sequence[dict[str, Any]]) -> str:
    """A provider's check that every call has its result before anything else is said."""
    owed: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in owed:
                return f"result {message['tool_call_id']} answers no call"
            owed.remove(message["tool_call_id"])
            continue
        if owed:
            return f"calls without result: {owed}"
        owed = [call["id"] for call in message.get("tool_calls", ())]
        if not isinstance(message.get("content"), str) and not owed:
            return "an empty message"
    return f"calls without result: {owed}" if owed else ""
