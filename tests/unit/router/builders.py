"""Events and rules for the router's tests."""

from typing import Any

from rucher.protocol.events import Draft, Event, Trust, committed, message
from rucher.router.decide import Decision, Dropped, decide
from rucher.router.parse import parse
from rucher.router.registry import Registry
from rucher.router.rules import Route, Rules

HEAD = 'default = "agent:scribe"\n'


def draft(text: str = "hello", key: str = "k", **changes: Any) -> Draft:
    """A message of the owner in the group main of the surface cli, with changes."""
    fields: dict[str, Any] = {
        "tenant": "home",
        "source": "cli",
        "principal": "owner:ana",
        "trust": Trust.OWNER,
        "group": "main",
        "occurred_at": 1_800_000_000_000_000,
    }
    return message(text=text, key=key, **{**fields, **changes})


def event(text: str = "hello", key: str = "k", seq: int = 1, **changes: Any) -> Event:
    """The committed event of such a message."""
    return committed(draft(text, key, **changes), seq, 1_800_000_000_000_001)


def rules(*tables: str, head: str = HEAD) -> Rules:
    """The rules of a file with this default and these [[rule]] tables, each given as its lines."""
    return parse(head + "".join(f"[[rule]]\n{table}\n" for table in tables), "rules.toml")


def decided(found: Event, by: Rules, registry: Registry | None = None) -> Decision:
    """The decision about an event on an instance that knows nobody yet, unless a registry is given."""
    return decide(found, by, registry or Registry())


def routes(found: Event, by: Rules, registry: Registry | None = None) -> tuple[Route, ...]:
    """Where it goes."""
    return decided(found, by, registry).routes


def dropped(found: Event, by: Rules, registry: Registry | None = None) -> str:
    """Why it goes nowhere."""
    decision = decided(found, by, registry)
    assert isinstance(decision.end, Dropped)
    assert decision.routes == ()
    return decision.end.reason
