"""What became of a message, read off its trace: pure, and the same whether the daemon runs or not."""

from collections.abc import Sequence
from dataclasses import dataclass

from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.protocol.replies import emitted, unsaid

ENDINGS = {"answer": "answered", "failure": "failed", "question": "waiting"}
"""What an agent may emit at the end of its turn, and the status it gives the message."""

HOP_ENDINGS = {"hop.failed": "failed", "session.stopped": "stopped"}
"""What may become of a message before any agent works on it: refused for good, or kept until its session is mended."""


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    """The answer to one message; `status` is answered, silent (its agent gives no answer), failed, waiting (on the
    owner), dropped, undelivered, stopped.
    """

    event_id: str
    trace_id: str
    status: str
    answer: str


def outcome(trace: Sequence[Event], event_id: str) -> MessageOutcome | None:
    """How the message ended, once that is known: its reply was delivered or failed to be, or nobody was there to reply."""
    message = next((event for event in trace if event.id == event_id), None)
    if message is None:
        return None
    records = _records(trace)
    made = [event for event in records if event.type == "hop.made" and event.body["event"] == event_id]
    hops = {event.id for event in made}
    elsewhere = {event.id for event in made if event.body["to"].startswith("agent:")}
    away = any(event.type == "delivery.sending" and event.parent_id in elsewhere for event in records)
    replies = [event for event in trace if _ends(event, event_id) and (away or emitted(event))]
    if replies:
        status = _delivered_as(trace, replies[-1])
        said = unsaid(replies[-1]) or replies[-1].body["text"]
        return MessageOutcome(event_id, message.trace_id, status, said) if status else None
    for event in records:
        if event.type in ("delivery.failed", "delivery.uncertain") and event.parent_id in elsewhere:
            return MessageOutcome(event_id, message.trace_id, "failed", event.body["reason"])
        if event.type == "route.dropped" and event.body["event"] == event_id:
            return MessageOutcome(event_id, message.trace_id, "dropped", event.body["reason"])
        if event.type in HOP_ENDINGS and event.parent_id in hops:
            return MessageOutcome(event_id, message.trace_id, HOP_ENDINGS[event.type], event.body["reason"])
    return None


def _records(trace: Sequence[Event]) -> list[Event]:
    """What the control plane recorded: of what others say in a trace, nothing counts as a record."""
    return [event for event in trace if event.source == CONTROL_PLANE]


def _ends(event: Event, event_id: str) -> bool:
    """Whether the event is how a turn about that message ended, or what its agent asks the owner in between."""
    return event.type in ENDINGS and event.body.get("in_reply_to") == event_id


def sessions_of(trace: Sequence[Event], message: Event) -> list[str]:
    """The sessions that took the message in, and where it may wait behind others."""
    records = _records(trace)
    hops = {event.id for event in records if event.type == "hop.made" and event.body["event"] == message.id}
    acknowledged = [event for event in records if event.type == "hop.acknowledged" and event.body["hop"] in hops]
    return [event.body["session"] for event in acknowledged if "session" in event.body]


def _delivered_as(trace: Sequence[Event], reply: Event) -> str | None:
    """The message's status by its reply, or None while the reply is on its way."""
    if unsaid(reply):
        return "silent"
    status = ENDINGS.get(reply.type, "answered")
    records = _records(trace)
    made = [event for event in records if event.type == "hop.made" and event.body["event"] == reply.id]
    # A copy for a webhook says nothing about the room in which the reply is waited for.
    shown = [event for event in made if event.body["to"].startswith("surface:")]
    hops = {event.id for event in shown or made}
    dropped = not made and any(event.type == "route.dropped" and event.body["event"] == reply.id for event in records)
    ends = {event.type for event in records if event.body.get("hop") in hops and _is_an_end(event)}
    if "delivery.delivered" in ends:
        return status
    return "undelivered" if dropped or ends & {"delivery.failed", "delivery.uncertain", "hop.failed"} else None


def _is_an_end(event: Event) -> bool:
    """Whether it ends a hop: a part that was delivered does only when it is the last one."""
    return event.type != "delivery.delivered" or event.body.get("part", 1) == event.body.get("parts", 1)
