"""The door: a message from outside is verified, stamped and committed before its sender is told that it arrived.

Called by the control interface and by channels. It never decides where a message goes. Users and rooms are discovered here:
the first message of a day that one of them is seen in brings an event that says so, in the message's own commit.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Draft, Trust, control_event, event_id, message
from rucher.protocol.ids import begun, derived, ulid
from rucher.protocol.ports import Appended, Clock, Entropy, Journal

MOST_TEXT_BYTES = 256 * 1024
MOST_NAME = 200
"""The longest key, principal, group, thread or source, in characters."""
REMEMBERED = 10_000
"""Users and rooms that are known to have been noted today; of any other it is said again, which changes nothing."""
DAY_US = 86_400_000_000
USER = "user:"
"""How the principal of a platform's user begins: `user:SURFACE:NAME`."""

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_GROUP_ADDRESS = re.compile(rf"group:{_NAME.pattern}:{_NAME.pattern}")
_ULID_RANDOMNESS = 10
_SHOWN_NAMES = 5
_TRUST_OF = {"owner": Trust.OWNER, "admin": Trust.MEMBER, "member": Trust.MEMBER}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A message as a surface hands it in, which has verified its `principal`.

    `trust` is the most that the surface can vouch for: of a user, the role decides how much of it counts. `key` is the
    idempotency key of this delivery: handed in twice, it is one event. None stands for a fresh one. `name` is what the
    surface calls the user.
    """

    source: str
    principal: str
    trust: Trust
    text: str
    group: str = "main"
    thread: str = ""
    addressed_to: str | None = None
    key: str | None = None
    name: str = ""


class Roles(Protocol):
    """What users are to this instance, as of now."""

    async def role(self, principal: str) -> str:
        """What this user is to all agents: owner, admin or member; empty for somebody without a role, or blocked.

        Raises Retryable while that cannot be read.
        """
        ...


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
    """Takes messages of one tenant in. `agents` gives the names there are now; it and `roles` are asked at each message."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        entropy: Entropy,
        tenant: str,
        agents: Callable[[], Collection[str]],
        roles: Roles,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._entropy = entropy
        self._tenant = tenant
        self._agents = agents
        self._roles = roles
        self._noted: set[tuple[str, str, int]] = set()

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
            trust=await self._trust(incoming),
            text=incoming.text,
            group=incoming.group,
            thread=incoming.thread,
            addressed_to=incoming.addressed_to,
            occurred_at=now,
        )
        return await self._commit(draft, incoming.group, incoming.name)

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
        return await self._commit(draft, str(incoming.body["group"]))

    async def _commit(self, draft: Draft, group: str, name: str = "") -> Appended:
        unnoted = self._unnoted(draft, f"{draft.source}:{group}", name)
        appended, *_ = await self._journal.append(draft, *unnoted.values())
        if len(self._noted) >= REMEMBERED:
            self._noted.clear()
        self._noted.update(unnoted)
        return appended

    async def _trust(self, incoming: IncomingMessage) -> Trust:
        if not incoming.principal.startswith(USER):
            return incoming.trust
        return min(incoming.trust, _TRUST_OF.get(await self._roles.role(incoming.principal), Trust.PUBLIC))

    def _unnoted(self, draft: Draft, room: str, name: str) -> dict[tuple[str, str, int], Draft]:
        """The events that say that this sender, if he is a user, and this room were seen today, where that was not said yet.

        Once a day, so that it is known when each was last seen, and costs nothing.
        """
        now = draft.occurred_at
        day = now // DAY_US
        seen = {("group.seen", room, day): {"room": room}}
        if draft.principal.startswith(USER):
            seen["user.seen", draft.principal, day] = {"principal": draft.principal, "name": name, "room": room}
        return {what: self._seen(what, body, now) for what, body in seen.items() if what not in self._noted}

    def _seen(self, what: tuple[str, str, int], body: dict[str, str], now: int) -> Draft:
        kind, who, day = what
        return control_event(
            tenant=self._tenant, part="ingress", kind=kind, key=f"{who}:{day}",
            trace_id=derived("trace", self._tenant, kind, who), occurred_at=now, body=body,
        )  # fmt: skip

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
    if incoming.principal.startswith(USER) and not incoming.principal.startswith(f"{USER}{incoming.source}:"):
        raise BadInput(
            f"{incoming.principal[:MOST_NAME]!r} is no user of {incoming.source}; a surface speaks for its own"
        )
    if len(_encoded("name", incoming.name)) > MOST_NAME:
        raise BadInput(f"the sender's name is longer than {MOST_NAME} bytes; shorten it")
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
