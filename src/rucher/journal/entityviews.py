"""What events say of users, rooms, roles, held messages and engaged agents, as changes of the views. Pure.

Called by `views.changes`. What the router's Registry learns from an event, these views learn too: it is loaded from them.
"""

from collections.abc import Callable, Iterator, Mapping

from rucher.journal.runviews import Change
from rucher.protocol.events import Event


def routed(event: Event) -> Iterator[Change]:
    """What it means here that an event got a hop, or will get none."""
    body = event.body
    yield "held.over", {"event_id": body["event"]}
    if "engaged" in body:
        yield "engaged.added", {name: body["engaged"][name] for name in ("agent", "room", "thread")}


def _user_seen(event: Event) -> Iterator[Change]:
    body = event.body
    yield "user.seen", {
        "principal": body["principal"], "name": body.get("name", ""), "room": body["room"], "at": event.recorded_at,
    }  # fmt: skip


def _user_named(event: Event) -> Iterator[Change]:
    body = event.body
    yield "user.told_of", {"principal": body["principal"]}
    yield "user.named", {"principal": body["principal"], "name": body["name"]}


def _user_blocked(event: Event) -> Iterator[Change]:
    user = {"principal": event.body["principal"]}
    yield "user.told_of", user
    yield "user.blocked", user
    yield "role.all_revoked", user


def _user_unblocked(event: Event) -> Iterator[Change]:
    yield "user.unblocked", {"principal": event.body["principal"]}


def _role_granted(event: Event) -> Iterator[Change]:
    body = event.body
    user = {"principal": body["principal"]}
    yield "user.told_of", user
    yield "user.unblocked", user
    yield "role.granted", {
        **user, "agent": body.get("agent", ""), "role": body["role"], "by": body.get("by", event.principal),
        "at": event.recorded_at,
    }  # fmt: skip


def _role_revoked(event: Event) -> Iterator[Change]:
    yield "role.revoked", {"principal": event.body["principal"], "agent": event.body.get("agent", "")}


def _group_seen(event: Event) -> Iterator[Change]:
    yield "room.seen", {"room": event.body["room"], "at": event.recorded_at}


def _group_named(event: Event) -> Iterator[Change]:
    body = event.body
    yield "room.told_of", {"room": body["room"]}
    yield "room.named", {"room": body["room"], "name": body["name"]}


def _group_policy(event: Event) -> Iterator[Change]:
    body = event.body
    yield "room.told_of", {"room": body["room"]}
    yield "room.policy", {"room": body["room"], "policy": body["policy"]}


def _route_held(event: Event) -> Iterator[Change]:
    body = event.body
    yield "held.added", {
        "event_id": body["event"], "seq": body["event_seq"], "principal": body["principal"], "room": body["room"],
        "reason": body["reason"], "at": event.recorded_at,
    }  # fmt: skip
    yield "cursor.advance", {"name": "router", "seq": body["event_seq"]}


def _session_reset(event: Event) -> Iterator[Change]:
    body = event.body
    yield "session.reset", {"session_id": body["session"], "seq": event.seq, "at": event.recorded_at}
    yield "note.heard", {"session_id": body["session"], "seq": event.seq}
    yield "engaged.over", {name: body[name] for name in ("agent", "room", "thread")}


ENTITY_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "user.seen": _user_seen,
    "user.named": _user_named,
    "user.blocked": _user_blocked,
    "user.unblocked": _user_unblocked,
    "role.granted": _role_granted,
    "role.revoked": _role_revoked,
    "group.seen": _group_seen,
    "group.named": _group_named,
    "group.policy": _group_policy,
    "route.held": _route_held,
    "session.reset": _session_reset,
}
"""By the type of a control-plane event."""
