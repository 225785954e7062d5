"""What each event changes in the views: a pure function from event to statements, applied in the event's own transaction.

The store calls `changes` for every event it takes, and `rebuild` calls it again for all of them: the same events always
give the same views. Each part's are in a module of its own beside this one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from rucher.journal.deliveryviews import DELIVERY_FOLDS
from rucher.journal.entityviews import ENTITY_FOLDS, routed
from rucher.journal.rows import SOURCE, TYPE, Row, event_of
from rucher.journal.runviews import RUN_FOLDS, Change, given_up
from rucher.journal.scheduleviews import SCHEDULE_FOLDS
from rucher.journal.sessionviews import SESSION_FOLDS
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
    yield from routed(event)


def _routed(event: Event) -> Iterator[Change]:
    yield "cursor.advance", {"name": "router", "seq": event.body["event_seq"]}
    yield from routed(event)
    yield from given_up(event)


def _hop_acknowledged(event: Event) -> Iterator[Change]:
    body, at = event.body, event.recorded_at
    yield "hop.acknowledged", {"hop_id": body["hop"], "session_id": body.get("session"), "at": at}
    if body.get("done"):
        yield "hop.state", {"hop_id": body["hop"], "state": "done", "detail": body.get("detail", ""), "at": at}


def _hop_failed(event: Event) -> Iterator[Change]:
    yield from _hop_becomes("failed")(event)
    yield from given_up(event)


def _hop_detail(event: Event) -> Iterator[Change]:
    yield "hop.detail", {"hop_id": event.body["hop"], "detail": event.body["reason"], "at": event.recorded_at}


def _hop_becomes(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        detail = event.body.get("reason", "")
        yield "hop.state", {"hop_id": event.body["hop"], "state": state, "detail": detail, "at": event.recorded_at}

    return fold


FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "hop.made": _hop_made,
    "route.dropped": _routed,
    "hop.acknowledged": _hop_acknowledged,
    "hop.retrying": _hop_detail,
    "hop.failed": _hop_failed,
    **DELIVERY_FOLDS,
    **ENTITY_FOLDS,
    **SESSION_FOLDS,
    **RUN_FOLDS,
    **SCHEDULE_FOLDS,
}
"""By the type of a control-plane event."""
VIEWS = (
    "cursors", "hops", "deliveries", "sessions", "notes", "users", "rooms", "roles", "held", "engaged", "runs", "waits",
    "signals", "budgets", "steers", "artifacts", "schedules", "fires", "schedule_proposals",
)  # fmt: skip
"""The tables that `changes` fills, and that a rebuild empties first."""
