"""Event: the immutable record of one thing that happened, and Draft: an event that is not yet in the journal."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from rucher.protocol.ids import begun, caused, derived

CONTROL_PLANE = "rucher"
"""The source whose events record the control plane's own work: kept and shown like any other, never routed."""

DEFAULT_GROUP = "main"
"""The room of a surface that is meant when none is named."""


class Trust(IntEnum):
    """How far the claim of an event's principal was verified; higher is more."""

    PUBLIC = 0
    TOOL = 1
    PARTNER = 2
    AGENT = 3
    MEMBER = 4
    OWNER = 5

    @property
    def word(self) -> str:
        """The name as rules and people write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class RunPosition:
    """Where an event stands in its run's own log.

    `seq` counts from 0 without gaps; `fence` is the position of the acquisition that the event was written under.
    """

    run_id: str
    seq: int
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event as its source hands it in. `occurred_at` is microseconds since the epoch, UTC."""

    id: str
    tenant: str
    source: str
    type: str
    principal: str
    trust: Trust
    trace_id: str
    occurred_at: int
    parent_id: str | None = None
    addressed_to: str | None = None
    body: Mapping[str, Any] = field(default_factory=dict)
    run: RunPosition | None = None

    @property
    def subject(self) -> str:
        """`ev.<tenant>.<source>.<type>`, what rules and readers match."""
        return f"ev.{self.tenant}.{self.source}.{self.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(Draft):
    """A committed event. `seq` is its place in the journal, without gaps; `recorded_at` is when the journal took it."""

    seq: int
    recorded_at: int


def event_id(tenant: str, source: str, key: str) -> str:
    """The id of what comes from outside by `source` under idempotency key `key`: the same delivery always has the same id."""
    return derived("event", tenant, source, key)


def message(  # noqa: PLR0913 - the fields of a record
    *,
    tenant: str,
    source: str,
    key: str,
    principal: str,
    trust: Trust,
    text: str,
    group: str,
    occurred_at: int,
    thread: str = "",
    addressed_to: str | None = None,
) -> Draft:
    """A message from outside, the first event of its trace."""
    new_id = event_id(tenant, source, key)
    return Draft(
        id=new_id,
        tenant=tenant,
        source=source,
        type="message",
        principal=principal,
        trust=trust,
        trace_id=begun(occurred_at, "trace", new_id),
        occurred_at=occurred_at,
        addressed_to=addressed_to,
        body={"text": text, "group": group, "thread": thread},
    )


def control_event(  # noqa: PLR0913 - the fields of a record
    *,
    tenant: str,
    part: str,
    kind: str,
    key: str,
    trace_id: str,
    occurred_at: int,
    parent_id: str | None = None,
    body: Mapping[str, Any] | None = None,
    run: RunPosition | None = None,
) -> Draft:
    """An event by which `part` of the control plane records its work; `key` makes recording it twice in a trace a no-op."""
    return Draft(
        id=caused(trace_id, tenant, CONTROL_PLANE, kind, key),
        tenant=tenant,
        source=CONTROL_PLANE,
        type=kind,
        principal=f"system:{part}",
        trust=Trust.OWNER,
        trace_id=trace_id,
        parent_id=parent_id,
        occurred_at=occurred_at,
        body=body or {},
        run=run,
    )


def committed(draft: Draft, seq: int, recorded_at: int, body: Mapping[str, Any] | None = None) -> Event:
    """The event that `draft` became at place `seq`, with the body as it was stored if that is given."""
    return Event(
        id=draft.id,
        tenant=draft.tenant,
        source=draft.source,
        type=draft.type,
        principal=draft.principal,
        trust=draft.trust,
        trace_id=draft.trace_id,
        occurred_at=draft.occurred_at,
        parent_id=draft.parent_id,
        addressed_to=draft.addressed_to,
        body=draft.body if body is None else body,
        run=draft.run,
        seq=seq,
        recorded_at=recorded_at,
    )
