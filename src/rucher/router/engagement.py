"""The terms of a rule under which it wakes an agent: who must have said it, and whether the agent must be called. Pure.

Read by `rucher.router.parse`, asked by `rucher.router.rules` once the rule's match holds. Whatever is no agent has no terms.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, Trust
from rucher.protocol.positions import KeyPath
from rucher.protocol.rooms import room_of
from rucher.protocol.tomltext import STRING, Reading, suggestion
from rucher.router.conditions import field_of
from rucher.router.expressions import Expression, expression
from rucher.router.registry import Engagement, Registry

AGENT = "agent:"

WORDS: Mapping[str, Sequence[str]] = {
    "engage": ("always", "mention", "mention-sticky", "pattern"),
    "senders": ("all", "known", "owner"),
    "otherwise": ("drop", "context"),
    "session": ("per-thread", "shared", "per-agent"),
}
"""The keys of a rule that are about agents, and the words that each may have; the first one is meant where none is given."""

TERMS_KEYS = (*WORDS, "pattern")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a rule says beyond match and destinations. `pattern` is there when `engage` is `pattern`."""

    engage: str = "always"
    pattern: Expression | None = None
    senders: str = "all"
    otherwise: str = "drop"
    session: str = "per-thread"

    @property
    def always(self) -> bool:
        """Whether the rule wakes its agents whenever its match holds."""
        return self.engage == "always" and self.senders == "all"

    def lacking(self, agent: str, event: Event, registry: Registry) -> str:
        """Why the event does not wake this agent; empty when it does. Raises Permanent as an expression does."""
        if said := self._sender_lacks(agent, event, registry):
            return said
        match self.engage:
            case "pattern" if self.pattern is not None:
                found = self.pattern.found_in(field_of(event, "text") or "")
                return "" if found else f"its pattern {self.pattern.source!r} is not found in the text"
            case "mention":
                return "" if mentions(event, agent) else f"{agent} is not mentioned"
            case "mention-sticky":
                # What agents say wakes only whom they mention, or two engaged ones would answer each other.
                engaged = not event.principal.startswith(AGENT) and engagement(event, agent) in registry.engaged
                return (
                    ""
                    if engaged or mentions(event, agent)
                    else f"{agent} is not mentioned, nor engaged here by an earlier mention"
                )
            case _:
                return ""

    def engages(self, agent: str, event: Event, registry: Registry) -> Engagement | None:
        """The engagement that begins when this event wakes the agent."""
        here = engagement(event, agent)
        return here if self.engage == "mention-sticky" and here not in registry.engaged else None

    def _sender_lacks(self, agent: str, event: Event, registry: Registry) -> str:
        role = registry.role(event.principal, agent)
        if self.senders == "known" and event.principal.startswith("user:") and not role:
            return f"{event.principal} is not known to {agent}"
        if self.senders == "owner" and event.trust < Trust.OWNER and role != "owner":
            return f"{event.principal} is no owner"
        return ""


ALWAYS = Terms()
"""The terms of a rule that says none."""


def engagement(event: Event, agent: str) -> Engagement:
    """This agent in the room and thread of the event."""
    return Engagement(agent, room_of(event), str(event.body.get("thread", "")))


def mentions(event: Event, agent: str) -> bool:
    """Whether the event calls the agent: `@name` as a word of its text, in its body's `mentions`, or as its address."""
    if event.addressed_to == AGENT + agent:
        return True
    named = event.body.get("mentions", ())
    if isinstance(named, list) and any(isinstance(one, str) and _bare(one) == agent for one in named):
        return True
    text = field_of(event, "text")
    return text is not None and "@" in text and _called(agent).search(text) is not None


def read_terms(table: Mapping[str, Any], to: Sequence[str], at: KeyPath, reading: Reading) -> Terms:
    """The terms that a rule with these destinations says; what is wrong with them goes to `reading`."""
    said = {key: _word(table, key, at, reading) for key in WORDS}
    pattern = _pattern(table, said["engage"], at, reading)
    terms = Terms(pattern=pattern, **said)
    given = [key for key in table if key in TERMS_KEYS]
    if given and to and not any(one.startswith(AGENT) for one in to):
        reading.complain((*at, given[0]), f"{given[0]} is about agents, and this rule sends to none; leave it out")
    elif "otherwise" in table and terms.always:
        reading.complain(
            (*at, "otherwise"), "otherwise has no case: this rule wakes its agents always; add engage or senders"
        )
    return terms


def _word(table: Mapping[str, Any], key: str, at: KeyPath, reading: Reading) -> str:
    words = WORDS[key]
    found = table.get(key, words[0])
    here = (*at, key)
    if reading.holds(found, STRING, here) and found in words:
        return str(found)
    if isinstance(found, str):
        reading.complain(here, f"{key} = {found!r} is none of {', '.join(words)}; {suggestion(found, words)}")
    return words[0]


def _pattern(table: Mapping[str, Any], engage: str, at: KeyPath, reading: Reading) -> Expression | None:
    here = (*at, "pattern")
    if "pattern" not in table:
        if engage == "pattern":
            reading.complain((*at, "engage"), "engage = \"pattern\" asks for one; add pattern = '...'")
        return None
    found = table["pattern"]
    if engage != "pattern":
        reading.complain(here, 'pattern has no use here; add engage = "pattern", or ask for text in match')
    elif reading.holds(found, STRING, here):
        try:
            return expression("pattern", found)
        except BadInput as error:
            reading.complain(here, str(error))
    return None


def _bare(name: str) -> str:
    return name.lower().removeprefix("@").removeprefix(AGENT)


@lru_cache(1024)
def _called(agent: str) -> re.Pattern[str]:
    """`@agent` as a word: in no mail address, and no longer name."""
    return re.compile(rf"(?<!\w)@{re.escape(agent)}(?![\w-]|\.\w)", re.IGNORECASE)
