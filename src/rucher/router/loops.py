"""Where a talk among agents ends: decided from what each emission says of the chain that led to it. Pure.

Asked by `rucher.router.decide`. A stop keeps agents from being woken once more; people still read what was said last.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rucher.protocol.events import Event

HOP_LIMIT = 24
"""The most hops between a first event and what it causes."""

PAIR_CAP = 6
"""The most messages that two agents exchange in turn within one trace."""

CYCLE_CAP = 3
"""The most rounds that three or more agents go in the same order."""

LOOPING = frozenset({"agent", "instance"})
"""The kinds of destinations from which an event may come back."""

_AGENT = "agent:"
_ANSWERS = frozenset({"answer", "failure"})
_PAIR = 2


def stop(event: Event) -> str:
    """Why this event wakes no further agent; empty when it may."""
    body = event.body
    if "via" not in body and "depth" not in body:
        return ""
    depth = body.get("depth", 0)
    if isinstance(depth, int) and depth > HOP_LIMIT:
        return f"hop limit: this is {depth} hops from the first event, and a trace may have {HOP_LIMIT}"
    return _repeating(chain(event))


def silenced(event: Event) -> str:
    """Why an emission goes nowhere at all; empty when it may go where the rules say.

    An emission that answers automatic mail carries `automatic`, as the message did: the other side may be a program that
    answers too. One that is `silent` is a turn that ends without words, and may say `why`. What another agent asked is
    always answered.
    """
    if event.type not in _ANSWERS or not event.principal.startswith(_AGENT):
        return ""
    if (event.addressed_to or "").startswith(_AGENT):
        return ""
    if _says(event.body, "silent"):
        return str(event.body.get("why") or f"{event.principal} gives no answer")
    return "automatic mail is not answered" if _says(event.body, "automatic") else ""


def chain(event: Event) -> Sequence[str]:
    """The agents that led to this event and its own sender, oldest first; the oldest ones of a long chain are left out."""
    via = event.body.get("via", ())
    names = [name.removeprefix(_AGENT) for name in via if isinstance(name, str)] if isinstance(via, list) else []
    if event.principal.startswith(_AGENT):
        own = event.principal.removeprefix(_AGENT)
        if not names or names[-1] != own:
            names.append(own)
    return names[-(HOP_LIMIT + 1) :]


def _repeating(names: Sequence[str]) -> str:
    for period in range(_PAIR, (len(names) - 1) // CYCLE_CAP + 1):
        longest = CYCLE_CAP * period
        tail = names[-longest - 1 :]
        if len(tail) <= longest or any(one != other for one, other in zip(tail, tail[period:], strict=False)):
            continue
        who = sorted(set(tail))
        if len(who) == _PAIR and period == _PAIR:
            return f"pair cap: {who[0]} and {who[1]} have exchanged {PAIR_CAP} messages in turn"
        return f"cycle cap: {', '.join(tail[:period])} have gone {CYCLE_CAP} rounds"
    return ""


def _says(body: Mapping[str, Any], key: str) -> bool:
    return body.get(key) is True
