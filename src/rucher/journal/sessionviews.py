"""What the events of sessions change in the views: who is there, what was said to them unasked, what they have read. Pure.

Called by `views.changes`. A note is an event that a session was given without being woken; its next run reads it, once.
"""

from collections.abc import Callable, Iterator, Mapping

from rucher.journal.runviews import Change
from rucher.protocol.events import Event


def _opened(event: Event) -> Iterator[Change]:
    body = event.body
    yield "session.opened", {
        "session_id": body["session"], "tenant": event.tenant, "agent": body["agent"], "room": body["group"],
        "thread": body["thread"], "at": event.recorded_at,
    }  # fmt: skip


def _becomes(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        body = event.body
        yield "session.state", {
            "session_id": body["session"], "state": state, "reason": body.get("reason", ""), "at": event.recorded_at,
        }  # fmt: skip

    return fold


def _noted(event: Event) -> Iterator[Change]:
    yield "note.taken", {"session_id": event.body["session"], "event_id": event.body["event"], "seq": event.seq}


def _heard(event: Event) -> Iterator[Change]:
    yield "note.heard", {"session_id": event.body["session"], "seq": event.body["up_to"]}


SESSION_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "session.opened": _opened,
    "session.stopped": _becomes("stopped"),
    "session.restarted": _becomes("open"),
    "session.noted": _noted,
    "run.heard": _heard,
}
"""By the type of a control-plane event."""
