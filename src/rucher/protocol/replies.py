"""Who waits for what comes of an event: the topic under which the run that asked is told. Pure.

Used where such an event ends (router, dispatcher, sessions) and where a run begins to wait (kernel). It signals nothing itself.
"""

from collections.abc import Mapping

from rucher.protocol.events import Draft, Trust

AGENT = "agent"
"""The source of what agents emit. No door to the outside stamps events with this source and this trust."""
ANSWERS = frozenset({"answer", "failure"})
"""The types by which an agent ends its turn."""


def reply_topic(ask: str) -> str:
    """The topic on which a run waits for the reply to its `ask`, the event with this id."""
    return f"reply:{ask}"


def emitted(event: Draft) -> bool:
    """Whether an agent of this instance said it."""
    return event.source == AGENT and event.trust is Trust.AGENT


def awaited(event: Draft) -> str:
    """The topic on which a run waits for what comes of this event, an `ask` or the reply to one; empty when none does."""
    return str(event.body.get("reply_topic", "")) if emitted(event) else ""


def awaiting(event: Draft) -> Mapping[str, str]:
    """What the record that the event goes no further says of who waits for it."""
    topic = awaited(event)
    return {"reply_topic": topic} if topic else {}


def is_reply(event: Draft) -> bool:
    """Whether it answers an `ask`, and so goes to the run that asked and to no new one."""
    return emitted(event) and event.type in ANSWERS and bool(event.body.get("answers")) and bool(awaited(event))


def unsaid(event: Draft) -> str:
    """Why nobody is told what an agent ended its turn with; empty when somebody is, as is who asked as another agent."""
    if not (emitted(event) and event.body.get("silent")) or event.body.get("answers"):
        return ""
    return str(event.body.get("why") or f"{event.principal} gives no answer")
