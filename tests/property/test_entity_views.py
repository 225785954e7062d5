"""Laws of the views of users, rooms and roles under chance: they hold what the router's Registry has learned by itself."""

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.daemon.registrystore import StoredRegistry
from rucher.journal.store import open_store
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ids import derived
from rucher.router.registry import Registry
from tests.fakes.clock import ManualClock
from tests.fakes.drafts import NOW
from tests.fakes.kernel import MEMORY, views_of

users = st.sampled_from(["user:chat:ana", "user:chat:ben"])
agents = st.sampled_from(["", "scribe", "cook"])
rooms = st.sampled_from(["chat:main", "chat:side"])
events = st.sampled_from(["E1", "E2", "E3"])
places = st.fixed_dictionaries(
    {"agent": st.sampled_from(["scribe", "cook"]), "room": rooms, "thread": st.sampled_from(["", "t"])}
)
Tale = tuple[str, Mapping[str, object]]


def kind(event_type: str, /, **body: st.SearchStrategy[object]) -> st.SearchStrategy[Tale]:
    return st.tuples(st.just(event_type), st.fixed_dictionaries(body))


def hop(engaged: Mapping[str, str] | None, event: str) -> Tale:
    body = {"event": event, "event_seq": 1, "rule": "r", "to": "agent:cook"}
    return "hop.made", body | ({"engaged": engaged} if engaged else {})


about_people: st.SearchStrategy[Tale] = st.one_of(
    kind("role.granted", principal=users, agent=agents, role=st.sampled_from(["owner", "admin", "member"])),
    kind("role.revoked", principal=users, agent=agents),
    kind("user.blocked", principal=users),
    kind("user.unblocked", principal=users),
    kind("user.seen", principal=users, name=st.sampled_from(["", "Ana"]), room=rooms),
    kind("user.named", principal=users, name=st.sampled_from(["", "A."])),
)
about_rooms: st.SearchStrategy[Tale] = st.one_of(
    kind("group.seen", room=rooms),
    kind("group.named", room=rooms, name=st.sampled_from(["", "here"])),
    kind("group.policy", room=rooms, policy=st.sampled_from(["", "strict", "ask", "public"])),
)
about_engagement: st.SearchStrategy[Tale] = st.one_of(
    st.builds(hop, st.none() | places, events),
    kind("route.dropped", event=events, event_seq=st.just(1), reason=st.just("x")),
    places.map(lambda place: ("session.reset", {"session": "S", **place})),
)


def drafts(told: Sequence[Tale]) -> list[Draft]:
    return [
        control_event(
            tenant="local",
            part="test",
            kind=name,
            key=str(number),
            trace_id=derived("trace", "t"),
            occurred_at=NOW,
            body=body,
        )
        for number, (name, body) in enumerate(told)
    ]


@pytest.mark.parametrize("tales", [about_people, about_rooms, about_engagement, about_people | about_engagement])
@given(data=st.data())
def test_a_registry_loaded_from_the_views_is_the_one_that_learned_each_event(
    tales: st.SearchStrategy[Tale], data: st.DataObject
) -> None:
    told = data.draw(st.lists(tales, max_size=20))

    async def go(folder: Path) -> None:
        learned = Registry(default_policy="ask")
        async with open_store(folder / "rucher.db", ManualClock()) as store:
            if told:
                for appended in await store.append(*drafts(told)):
                    learned.apply(appended.event)
            assert await StoredRegistry(store, "ask").load() == learned
            for principal in ("user:chat:ana", "user:chat:ben"):
                role = await StoredRegistry(store, "ask").role(principal)
                assert role == learned.roles.get(principal, {}).get("", "")
            before = views_of(folder / "rucher.db")
            await store.rebuild()
            assert views_of(folder / "rucher.db") == before

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        asyncio.run(go(Path(folder)))


holding = st.one_of(
    st.tuples(st.just("route.held"), events),
    st.tuples(st.just("hop.made"), events),
    st.tuples(st.just("route.dropped"), events),
)


@given(st.lists(holding, max_size=12))
def test_a_message_is_held_from_when_it_is_until_it_is_routed_or_dropped(told: Sequence[tuple[str, str]]) -> None:
    seqs = {"E1": 1, "E2": 2, "E3": 3}
    expected: dict[str, None] = {}
    bodies: list[Tale] = []
    for name, event in told:
        about = {"event": event, "event_seq": seqs[event], "principal": "user:chat:ana", "room": "chat:main"}
        bodies.append((name, about | {"reason": "x", "rule": "r", "to": "agent:cook"}))
        if name == "route.held":
            expected[event] = None
        else:
            expected.pop(event, None)

    async def go(folder: Path) -> Sequence[str]:
        async with open_store(folder / "rucher.db", ManualClock()) as store:
            if bodies:
                await store.append(*drafts(bodies))
            assert await store.cursor("router") == max((seqs[event] for _, event in told), default=0)
            return await StoredRegistry(store, "ask").held("user:chat:ana")

    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        assert asyncio.run(go(Path(folder))) == sorted(expected)
