"""Rows of the two files as the code sees them, and the reading of a row that somebody else wrote.

A row of a wrong type is BadRow: its reader turns that into MailboxCorrupt with the file's name. Named tuples, because
importing dataclasses would cost each runner two megabytes.
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from rucher.mailbox.schema import MAX_REPLY, MAX_SEQ


class Kind(StrEnum):
    """What the host asks for."""

    MESSAGE = "message"
    TOOL_CALL = "tool_call"
    CANCEL = "cancel"


class State(StrEnum):
    """The host's own note about an inbound row."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"
    """The host gave up on it: no runner may take it any more."""


class Reply(StrEnum):
    """What the runner says about an inbound row."""

    PROCESSING = "processing"
    PROGRESS = "progress"
    RESULT = "result"


class Outcome(StrEnum):
    """How a call ended."""

    OK = "ok"
    ERROR = "error"
    UNCERTAIN = "uncertain"
    """It was under way when its runner died, and must not run twice: it may or may not have happened."""


_LARGEST = 2**63 - 1


def cancel_key(key: str) -> str:
    """The key of the row that asks to stop the call under `key`."""
    return f"cancel:{key}"


class BadRow(ValueError):
    """A row or body that the protocol does not allow."""


class InboundRow(NamedTuple):
    """A row of inbound.db; `created_at` is microseconds since the epoch."""

    seq: int
    key: str
    kind: Kind
    created_at: int
    body: Mapping[str, Any]
    state: State


class OutboundRow(NamedTuple):
    """A row of outbound.db; `reply_to` is the seq of the inbound row that it answers."""

    seq: int
    kind: Reply
    reply_to: int
    key: str
    created_at: int
    body: Mapping[str, Any]


class ResultRow(NamedTuple):
    """The end of a call. `truncated` says that `text` is not all there was."""

    seq: int
    key: str
    outcome: Outcome
    text: str
    truncated: bool


class Call(NamedTuple):
    """A tool call as the runner takes it. `claimed` says that a runner before this one had begun it."""

    seq: int
    key: str
    name: str
    arguments: Mapping[str, Any]
    effect: str
    timeout_s: float
    claimed: bool = False


def _parsed(body: object) -> Mapping[str, Any]:
    try:
        value = json.loads(_text(body))
    except (ValueError, RecursionError) as error:
        raise BadRow("a body is not JSON") from error
    if not isinstance(value, dict):
        raise BadRow("a body is not a JSON object")
    return value


def _believed(body: object) -> Mapping[str, Any]:
    """An agent's body, of which nothing is left that could not be stored as UTF-8 JSON and read in any language."""
    if len(_plain(body)) > MAX_REPLY:
        raise BadRow(f"a body has more than {MAX_REPLY} bytes")
    value = _parsed(body)
    try:
        _demand_storable(value)
    except RecursionError as error:
        raise BadRow("a body is nested too deeply") from error
    return value


def _demand_storable(value: object) -> None:
    match value:
        case str():
            _plain(value)
        case int() | float():
            # This order, so that it holds for NaN too.
            if not abs(value) <= _LARGEST:
                raise BadRow("a number is beyond 64 bits, or none")
        case list():
            for item in value:
                _demand_storable(item)
        case dict():
            for name, item in value.items():
                _plain(name)
                _demand_storable(item)
        case _:
            pass


def _plain(text: object) -> bytes:
    try:
        raw = _text(text).encode()
    except UnicodeEncodeError as error:
        raise BadRow("a text holds half of a surrogate pair") from error
    if b"\0" in raw:
        raise BadRow("a text holds a NUL character")
    return raw


def _seq(value: object, parity: int) -> int:
    if not isinstance(value, int) or not 0 < value <= MAX_SEQ or value % 2 != parity:
        raise BadRow(f"{value!r:.40} is not a seq of its side")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadRow(f"{value!r:.40} is not text")
    return value


def _time(value: object) -> int:
    if not isinstance(value, int) or abs(value) > _LARGEST:
        raise BadRow(f"{value!r:.40} is not a time in microseconds")
    return value


def inbound_row(raw: tuple[object, ...]) -> InboundRow:
    """Read (seq, key, kind, created_at, body, state)."""
    seq, key, kind, created_at, body, state = raw
    try:
        return InboundRow(
            _seq(seq, 0), _text(key), Kind(_text(kind)), _time(created_at), _parsed(body), State(_text(state))
        )
    except ValueError as error:
        raise BadRow(str(error)) from error


def outbound_row(raw: tuple[object, ...]) -> OutboundRow:
    """Read (seq, kind, reply_to, key, created_at, body)."""
    seq, kind, reply_to, key, created_at, body = raw
    _plain(key)
    try:
        return OutboundRow(
            _seq(seq, 1), Reply(_text(kind)), _seq(reply_to, 0), _text(key), _time(created_at), _believed(body)
        )
    except ValueError as error:
        raise BadRow(str(error)) from error


def result_row(row: OutboundRow) -> ResultRow:
    """Read the body of a result."""
    truncated = row.body.get("truncated", False)
    if not isinstance(truncated, bool):
        raise BadRow("truncated is neither true nor false")
    try:
        return ResultRow(
            row.seq, row.key, Outcome(_text(row.body.get("outcome"))), _text(row.body.get("text")), truncated
        )
    except ValueError as error:
        raise BadRow(str(error)) from error


def call(row: InboundRow, *, claimed: bool) -> Call:
    """Read the body of a tool_call."""
    body = row.body
    arguments, timeout_s = body.get("arguments"), body.get("timeout_s")
    if not isinstance(arguments, dict) or isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise BadRow(f"the tool call of seq {row.seq} lacks arguments or timeout_s")
    return Call(
        row.seq, row.key, _text(body.get("name")), arguments, _text(body.get("effect")), float(timeout_s), claimed
    )


def storable(text: str) -> str:
    """The same text with what the host would not believe made visible: NUL characters and halves of surrogate pairs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "backslashreplace").decode()


def dumped(body: Mapping[str, Any]) -> str:
    """A body as it stands in a file: compact JSON, ASCII only, so that a lone surrogate cannot break a reader."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
