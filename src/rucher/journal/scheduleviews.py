"""What the events of schedules change in the views: where each one stands, what became of its fires, proposals. Pure.

Called by `views.changes`. A planned time and how far its schedule got are one change, so that neither can be without the other.
"""

from collections.abc import Callable, Iterator, Mapping

from rucher.journal.runviews import Change
from rucher.protocol.events import Event


def _applied(event: Event) -> Iterator[Change]:
    version = event.body["version"]
    for schedule, course in event.body["schedules"].items():
        yield "schedule.taken", {"schedule": schedule, "course": course, "version": version, "at": event.occurred_at}
    yield "schedule.others_gone", {"version": version}


def _came_to(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        body = event.body
        planned_at = body.get("last", body.get("planned_at"))
        yield "fire.recorded", {
            "schedule": body["schedule"], "planned_at": planned_at, "seq": event.seq, "state": state,
            "first_at": body.get("first", planned_at), "times": body.get("times", 1), "late_us": body.get("late_us", 0),
            "event_id": body.get("event", ""), "by_whom": body.get("by", ""), "detail": body.get("reason", ""),
            "at": event.occurred_at,
        }  # fmt: skip
        if not body.get("manual"):
            yield "schedule.reached", {"schedule": body["schedule"], "planned_at": planned_at}

    return fold


def _paused(event: Event) -> Iterator[Change]:
    yield "schedule.paused", {"schedule": event.body["schedule"]}


def _resumed(event: Event) -> Iterator[Change]:
    yield "schedule.resumed", {"schedule": event.body["schedule"], "at": event.occurred_at}


def _proposed(event: Event) -> Iterator[Change]:
    body = event.body
    yield "schedule.proposed", {
        "seq": event.seq, "text": body["text"], "why": body["why"], "principal": body["by"], "at": event.occurred_at,
    }  # fmt: skip


def _decided(event: Event) -> Iterator[Change]:
    body = event.body
    yield "schedule.decided", {
        "proposal": body["proposal"], "state": body["verdict"], "by_whom": body["by"], "at": event.occurred_at,
    }  # fmt: skip


SCHEDULE_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "schedules.applied": _applied,
    "schedule.fired": _came_to("fired"),
    "schedule.missed": _came_to("missed"),
    "schedule.gated": _came_to("gated"),
    "schedule.failed": _came_to("failed"),
    "schedule.paused": _paused,
    "schedule.resumed": _resumed,
    "schedule.proposed": _proposed,
    "schedule.decided": _decided,
}
"""By the type of a control-plane event."""
