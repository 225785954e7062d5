"""Whatever kills the router, and however often, each event has exactly its hops in the end: on a real store."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rucher.journal.store import JournalStore, open_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import CONTROL_PLANE, Draft, Event, Trust, control_event
from rucher.router.decide import decide
from rucher.router.parse import parse
from rucher.router.registry import Registry
from rucher.router.reload import RulesFile
from rucher.router.router import Router
from tests.fakes.clock import settled, until
from tests.fakes.registry import FoldedRegistry
from tests.unit.router.builders import draft

KNOWN = {f"agent:{name}" for name in ("scribe", "a", "b")}
RULES = """\
default = "agent:scribe"

[[rule]]
id = "fan"
match = { text = "both" }
to = ["agent:a", "agent:b"]
continue = true

[[rule]]
id = "sticky"
match = { group = "main" }
to = "agent:a"
engage = "mention-sticky"
otherwise = "context"
"""
EVE = "user:cli:eve"
FROM_EVE = "from eve"
TEXTS = st.sampled_from(["both", "one", "@a hello", "both @a", FROM_EVE])
SCRIPTS = st.lists(st.tuples(st.lists(TEXTS, max_size=6), st.integers(0, 80)), min_size=1, max_size=5)
"""For each life of the router: what is said, and after how many turns of the loop it is killed."""

Hops = list[tuple[str, str, str, str]]


@settings(max_examples=40, deadline=None)
@given(SCRIPTS)
def test_each_event_has_exactly_its_hops_however_the_router_is_killed_and_started_again(
    script: Sequence[tuple[Sequence[str], int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "rules.toml").write_text(RULES)
        events = asyncio.run(_lives(Path(folder), script))
    made = [event.body for event in events if event.type == "hop.made"]
    found = [(body["event"], body["rule"], body["to"], body["mode"]) for body in made]
    assert sorted(found) == sorted(_expected(events))


async def _lives(folder: Path, script: Sequence[tuple[Sequence[str], int]]) -> Sequence[Event]:
    """All events after the router lived and died as the script says, and then lived on until nothing was open."""
    number = 0
    for life, (texts, turns) in enumerate(script):
        async with open_store(folder / "rucher.db", SystemClock()) as store:
            if life == 0:
                await store.append(_word("group.policy", room="cli:eve", policy="ask"))
            async with asyncio.TaskGroup() as group:
                running = group.create_task((await _router(folder, store)).run())
                if texts:
                    await store.append(*(_said(text, number + place) for place, text in enumerate(texts)))
                number += len(texts)
                await settled(turns)
                running.cancel()
    async with open_store(folder / "rucher.db", SystemClock()) as store:
        await store.append(_word("role.granted", principal=EVE, agent="", role="member"))
        async with asyncio.TaskGroup() as group:
            running = group.create_task((await _router(folder, store)).run())
            await until(lambda: _is_routed(store))
            running.cancel()
        return await store.read(0, 10_000)


async def _router(folder: Path, store: JournalStore) -> Router:
    rules = RulesFile(folder / "rules.toml", lambda: KNOWN)
    return Router(store, SystemClock(), rules, FoldedRegistry(store), "home", await store.cursor("router"))


async def _is_routed(store: JournalStore) -> bool:
    events = await store.read(0, 10_000)
    routed = {event.body["event"] for event in events if event.type in ("hop.made", "route.dropped")}
    return all(event.id in routed for event in events if event.source != CONTROL_PLANE)


def _expected(events: Sequence[Event]) -> Hops:
    """The hops that a reader of the rules gives these events, once each, with nothing ever interrupted."""
    rules, registry = parse(RULES, "rules.toml"), Registry()
    hops: Hops = []
    for event in events:
        if event.source != CONTROL_PLANE:
            routes = decide(event, rules, registry).routes
            hops += [(event.id, route.rule_id, route.to, route.mode) for route in routes]
            registry.engaged.update(route.engaged for route in routes if route.engaged)
    return hops


def _said(text: str, number: int) -> Draft:
    if text == FROM_EVE:
        return draft(text, str(number), principal=EVE, trust=Trust.PUBLIC, group="eve")
    return draft(text, str(number))


def _word(kind: str, **body: str) -> Draft:
    return control_event(
        tenant="home",
        part="people",
        kind=kind,
        key=kind,
        trace_id="T" * 26,
        occurred_at=1,
        body={**body, "by": "owner:ana"},
    )
