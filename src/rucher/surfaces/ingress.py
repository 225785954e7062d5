"""The door: a message from outside is verified, stamped and committed before its sender is told that it arrived.

Called by the control interface and by channels. It never decides where a message goes.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Draft, Trust, event_id, message
from rucher.protocol.ids import begun, ulid
from rucher.protocol.ports import Appended, Clock, Entropy, Journal

MOST_TEXT_BYTES = 256 * 1024
MOST_NAME = 200
"""The longest key, principal, group, thread or source, in characters."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_GROUP_ADDRESS = re.compile(rf"group:{_NAME.pattern}:{_NAME.pattern}")
_ULID_RANDOMNESS = 10
_SHOWN_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A message as a surface hands it in; the surface has verified and stamped `principal` and `trust`.

    `key` is the idempotency key of this delivery: handed in twice, it is one event. None stands for a fresh one.
    """

    source: str
    principal: str
    trust: Trust
    text: str
    group: str = "main"
    thread: str = ""
    addressed_to: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingEvent:
    """What a source hands in that is no chat message; its door has verified it, and stamped all of it but `body`.

    `key` is as of a message. `body` holds at least `text`, `group` and `thread`.
    """

    source: str
    type: str
    principal: str
    trust: Trust
    body: Mapping[str, Any]
    addressed_to: str | None = None
    key: str | None = None
    trace_id: str | None = None
    """The trace that it goes on, where its source may say so; None begins one."""


class Ingress:
    """Takes messages of one tenant in. `agents` gives the names there are now; it is asked at each message."""

    def __init__(
        self, journal: Journal, clock: Clock, entropy: Entropy, tenant: str, agents: Callable[[], Collection[str]]
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._entropy = entropy
        self._tenant = tenant
        self._agents = agents

    async def accept(self, incoming: IncomingMessage) -> Appended:
        """Commit the message and return its event, the first one where its key came before.

        Raises BadInput for what cannot be used, in one line for the sender, and Retryable while the journal cannot
        write; in both cases nothing was appended.
        """
        _verify(incoming)
        if incoming.addressed_to is not None:
            self._verify_address(incoming.addressed_to, incoming.principal)
        now = self._clock.now()
        key = incoming.key
        draft = message(
            tenant=self._tenant,
            source=incoming.source,
            key=ulid(now, self._entropy.bytes(_ULID_RANDOMNESS)) if key is None else key,
            principal=incoming.principal,
            trust=incoming.trust,
            text=incoming.text,
            group=incoming.group,
            thread=incoming.thread,
            addressed_to=incoming.addressed_to,
            occurred_at=now,
        )
        (appended,) = await self._journal.append(draft)
        return appended

    async def accept_event(self, incoming: IncomingEvent) -> Appended:
        """Commit an event from a source and return it, the first one where its key came before; raises as `accept` does."""
        if incoming.addressed_to is not None:
            self._verify_address(incoming.addressed_to, incoming.principal)
        text = str(incoming.body["text"])
        if (size := len(_encoded("text", text))) > MOST_TEXT_BYTES:
            raise BadInput(f"the text has {size} bytes, at most {MOST_TEXT_BYTES} are taken; send less")
        now = self._clock.now()
        key = ulid(now, self._entropy.bytes(_ULID_RANDOMNESS)) if incoming.key is None else incoming.key
        new_id = event_id(self._tenant, incoming.source, key)
        draft = Draft(
            id=new_id,
            tenant=self._tenant,
            source=incoming.source,
            type=incoming.type,
            principal=incoming.principal,
            trust=incoming.trust,
            trace_id=incoming.trace_id or begun(now, "trace", new_id),
            occurred_at=now,
            addressed_to=incoming.addressed_to,
            body=incoming.body,
        )
        (appended,) = await self._journal.append(draft)
        return appended

    def _verify_address(self, address: str, principal: str) -> None:
        if address == principal:
            raise BadInput(f"{principal} cannot address itself; address another agent or a group")
        if _GROUP_ADDRESS.fullmatch(address):
            return
        kind, _, name = address.partition(":")
        if kind != "agent":
            raise BadInput(f"{address[:MOST_NAME]!r} is no address; write agent:NAME or group:SURFACE:GROUP")
        agents = self._agents()
        if name not in agents:
            raise BadInput(f"there is no agent {name[:MOST_NAME]!r}; {_nearest(name, agents)}")


def _verify(incoming: IncomingMessage) -> None:
    size = len(_encoded("text", incoming.text))
    if not incoming.text.strip():
        raise BadInput("the message has no text; say something")
    if size > MOST_TEXT_BYTES:
        raise BadInput(f"the message has {size} bytes, at most {MOST_TEXT_BYTES} are taken; put the rest in a file")
    if not _NAME.fullmatch(incoming.source) or incoming.source == CONTROL_PLANE:
        raise BadInput(f"{incoming.source!r} cannot be the source of a message; use the name of a surface")
    _verify_length("principal", incoming.principal)
    if incoming.key is not None:
        _verify_length("key", incoming.key)
    _verify_name("group", incoming.group)
    if incoming.thread:
        _verify_name("thread", incoming.thread)


def _verify_length(what: str, value: str) -> None:
    _encoded(what, value)
    if not 0 < len(value) <= MOST_NAME:
        raise BadInput(f"the {what} has {len(value)} characters; between 1 and {MOST_NAME} are taken")


def _verify_name(what: str, value: str) -> None:
    if len(value) > MOST_NAME or not _NAME.fullmatch(value):
        raise BadInput(
            f"{value[:MOST_NAME]!r} cannot be a {what}: use up to {MOST_NAME} small letters, digits, dots, dashes and "
            "underscores, beginning with a letter or digit"
        )


def _encoded(what: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"the {what} is not valid Unicode at character {error.start}; send it as UTF-8") from error


def _nearest(name: str, names: Collection[str]) -> str:
    near = difflib.get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(near)}?"
    shown = sorted(names)[:_SHOWN_NAMES]
    return f"there are {', '.join(shown)}" if shown else "there is none yet: rucher new makes one"
