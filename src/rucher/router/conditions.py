"""The conditions of a rule's `match`: what each key of the file means for an event. Pure.

Built by `rucher.router.parse`, tried by `rucher.router.rules`. A new key is a new entry of `_MEANINGS`; those about the body
are in `rucher.router.bodies`.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Event, Trust
from rucher.protocol.subjects import matches
from rucher.router.expressions import expression

BODY = "body"
"""The key of a `match` whose table asks about fields of the body; see `rucher.router.bodies`."""

SUBJECT_PARTS = 4
"""The fewest parts that a subject has: ev, tenant, source and type."""

_SOURCE_PART = 2

PREFIXED = frozenset({"principal", "addressed_to", "group"})
"""The keys whose value may end in `*`."""

Test = Callable[[Event], bool]


class Anchor(NamedTuple):
    """A literal that an event must carry for a condition to hold, by which rules are found without trying them all.

    `place` is the part of the subject for the key `subject`, else the length of the prefix compared (None: all of it).
    """

    key: str
    place: int | None
    value: str


@dataclass(frozen=True, slots=True)
class Condition:
    """One key of a `match` with its value as the file says it. Two conditions are equal when they say the same."""

    key: str
    wanted: str
    holds: Test = field(compare=False, repr=False)
    anchors: tuple[Anchor, ...] = field(default=(), compare=False, repr=False)


def condition(key: str, wanted: str) -> Condition:
    """What `key = wanted` asks of an event; raises BadInput, without a place, for a value that cannot be used."""
    if not wanted:
        raise BadInput(f'{key} = "" asks for nothing; leave the key out')
    return _MEANINGS[key](key, wanted)


def covers(earlier: Condition, later: Condition) -> bool:
    """Whether every event for which `later` holds is surely one for which `earlier`, of the same key, holds."""
    if earlier.key == "trust":
        return Trust[earlier.wanted.upper()] <= Trust[later.wanted.upper()]
    if earlier.key == "subject":
        return _subject_covers(earlier.wanted.split("."), later.wanted.split("."))
    if earlier.key in PREFIXED and earlier.wanted.endswith("*"):
        return later.wanted.removesuffix("*").startswith(earlier.wanted[:-1])
    if earlier.wanted == later.wanted:
        return True
    return earlier.key.startswith(f"{BODY}.") and frozenset() < _choices(later.wanted) <= _choices(earlier.wanted)


def _choices(wanted: str) -> frozenset[str]:
    """The values of the body that a condition is content with, as JSON; none for one that names no values."""
    try:
        said = json.loads(wanted)
    except ValueError:
        return frozenset()
    return frozenset(json.dumps(one) for one in (said if isinstance(said, list) else [said]))


def admits(principal: Condition, name: str) -> bool:
    """Whether a condition on the principal lets this principal pass."""
    return covers(principal, condition("principal", name))


def field_of(event: Event, key: str) -> str | None:
    """The text that a key other than subject and trust looks at; None where there is none."""
    if key in {"group", "text"}:
        found = event.body.get(key)
        return found if isinstance(found, str) else None
    value: str | None = getattr(event, key)
    return value


def _subject_covers(earlier: list[str], later: list[str]) -> bool:
    if earlier[-1] == ">":
        earlier = earlier[:-1]
        if len(later) <= len(earlier):
            return False
        later = later[: len(earlier)]
    if ">" in later or len(earlier) != len(later):
        return False
    return all(mine in ("*", theirs) for mine, theirs in zip(earlier, later, strict=True))


def _subject(key: str, wanted: str) -> Condition:
    matches(wanted, "ev")
    parts = wanted.split(".")
    if any(part not in {"*", ">"} and set(part) & set("*> ") for part in parts):
        raise BadInput(f"subject pattern {wanted!r}: * and > stand for whole parts, as in ev.*.cli.message")
    if parts[0] not in {"ev", "*", ">"} or (len(parts) < SUBJECT_PARTS and parts[-1] != ">"):
        raise BadInput(f"subject pattern {wanted!r} fits no event; subjects are ev.<tenant>.<source>.<type>")
    if len(parts) > _SOURCE_PART:
        _not_the_control_plane(parts[_SOURCE_PART])
    anchors = tuple(
        Anchor(key, place, part) for place, part in enumerate(parts) if place > 0 and part not in {"*", ">"}
    )
    return Condition(key, wanted, lambda event: matches(wanted, event.subject), anchors)


def _exact(key: str, wanted: str) -> Condition:
    if "*" in wanted:
        raise BadInput(f"{key} = {wanted!r}: {key} is compared whole; use subject for a pattern")
    if key == "source":
        _not_the_control_plane(wanted)
    return Condition(key, wanted, lambda event: field_of(event, key) == wanted, (Anchor(key, None, wanted),))


def _prefixed(key: str, wanted: str) -> Condition:
    prefix = wanted.removesuffix("*")
    if "*" in prefix:
        raise BadInput(f"{key} = {wanted!r}: * may only stand once, at the end")
    if prefix == wanted:
        return _exact(key, wanted)
    anchors = (Anchor(key, len(prefix), prefix),) if prefix else ()

    def holds(event: Event) -> bool:
        found = field_of(event, key)
        return found is not None and found.startswith(prefix)

    return Condition(key, wanted, holds, anchors)


def _trust(key: str, wanted: str) -> Condition:
    minimum = {trust.word: trust for trust in Trust}.get(wanted)
    if minimum is None:
        words = ", ".join(trust.word for trust in sorted(Trust, reverse=True))
        raise BadInput(f"trust = {wanted!r} is not a degree of trust; use one of {words}")
    return Condition(key, wanted, lambda event: event.trust >= minimum)


def _text(key: str, wanted: str) -> Condition:
    looked_for = expression(key, wanted)

    def holds(event: Event) -> bool:
        found = field_of(event, key)
        return found is not None and looked_for.found_in(found)

    return Condition(key, wanted, holds)


def _not_the_control_plane(source: str) -> None:
    if source == CONTROL_PLANE:
        raise BadInput(
            f"events of {source} are the control plane's own records and are never routed; name another source"
        )


_MEANINGS: Mapping[str, Callable[[str, str], Condition]] = {
    "subject": _subject,
    "source": _exact,
    "type": _exact,
    "principal": _prefixed,
    "trust": _trust,
    "addressed_to": _prefixed,
    "group": _prefixed,
    "text": _text,
}
MATCH_KEYS = (*_MEANINGS, BODY)
"""The keys that a `match` may have."""
