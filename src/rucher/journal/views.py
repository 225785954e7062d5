"""What each event changes in the views: a pure function from event to statements, applied in the event's own transaction.

The store calls `changes` for every event it takes, and `rebuild` calls it again for all of them: the same events always
give the same views. Runs' views are in `runviews.py`, those of deliveries in `deliveryviews.py`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rucher.journal.deliveryviews import DELIVERY_FOLDS
from rucher.journal.rows import SOURCE, TYPE, Row, event_of
from rucher.journal.runviews import RUN_FOLDS, Change
from rucher.protocol.events import CONTROL_PLANE, Event

MUST_CHANGE = frozenset({"budget.reserve"})
"""Statements that refuse their unit with Exhausted when they change nothing: what they ask for is not there."""


def folds(rows: Sequence[Row]) -> bool:
    """Whether any of these rows may change a view."""
    return any(row[TYPE] in FOLDS and row[SOURCE] == CONTROL_PLANE for row in rows)


def changes(row: Row) -> Iterator[Change]:
    """The view statements that this event causes, in order; none for most events, and none for a run's plain steps."""
    fold = FOLDS.get(row[TYPE]) if row[SOURCE] == CONTROL_PLANE else None
    return fold(event_of(row)) if fold else iter(())


def _hop_made(event: Event) -> Iterator[Change]:
    body = event.body
    yield "hop.made", {
        "hop_id": event.id, "seq": event.seq, "event_id": body["event"], "trace_id": event.trace_id,
        "rule_id": body["rule"], "dest": body["to"], "mode": body.get("mode", "wake"),
        "session_mode": body.get("session", "per-thread"), "at": event.recorded_at,
    }  # fmt: skip
    yield "cursor.advance", {"name": "router", "seq": body["event_seq"]}


def _route_dropped(event: Event) -> Iterator[Change]:
    yield "cursor.advance", {"name": "router", "seq": event.body["event_seq"]}


def _hop_acknowledged(event: Event) -> Iterator[Change]:
    body = event.body
    yield "hop.acknowledged", {"hop_id": body["hop"], "session_id": body.get("session"), "at": event.recorded_at}


def _hop_detail(event: Event) -> Iterator[Change]:
    yield "hop.detail", {"hop_id": event.body["hop"], "detail": event.body["reason"], "at": event.recorded_at}


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


FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "hop.made": _hop_made,
    "route.dropped": _route_dropped,
    "hop.acknowledged": _hop_acknowledged,
    "hop.retrying": _hop_detail,
    "hop.failed": _hop_becomes("failed"),
    "session.opened": _session_opened,
    "session.stopped": _session_becomes("stopped"),
    "session.restarted": _session_becomes("open"),
    **DELIVERY_FOLDS,
    **RUN_FOLDS,
}
"""By the type of a control-plane event."""
VIEWS = ("cursors", "hops", "deliveries", "sessions", "runs", "waits", "signals", "budgets", "steers", "artifacts")
"""The tables that `changes` fills, and that a rebuild empties first."""
