"""Tells the owner, and the agent concerned, what could not be delivered or may or may not have been.

Started by `rucher.daemon`. Bounded: one notice to the owner a minute at most, however much fails, and never one about a notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from rucher.protocol.backoff import surely
from rucher.protocol.events import Draft, Event, Trust, control_event
from rucher.protocol.ids import begun, caused
from rucher.protocol.ports import Clock, Journal

SOURCE = "notice"
"""The source of what is said to the owner."""
LOOK_EVERY_S = 2.0
PAUSE_S = 60.0
"""Seconds between two notices; what ends badly meanwhile is in the next."""
MOST_AT_ONCE = 500
MOST_TOLD = 10
"""Hops that one notice names; of the others it says how many."""
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Untold:
    """A hop that ended badly, of which nobody was told: `state` is failed or uncertain, `detail` why."""

    hop: str
    event: str
    to: str
    state: str
    detail: str


class BadEnds(Protocol):
    """The journal's view of what ended badly."""

    async def untold(self, limit: int) -> Sequence[Untold]:
        """Up to so many hops that ended badly and that no `delivery.told` names, in order."""
        ...


class Notices:
    """Says to `room` (`surface:group`) what ended badly."""

    def __init__(self, journal: Journal, clock: Clock, ends: BadEnds, tenant: str, room: str) -> None:
        self._journal = journal
        self._clock = clock
        self._ends = ends
        self._tenant = tenant
        self._room = room

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._clock.sleep(PAUSE_S if await self.tell() else LOOK_EVERY_S)

    async def tell(self) -> bool:
        """Tell of all that ended badly and was not told of, in one commit; whether the owner was told anything."""
        found = await surely(self._clock, lambda: self._ends.untold(MOST_AT_ONCE))
        if not found:
            return False
        about = [(end, await self._event(end)) for end in found]
        worth = [(end, event) for end, event in about if event is None or event.source != SOURCE]
        drafts = notices(worth, self._tenant, self._room, self._clock.now())
        told = _told(self._tenant, [end.hop for end in found], self._clock.now())
        await surely(self._clock, lambda: self._journal.append(*drafts, told))
        return bool(worth)

    async def _event(self, end: Untold) -> Event | None:
        return await surely(self._clock, lambda: self._journal.event(end.event))


def notices(about: Sequence[tuple[Untold, Event | None]], tenant: str, room: str, now: int) -> list[Draft]:
    """What is said to the owner, and what each session is told: pure. Each is one event, however many hops it is about."""
    if not about:
        return []
    drafts = [_to_the_owner(about, tenant, room, now)]
    emitted = sorted(
        (
            (str(event.body["session"]), end, event)
            for end, event in about
            if event is not None and "session" in event.body
        ),
        key=lambda each: each[0],
    )
    for session, group in groupby(emitted, key=lambda each: each[0]):
        drafts += _to_the_session(session, [(end, event) for _, end, event in group], now)
    return drafts


def _to_the_owner(about: Sequence[tuple[Untold, Event | None]], tenant: str, room: str, now: int) -> Draft:
    lines = [_line(end, event) for end, event in about[:MOST_TOLD]]
    ends = [end for end, _ in about]
    if len(ends) > MOST_TOLD:
        lines.append(f"and {len(ends) - MOST_TOLD} more")
    if any(end.state == "uncertain" for end in ends):
        lines.append(
            "Look whether it arrived, then say what is true: rucher deliveries resolve HOP delivered | not-delivered"
        )
    if any(end.state == "failed" for end in ends):
        lines.append("Try again or have done with it: rucher deadletters retry HOP | rucher deadletters drop HOP")
    new_id = caused(ends[0].hop, "notice", str(now))
    return Draft(
        id=new_id, tenant=tenant, source=SOURCE, type="notify", principal="system:delivery", trust=Trust.AGENT,
        trace_id=begun(now, "trace", new_id), occurred_at=now, addressed_to=f"group:{room}",
        body={
            "text": "\n".join(lines), "group": room.partition(":")[2], "thread": "", "automatic": True,
            "hops": [end.hop for end in ends[:MOST_TOLD]],
        },
    )  # fmt: skip


def _to_the_session(session: str, about: Sequence[tuple[Untold, Event]], now: int) -> list[Draft]:
    first = about[0][1]
    text = "\n".join(f"{_line(end, event)}\n  It said: {_quoted(event)}" for end, event in about[:MOST_TOLD])
    hops = [end.hop for end, _ in about]
    told = control_event(
        tenant=first.tenant, part="delivery", kind="delivery.told", key=f"{session}:{hops[0]}:{now}",
        trace_id=first.trace_id, parent_id=hops[0], occurred_at=now,
        body={
            "hops": hops, "session": session, "agent": first.principal.removeprefix("agent:"), "text": text,
            "group": first.body.get("group", ""), "thread": first.body.get("thread", ""), "automatic": True,
        },
    )  # fmt: skip
    noted = control_event(
        tenant=first.tenant, part="delivery", kind="session.noted", key=f"{session}:{told.id}",
        trace_id=first.trace_id, parent_id=told.id, occurred_at=now, body={"session": session, "event": told.id},
    )  # fmt: skip
    return [told, noted]


def _told(tenant: str, hops: Sequence[str], now: int) -> Draft:
    key = f"{hops[0]}:{now}"
    return control_event(
        tenant=tenant, part="delivery", kind="delivery.told", key=key, trace_id=begun(now, "trace", "told", key),
        occurred_at=now, body={"hops": list(hops)},
    )  # fmt: skip


def _line(end: Untold, event: Event | None) -> str:
    where = (event and event.addressed_to) or end.to
    what = "may or may not have been delivered" if end.state == "uncertain" else "was not delivered"
    return f"What went to {where} {what}: {end.detail} (hop {end.hop})"


def _quoted(event: Event) -> str:
    text = str(event.body.get("text", ""))
    return f'"{text[:_SHORT]}"' + (" ..." if len(text) > _SHORT else "")
