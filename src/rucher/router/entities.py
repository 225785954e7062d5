"""What is ordered about users, rooms and sessions: roles, blocks, names, policies, a new beginning. Each is an event.

Called by the interface. The router's Registry and the journal's views learn from the events; nothing else is changed here.
"""

import difflib
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from rucher.protocol.errors import BadInput, Denied
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ids import derived
from rucher.protocol.ports import Appended, Clock
from rucher.router.authority import ROLES, Wish, refusal

POLICIES = ("strict", "ask", "public")
"""What may become of unknown senders: dropped; held until somebody admits them; heard."""

MOST_NAME = 200
_USER = re.compile(r"user:[a-z0-9][a-z0-9._-]*:.+")
_ROOM = re.compile(r"[a-z0-9][a-z0-9._-]*:[a-z0-9][a-z0-9._-]*")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """Who orders something, and the key that makes an order given twice one order."""

    by: str
    key: str


class EntityStore(Protocol):
    """What these orders need of a store."""

    async def rows(self, statement: str, *parameters: Any) -> Sequence[Row]:
        """The rows of one named statement."""
        ...

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction."""
        ...


class Entities:
    """Every order raises BadInput for what cannot be done as it is, and Denied when its author may not; then nothing changed.

    `agents` gives the names there are now; `end_sandbox` ends a session's sandbox, wherever on this machine it is; `changed`
    is called when an order has been committed, before its author hears of it.
    """

    def __init__(
        self,
        store: EntityStore,
        clock: Clock,
        tenant: str,
        agents: Callable[[], Collection[str]],
        end_sandbox: Callable[[str], Awaitable[None]],
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._tenant = tenant
        self._agents = agents
        self._end_sandbox = end_sandbox
        self._changed = changed

    async def grant(self, order: Order, principal: str, role: str, agent: str = "") -> int:
        """Give the user a role with this agent, or with all; returns how many held messages go on by this."""
        _demand_user(principal)
        if role not in ROLES:
            raise BadInput(f"{role!r} is no role; grant one of {', '.join(ROLES)}")
        self._demand_agent(agent)
        user, roles = await self._user(principal)
        await self._demand_right(order, Wish("grant", role, agent, _greatest(roles, "", agent)))
        fault = ""
        if user is not None and user["blocked"]:
            fault = f"{principal} is blocked; say `rucher users unblock {principal}` first"
        elif roles.get(agent) == role:
            fault = f"{principal} is {role}{_with(agent)} already"
        held = await self._store.rows("held.of", principal)
        body = {"principal": principal, "role": role, "agent": agent}
        return len(held) if await self._record(order, "role.granted", body, fault) else 0

    async def admit(self, order: Order, principal: str) -> int:
        """Make somebody who was seen a member; returns how many held messages go on by this."""
        user, roles = await self._known(principal)
        if roles.get("") in ROLES and not await self._given(order, "role.granted"):
            raise BadInput(f"{user['principal']} is {roles['']} already")
        return await self.grant(order, principal, "member")

    async def revoke(self, order: Order, principal: str, agent: str = "") -> None:
        """Take the user's role with this agent, or the one with all."""
        _, roles = await self._known(principal)
        await self._demand_right(order, Wish("revoke", roles.get(agent, ""), agent, _greatest(roles, "", agent)))
        fault = "" if agent in roles else f"{principal} has no role{_with(agent)}; see `rucher users show {principal}`"
        await self._record(order, "role.revoked", {"principal": principal, "agent": agent}, fault)

    async def block(self, order: Order, principal: str) -> int:
        """Hear the user no more and take all roles from him; returns how many held messages are dropped by this."""
        _demand_user(principal)
        user, roles = await self._user(principal)
        await self._demand_right(order, Wish("block", theirs=_greatest(roles, *roles)))
        fault = f"{principal} is blocked already" if user is not None and user["blocked"] else ""
        held = await self._store.rows("held.of", principal)
        return len(held) if await self._record(order, "user.blocked", {"principal": principal}, fault) else 0

    async def unblock(self, order: Order, principal: str) -> None:
        """Treat the user as any other unknown sender again."""
        user, _ = await self._known(principal)
        await self._demand_right(order, Wish("unblock"))
        fault = "" if user["blocked"] else f"{principal} is not blocked"
        await self._record(order, "user.unblocked", {"principal": principal}, fault)

    async def name_user(self, order: Order, principal: str, name: str) -> None:
        """Call the user so; the empty name leaves him the one that his surface tells."""
        _demand_name(name)
        _, roles = await self._known(principal)
        await self._demand_right(order, Wish("name user", theirs=_greatest(roles, *roles)))
        await self._record(order, "user.named", {"principal": principal, "name": name})

    async def name_group(self, order: Order, room: str, name: str) -> None:
        """Call the room so; the empty name takes its name away."""
        _demand_name(name)
        if not await self._store.rows("room.get", room):
            raise BadInput(_missing("group", room, [row["room"] for row in await self._store.rows("rooms.all")]))
        await self._demand_right(order, Wish("name group"))
        await self._record(order, "group.named", {"room": room, "name": name})

    async def policy(self, order: Order, room: str, policy: str) -> None:
        """Say what becomes of unknown senders in this room, be it seen yet or not; `default` is what the settings say."""
        if not _ROOM.fullmatch(room) or len(room) > MOST_NAME:
            raise BadInput(f"{room[:MOST_NAME]!r} is no group; write SURFACE:GROUP, as in cli:main")
        if policy not in (*POLICIES, "default"):
            raise BadInput(f"{policy!r} is no policy; say one of {', '.join(POLICIES)} or default")
        await self._demand_right(order, Wish("policy"))
        said = "" if policy == "default" else policy
        await self._record(order, "group.policy", {"room": room, "policy": said})

    async def reset(self, order: Order, session: str) -> None:
        """Let the session's next message begin with no history; its files stay, and what goes on now goes on."""
        row = await self._session(session)
        await self._demand_right(order, Wish("reset", agent=row["agent"]))
        body = {name: row[name] for name in ("agent", "room", "thread")}
        await self._record(order, "session.reset", {"session": session, **body})

    async def restart(self, order: Order, session: str) -> None:
        """End the session's sandbox; the next tool call starts another, which settles one that was under way by its effect.

        Raises Retryable for a sandbox that cannot be ended from here.
        """
        row = await self._session(session)
        await self._demand_right(order, Wish("restart", agent=row["agent"]))
        await self._record(order, "session.restarting", {"session": session})
        await self._end_sandbox(session)

    async def _user(self, principal: str) -> tuple[Row | None, dict[str, str]]:
        """The user, if anything is known of him, and his roles by agent."""
        rows = await self._store.rows("user.get", principal)
        roles = await self._store.rows("roles.of", principal)
        return (rows[0] if rows else None), {row["agent"]: row["role"] for row in roles}

    async def _known(self, principal: str) -> tuple[Row, dict[str, str]]:
        user, roles = await self._user(principal)
        if user is None:
            known = [row["principal"] for row in await self._store.rows("users.all")]
            raise BadInput(_missing("user", principal, known))
        return user, roles

    async def _session(self, session: str) -> Row:
        rows = await self._store.rows("session.get", session)
        if not rows:
            raise BadInput(f"there is no session {session[:MOST_NAME]!r}; see `rucher sessions list`")
        return rows[0]

    def _demand_agent(self, agent: str) -> None:
        if agent and agent not in self._agents():
            raise BadInput(_missing("agent", agent, self._agents()))

    async def _demand_right(self, order: Order, wish: Wish) -> None:
        if order.by.startswith("owner:"):
            return
        _, roles = await self._user(order.by)
        if fault := refusal(roles, wish):
            raise Denied(f"{order.by} may not do this: {fault}")

    async def _record(self, order: Order, kind: str, body: Mapping[str, str], fault: str = "") -> bool:
        """Append the order; False when it was given before. Raises BadInput for a fault, unless it was."""
        if fault and not await self._given(order, kind):
            raise BadInput(fault)
        (appended,) = await self._store.append(self._draft(order, kind, body))
        self._changed()
        return appended.first

    async def _given(self, order: Order, kind: str) -> bool:
        return bool(await self._store.rows("event.by_id", self._draft(order, kind, {}).id))

    def _draft(self, order: Order, kind: str, body: Mapping[str, str]) -> Draft:
        draft = control_event(
            tenant=self._tenant, part="entities", kind=kind, key=order.key,
            trace_id=derived("trace", self._tenant, "order", kind, order.key), occurred_at=self._clock.now(),
            body={**body, "by": order.by},
        )  # fmt: skip
        return replace(draft, principal=order.by)


def _greatest(roles: Mapping[str, str], *agents: str) -> str:
    """The highest of the roles with these agents."""
    held = {roles[agent] for agent in agents if agent in roles}
    return next((role for role in ROLES if role in held), "")


def _with(agent: str) -> str:
    return f" with agent {agent}" if agent else ""


def _demand_user(principal: str) -> None:
    if not _USER.fullmatch(principal) or not principal.isprintable() or len(principal) > MOST_NAME:
        raise BadInput(
            f"{principal[:MOST_NAME]!r} is no user of a surface; write user:SURFACE:NAME, as in user:telegram:ana"
        )


def _demand_name(name: str) -> None:
    if len(name) > MOST_NAME or not name.isprintable():
        raise BadInput(f"a name has at most {MOST_NAME} characters, and none that cannot be shown; choose another one")


def _missing(what: str, given: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(given, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"see `rucher {what}s list`"
    return f"there is no {what} {given[:MOST_NAME]!r}; {hint}"
