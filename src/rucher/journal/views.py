"""What each event changes in the views: a pure function from event to statements, applied in the event's own transaction.

The store calls `changes` for every event it takes, and `rebuild` calls it again for all of them: the same events always
give the same views.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rucher.protocol.events import CONTROL_PLANE, Event

Change = tuple[str, Mapping[str, Any]]
"""The name of a statement in views.sql and its parameters."""


def changes(event: Event) -> Iterator[Change]:
    """The view statements that this event causes, in order; none for most events."""
    fold = _FOLDS.get(event.type) if event.source == CONTROL_PLANE else None
    return fold(event) if fold else iter(())


def _hop_made(event: Event) -> Iterator[Change]:
    body = event.body
    yield "hop.made", {
        "hop_id": event.id, "seq": event.seq, "event_id": body["event"], "trace_id": event.trace_id,
        "rule_id": body["rule"], "dest": body["to"], "at": event.recorded_at,
    }  # fmt: skip
    yield "cursor.advance", {"name": "router", "seq": body["event_seq"]}


def _route_dropped(event: Event) -> Iterator[Change]:
    yield "cursor.advance", {"name": "router", "seq": event.body["event_seq"]}


def _hop_acknowledged(event: Event) -> Iterator[Change]:
    body = event.body
    yield "hop.acknowledged", {"hop_id": body["hop"], "session_id": body.get("session"), "at": event.recorded_at}


def _hop_detail(event: Event) -> Iterator[Change]:
    yield "hop.detail", {"hop_id": event.body["hop"], "detail": event.body["reason"], "at": event.recorded_at}


def _hop_sending(event: Event) -> Iterator[Change]:
    yield "hop.sending", {"hop_id": event.body["hop"], "at": event.recorded_at}


def _hop_becomes(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        detail = event.body.get("reason", "")
        yield "hop.state", {"hop_id": event.body["hop"], "state": state, "detail": detail, "at": event.recorded_at}

    return fold


def _session_opened(event: Event) -> Iterator[Change]:
    body = event.body
    yield "session.opened", {
        "session_id": body["session"], "tenant": event.tenant, "agent": body["agent"], "room": body["group"],
        "thread": body["thread"], "at": event.recorded_at,
    }  # fmt: skip


def _session_becomes(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        body = event.body
        yield "session.state", {
            "session_id": body["session"], "state": state, "reason": body.get("reason", ""), "at": event.recorded_at,
        }  # fmt: skip

    return fold


def _run_created(event: Event) -> Iterator[Change]:
    body = event.body
    yield "run.created", {
        "run_id": body["run"], "seq": event.seq, "tenant": event.tenant, "session_id": body["session"],
        "agent": body["agent"], "hop_id": body["hop"], "trace_id": event.trace_id, "model": body["model"],
        "engine_version": body["engine_version"], "at": event.recorded_at,
    }  # fmt: skip


def _run_becomes(state: str | None) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        body = event.body
        yield "run.state", {
            "run_id": body["run"], "state": state or body["state"], "reason": body.get("reason", ""),
            "at": event.recorded_at,
        }  # fmt: skip

    return fold


def _run_finished(event: Event) -> Iterator[Change]:
    yield from _run_becomes(None)(event)
    if "hop" in event.body:
        yield "hop.state", {"hop_id": event.body["hop"], "state": "done", "detail": "", "at": event.recorded_at}


def _step_recorded(event: Event) -> Iterator[Change]:
    usage = event.body.get("usage", {})
    yield "run.step", {
        "run_id": event.body["run"], "input_tokens": usage.get("input_tokens", 0),
        "output_tokens": usage.get("output_tokens", 0), "at": event.recorded_at,
    }  # fmt: skip


_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "hop.made": _hop_made,
    "route.dropped": _route_dropped,
    "hop.acknowledged": _hop_acknowledged,
    "hop.retrying": _hop_detail,
    "hop.failed": _hop_becomes("failed"),
    "delivery.sending": _hop_sending,
    "delivery.deferred": _hop_detail,
    "delivery.delivered": _hop_becomes("delivered"),
    "delivery.failed": _hop_becomes("failed"),
    "delivery.uncertain": _hop_becomes("uncertain"),
    "session.opened": _session_opened,
    "session.stopped": _session_becomes("stopped"),
    "session.restarted": _session_becomes("open"),
    "run.created": _run_created,
    "run.acquired": _run_becomes("running"),
    "run.waiting": _run_becomes("waiting"),
    "run.finished": _run_finished,
    "step.recorded": _step_recorded,
}
VIEWS = ("cursors", "hops", "sessions", "runs")
"""The tables that `changes` fills, and that a rebuild empties first."""
