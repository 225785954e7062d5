"""What one instance says to another: events as CloudEvents that keep their trace, out and in. Pure.

Written by the deliverer of instances, read by the door. Who says it and how far that is trusted is never in it: the receiver
stamps that, by the key that signed it. An event that goes to an agent there is a message; what answers it comes back as an
answer, names the event that was sent, and finds its room by the sender's own journal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.events import DEFAULT_GROUP, Event
from rucher.protocol.ids import is_id

CONTENT_TYPE = "application/cloudevents+json"
ANSWERS = frozenset({"answer", "failure", "question"})
"""The types of what comes back; everything else is a message to whoever lives there."""
MOST_VIA = 64
"""The most agents that a chain names."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Arrived:
    """An event of another instance as this one appends it: the door adds who says it, and how far that is trusted."""

    type: str
    trace_id: str
    addressed_to: str | None
    body: Mapping[str, Any] = field(default_factory=dict)


def leaving(event: Event, key: str, instance: str, to: str | None, asked: Event | None) -> dict[str, Any]:
    """The event as it goes out under `key`. `to`: the agent that it is for, there. `asked`: the event that it answers.

    What answers an event of the other instance names that one; `asked` is then the event that it became here.
    """
    origin = asked.body.get("origin") if asked is not None else None
    answers = event.type in ANSWERS and isinstance(origin, Mapping)
    at = (_EPOCH + timedelta(microseconds=event.occurred_at)).isoformat(timespec="microseconds")
    said: dict[str, Any] = {
        "text": str(event.body.get("text", "")), "group": str(event.body.get("group", DEFAULT_GROUP)),
        "thread": str(event.body.get("thread", "")), "via": list(event.body.get("via", ()))[-MOST_VIA:],
        "depth": int(event.body.get("depth", 0)) + 1,
    }  # fmt: skip
    if answers and isinstance(origin, Mapping):
        said["in_reply_to"] = origin["event"]
    if to is not None:
        said["to"] = to
    if event.body.get("automatic"):
        said["automatic"] = True
    return {
        "specversion": "1.0", "id": key, "source": f"rucher:{instance}/{event.source}",
        "type": event.type if answers else "message", "time": at.replace("+00:00", "Z"),
        "datacontenttype": "application/json", "traceid": event.trace_id, "eventid": event.id, "data": said,
    }  # fmt: skip


def asked_by(record: Mapping[str, Any]) -> str | None:
    """The id of the event of ours that this one answers, to be looked up before `arriving`; None when it answers none."""
    data = record.get("data")
    found = data.get("in_reply_to") if isinstance(data, Mapping) else None
    return found if isinstance(found, str) and is_id(found) else None


def arriving(record: Mapping[str, Any], asked: Event | None) -> Arrived:
    """What `leaving` wrote as `record`, as it is appended here. `asked` is our event of the id that `asked_by` gave.

    Raises BadInput for anything else, and for an answer to what was never asked here.
    """
    data, trace_id, kind = record.get("data"), record.get("traceid"), record.get("type")
    if record.get("specversion") != "1.0" or not isinstance(data, Mapping):
        raise BadInput("this is no CloudEvent 1.0 with data; another instance sends one by itself")
    if not isinstance(trace_id, str) or not is_id(trace_id) or not is_id(str(record.get("eventid"))):
        raise BadInput("this CloudEvent names no trace and no event of the instance that sent it")
    body = {**_talk(data), "origin": {"event": record["eventid"], "source": str(record.get("source", ""))[:200]}}
    if kind not in ANSWERS:
        to = data.get("to")
        return Arrived("message", trace_id, f"agent:{to}" if isinstance(to, str) and to else None, body)
    if asked is None or asked.trace_id != trace_id:
        raise BadInput("this answers nothing that this instance said in that trace")
    return Arrived(str(kind), trace_id, *_back(asked, body))


def _back(asked: Event, body: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Where an answer to `asked` belongs, and its body as the room, or the agent that asked, expects it."""
    group, thread = str(asked.body.get("group", DEFAULT_GROUP)), str(asked.body.get("thread", ""))
    home = {**body, "group": group, "thread": thread, "in_reply_to": asked.id}
    if asked.type == "ask" and asked.principal.startswith("agent:"):
        return asked.principal, {**home, "answers": asked.id, "reply_topic": f"reply:{asked.id}"}
    if asked.source == "agent":
        return asked.principal, home
    return f"group:{asked.source}:{group}", home


def _talk(data: Mapping[str, Any]) -> dict[str, Any]:
    via, depth = data.get("via", []), data.get("depth", 1)
    texts = [data.get(name, "") for name in ("text", "group", "thread")]
    if not all(isinstance(text, str) for text in texts) or not isinstance(via, list) or not isinstance(depth, int):
        raise BadInput("the data of this CloudEvent is not text, group, thread, via and depth")
    if len(via) > MOST_VIA or not all(isinstance(name, str) for name in via):
        raise BadInput(f"via names more than {MOST_VIA} agents, or something else")
    said: dict[str, Any] = dict(zip(("text", "group", "thread"), texts, strict=True))
    said |= {"via": via, "depth": max(0, depth)}
    return {**said, "automatic": True} if data.get("automatic") is True else said
