"""Rooms, and how much of them one session spans. Pure.

Asked by the dispatcher for its lanes and by the sessions for their ids, so that both mean the same by a session.
"""

from rucher.protocol.events import DEFAULT_GROUP, Event

_INTERNAL = frozenset({"agent", "schedule"})
"""Sources that are no surface: agents speak about the room that they were woken in, schedules about the one they name."""


def room_of(event: Event) -> str:
    """The room that an event was said in, or is about: `surface:group`. What comes by no surface says so itself."""
    if event.source in _INTERNAL and event.body.get("room"):
        return str(event.body["room"])
    return f"{event.source}:{event.body.get('group', DEFAULT_GROUP)}"


def crossing(mode: str, event: Event) -> tuple[str, str]:
    """Room and thread of the session that this event belongs to, where an agent's sessions are cut so.

    `per-thread`: one for each thread of a room. `shared`: one a room, the one that talks outside of threads too.
    `per-agent`: one for all rooms, which is in none of them.
    """
    match mode:
        case "per-agent":
            return "", ""
        case "shared":
            return room_of(event), ""
        case _:
            return room_of(event), str(event.body.get("thread", ""))
