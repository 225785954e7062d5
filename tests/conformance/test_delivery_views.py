"""What every store says about deliveries and hops, and what the owner's word makes of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from rucher.control.hops import HopOrders
from rucher.daemon.hops import StoredHops
from rucher.journal.store import JournalStore
from rucher.protocol.errors import BadInput, Permanent, Uncertain
from rucher.protocol.events import Draft, Event, Trust, control_event, message
from rucher.protocol.ids import caused
from rucher.protocol.ports import Part, Proof
from rucher.router.dispatch import Destination, Dispatcher, Hop
from rucher.surfaces.delivery import Delivery
from rucher.surfaces.notices import SOURCE, Notices
from tests.conformance.conftest import Opener
from tests.fakes.clock import ManualClock, settled, until

PARTS = ["one", "two", "three"]


class Chat:
    """A surface that shows a word a part and never can tell; `outcomes` are used up one a call."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.shown: list[str] = []
        self.blank = ""

    def parts(self, event: Event) -> Sequence[Part]:
        return [Part(number, text) for number, text in enumerate((event.body["text"].strip() or self.blank).split(), 1)]

    async def deliver(self, event: Event, _key: str) -> dict[str, Any]:
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise outcome
        self.shown.append(event.body["text"])
        return {"n": len(self.shown)}

    async def probe(self, _event: Event, _key: str) -> Proof:
        return Proof.UNKNOWN


class Agents:
    """Agents of which some take nothing."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.took: list[str] = []

    async def accept(self, hop: Hop, _event: Event) -> Mapping[str, Any] | None:
        if self.failures:
            raise self.failures.pop(0)
        self.took.append(hop.id)
        return {"session": "S"}


def answer(text: str, key: str = "k") -> Draft:
    said = message(
        tenant="home", source="cli", key=key, principal="owner:ana", trust=Trust.OWNER, text="hi", group="main",
        occurred_at=1_800_000_000_000_000,
    )  # fmt: skip
    return Draft(
        id=caused(said.id, "answer", key), tenant="home", source="agent", type="answer", principal="agent:scribe",
        trust=Trust.AGENT, trace_id=said.trace_id, addressed_to="group:chat:main", occurred_at=said.occurred_at,
        body={"text": text, "group": "main", "thread": "", "run": "R", "session": f"S{key}"},
    )  # fmt: skip


def made(said: Draft, to: str) -> Draft:
    body = {"event": said.id, "event_seq": 1, "rule": "r", "rules": "v", "to": to}
    return control_event(
        tenant="home", part="router", kind="hop.made", key=f"{said.id}:r:{to}", trace_id=said.trace_id, parent_id=said.id,
        occurred_at=said.occurred_at, body=body,
    )  # fmt: skip


class World:
    """A store, with a dispatcher that hands hops to a chat and to agents."""

    def __init__(self, store: JournalStore, chat: Chat, agents: Agents) -> None:
        self.store, self.chat, self.agents = store, chat, agents
        self.clock = ManualClock()
        self.orders = HopOrders(store, self.clock, "owner:ana")
        self.hops = StoredHops(store)
        self.notices = Notices(store, self.clock, self.hops, "home", "cli:main")

    def dispatcher(self) -> Dispatcher:
        kinds: dict[str, Destination] = {
            "surface": Delivery(self.store, self.clock, {"chat": self.chat}), "agent": self.agents,
        }  # fmt: skip
        return Dispatcher(self.store, self.clock, self.hops, kinds, self.store.head)

    async def send(self, text: str = "one two three", to: str = "surface:chat", key: str = "k") -> str:
        said = answer(text, key)
        hop = made(said, to)
        await self.store.append(said, hop)
        return hop.id

    async def state(self, hop: str) -> str:
        return str((await self.store.rows("hop.get", hop))[0]["state"])

    async def becomes(self, hop: str, state: str) -> None:
        async def there() -> bool:
            return await self.state(hop) == state

        await until(there, f"hop {state}")

    async def parts(self, hop: str) -> list[str]:
        return [row["state"] for row in await self.store.rows("deliveries.of_hop", hop)]


def played(opened: Opener, chat: Chat, story: Callable[[World], Awaitable[None]], agents: Agents | None = None) -> None:
    async def play() -> None:
        async with opened() as store:
            world = World(store, chat, agents or Agents())
            async with asyncio.TaskGroup() as group:
                running = group.create_task(world.dispatcher().run())
                await story(world)
                running.cancel()

    asyncio.run(play())


def test_each_part_has_a_row_and_the_hop_is_delivered_with_the_last(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send()
        await world.becomes(hop, "delivered")
        assert await world.parts(hop) == ["delivered"] * 3
        assert [row["receipt"] for row in await world.store.rows("deliveries.of_hop", hop)] == [
            '{"n": 1}',
            '{"n": 2}',
            '{"n": 3}',
        ]
        assert not await world.store.rows("deliveries.not_delivered", 2**62, 10)

    played(opened, Chat(), story)


def test_a_failed_hop_is_tried_again_at_once_by_the_owner_s_word_from_the_part_that_failed(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send()
        await world.becomes(hop, "failed")
        assert await world.parts(hop) == ["delivered", "failed", "pending"]
        await world.orders.retry(hop)
        await world.becomes(hop, "delivered")
        assert world.chat.shown == PARTS
        with pytest.raises(BadInput, match="ended well"):
            await world.orders.retry(hop)

    played(opened, Chat(None, Permanent("too long")), story)


def test_an_uncertain_part_is_resolved_by_the_owner_alone_and_nothing_else_sends_it_again(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send()
        await world.becomes(hop, "uncertain")
        with pytest.raises(BadInput, match="say what is true first"):
            await world.orders.retry(hop)
        with pytest.raises(BadInput, match=r"part 1 of hop .* is not uncertain"):
            await world.orders.resolve(hop, 1, "delivered")
        assert await world.orders.resolve(hop, None, "not-delivered") == 2
        await world.becomes(hop, "uncertain")
        await until(lambda: not world.chat.outcomes)
        await world.becomes(hop, "uncertain")
        assert await world.orders.resolve(hop, 2, "delivered") == 2
        await world.becomes(hop, "delivered")
        assert world.chat.shown == ["one", "three"]
        assert len(await world.store.trace(answer("").trace_id)) == len(
            {event.id for event in await world.store.read(0, 99)}
        )

    played(opened, Chat(None, Uncertain("reset"), Uncertain("reset again")), story)


def test_the_last_part_said_to_be_delivered_ends_the_hop(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send("one")
        await world.becomes(hop, "uncertain")
        await world.orders.resolve(hop, 1, "delivered")
        assert await world.state(hop) == "delivered"
        await settled()
        assert not world.chat.shown

    played(opened, Chat(Uncertain("reset")), story)


def test_an_agent_s_hop_that_failed_is_handed_out_again_and_may_fail_again_visibly(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send(to="agent:scribe")
        await world.becomes(hop, "failed")
        await world.orders.retry(hop)
        await until(lambda: not world.agents.failures)
        await world.becomes(hop, "failed")
        assert (await world.store.rows("hop.get", hop))[0]["detail"] == "still away"
        await world.orders.retry(hop)
        await world.becomes(hop, "acknowledged")
        assert world.agents.took == [hop]

    played(opened, Chat(), story, Agents(Permanent("away"), Permanent("still away")))


def test_a_retry_that_a_restart_cut_off_is_done_at_the_next_start(opened: Opener) -> None:
    async def fails(world: World) -> None:
        await world.becomes(await world.send(), "failed")

    async def retried() -> str:
        async with opened() as store:
            hop = (await store.rows("hops.before", 2**62, 1))[0]["hop_id"]
            await HopOrders(store, ManualClock(), "owner:ana").retry(hop)
            await HopOrders(store, ManualClock(), "owner:ana").drop(hop, "")
        return str(hop)

    async def goes_on(world: World) -> None:
        hop = (await world.store.rows("hops.before", 2**62, 1))[0]["hop_id"]
        await world.becomes(hop, "delivered")
        assert world.chat.shown == ["two", "three"]

    played(opened, Chat(None, Permanent("no")), fails)
    with pytest.raises(BadInput, match="has not ended"):
        asyncio.run(retried())
    played(opened, Chat(), goes_on)


def test_a_dropped_hop_is_no_dead_letter_any_more_and_can_be_brought_back(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send()
        await world.becomes(hop, "failed")
        await world.orders.drop(hop, "old news")
        row = (await world.store.rows("hop.get", hop))[0]
        assert (row["state"], row["detail"]) == ("dropped", "dropped by owner:ana: old news")
        assert not await world.store.rows("hops.dead", 2**62, 10)
        await world.orders.retry(hop)
        await world.becomes(hop, "delivered")

    played(opened, Chat(Permanent("no")), story)


def test_owner_and_agent_are_told_once_in_one_notice_and_of_no_failed_notice(opened: Opener) -> None:
    async def story(world: World) -> None:
        hops = [await world.send("one", key=str(number)) for number in range(30)]
        for hop in hops:
            await world.becomes(hop, "failed")
        assert await world.notices.tell()
        assert not await world.notices.tell()
        events = await world.store.read(0, 1000)
        (notice,) = [event for event in events if event.source == SOURCE]
        assert (notice.addressed_to, notice.body["automatic"]) == ("group:cli:main", True)
        assert "and 20 more" in notice.body["text"]
        notes = [event for event in events if event.type == "session.noted"]
        assert sorted(note.body["session"] for note in notes) == sorted(f"S{number}" for number in range(30))
        told = await world.store.event(notes[0].body["event"])
        assert told is not None
        assert "was not delivered: chat gone" in told.body["text"]
        failed = made(notice, "surface:nowhere")
        await world.store.append(failed)
        await world.becomes(failed.id, "failed")
        assert not await world.notices.tell()
        assert len([event for event in await world.store.read(0, 1000) if event.source == SOURCE]) == 1

    played(opened, Chat(*(Permanent("chat gone") for _ in range(30))), story)


def test_views_of_deliveries_are_the_same_when_they_are_folded_again(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send()
        await world.becomes(hop, "uncertain")
        await world.orders.resolve(hop, None, "not-delivered")
        await world.becomes(hop, "failed")
        await world.notices.tell()
        await world.orders.retry(hop)
        await world.becomes(hop, "delivered")
        before = [await world.store.rows("deliveries.of_hop", hop), await world.store.rows("hop.get", hop)]
        await world.store.rebuild()
        after = [await world.store.rows("deliveries.of_hop", hop), await world.store.rows("hop.get", hop)]
        assert [[dict(row) for row in rows] for rows in before] == [[dict(row) for row in rows] for rows in after]

    played(opened, Chat(Uncertain("reset"), Permanent("no")), story)


def test_what_failed_before_any_part_is_forgotten_once_it_is_tried_again(opened: Opener) -> None:
    async def story(world: World) -> None:
        hop = await world.send(" ")
        await world.becomes(hop, "failed")
        assert [row["part"] for row in await world.store.rows("deliveries.of_hop", hop)] == [0]
        world.chat.blank = "now there is something"
        await world.orders.retry(hop)
        await world.becomes(hop, "delivered")
        assert [row["part"] for row in await world.store.rows("deliveries.of_hop", hop)] == [1, 2, 3, 4]

    played(opened, Chat(), story)


def test_there_is_no_order_about_a_hop_that_does_not_exist(opened: Opener) -> None:
    async def story(world: World) -> None:
        for order in (
            world.orders.retry("X"),
            world.orders.drop("X", ""),
            world.orders.resolve("X", None, "delivered"),
        ):
            with pytest.raises(BadInput, match="there is no hop X"):
                await order

    played(opened, Chat(), story)
