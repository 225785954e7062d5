import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from rucher.protocol.errors import Corrupt, Permanent, Retryable
from rucher.protocol.events import Draft, Event, control_event
from rucher.router import dispatch
from rucher.router.dispatch import Destination, Dispatcher, Hop
from tests.fakes.clock import ManualClock, settled, until
from tests.fakes.journal import MemoryJournal
from tests.unit.router.builders import draft

ENDS = {"hop.acknowledged": "acknowledged", "hop.failed": "failed", "delivery.delivered": "delivered"}


class JournalHops:
    """The port HopStore, folded from the journal in memory."""

    def __init__(self, journal: MemoryJournal) -> None:
        self._journal = journal
        self.asked: list[int] = []

    async def open_hops(self, after_seq: int) -> Sequence[Hop]:
        self.asked.append(after_seq)
        await asyncio.sleep(0)
        ended = {event.body["hop"]: ENDS[event.type] for event in self._journal.events if event.type in ENDS}
        made = [event for event in self._journal.of_type("hop.made") if event.seq > after_seq]
        return [
            Hop(
                event.id,
                event.seq,
                event.body["event"],
                event.body["rule"],
                event.body["to"],
                ended.get(event.id, "made"),
                session=event.body["session"],
            )
            for event in made
            if ended.get(event.id, "made") in {"made", "acknowledged"}
        ]


class Agents:
    """A destination that fails as told, by text, and remembers what it took."""

    def __init__(self) -> None:
        self.took: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    def hold(self, text: str) -> None:
        """Hang on this text until released."""
        self._gates[text] = asyncio.Event()

    def release(self) -> None:
        """Hang no longer."""
        for gate in self._gates.values():
            gate.set()
        self._gates.clear()

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any] | None:
        text = event.body["text"]
        if text in self._gates:
            await self._gates[text].wait()
        if self.failures.get(text):
            raise self.failures[text].pop(0)
        self.took.append(f"{text}>{hop.to}")
        return {"session": "s1"}


class Surfaces:
    """A destination that records its own ends, and remembers what it took."""

    def __init__(self) -> None:
        self.took: list[str] = []

    async def accept(self, hop: Hop, event: Event) -> None:
        await asyncio.sleep(0)
        self.took.append(f"{event.body['text']}>{hop.to}")


class World:
    def __init__(self) -> None:
        self.journal = MemoryJournal()
        self.clock = ManualClock()
        self.hops = JournalHops(self.journal)
        self.agents = Agents()
        self.surfaces = Surfaces()

    def dispatcher(self) -> Dispatcher:
        kinds: dict[str, Destination] = {"agent": self.agents, "surface": self.surfaces}
        return Dispatcher(self.journal, self.clock, self.hops, kinds, cursor=len(self.journal.events))

    async def send(self, text: str, to: str = "agent:a", session: str = "per-thread", **changes: Any) -> str:
        """Append a message and its hop; the hop's id."""
        said = draft(text, f"{text}:{to}", **changes)
        made = hop_made(said, to, session)
        await self.journal.append(said, made)
        return made.id

    def ended(self, kind: str) -> list[str]:
        return [event.body["hop"] for event in self.journal.of_type(kind)]


def _asked(world: World, times: int) -> bool:
    return len(world.clock.asked) == times


def hop_made(said: Draft, to: str, session: str = "per-thread") -> Draft:
    body = {"event": said.id, "event_seq": 0, "rule": "r", "rules": "v", "to": to, "session": session}
    return control_event(
        tenant="home", part="router", kind="hop.made", key=f"{said.id}:r:{to}", trace_id=said.trace_id, occurred_at=1,
        parent_id=said.id, body=body,
    )  # fmt: skip


def during(world: World, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def play() -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(world.dispatcher().run())
            await story()
            running.cancel()

    asyncio.run(play())


def test_a_hop_is_acknowledged_once_its_agent_has_taken_it_and_not_before() -> None:
    world = World()

    async def story() -> None:
        world.agents.hold("one")
        hop = await world.send("one")
        await settled()
        assert not world.ended("hop.acknowledged")
        world.agents.release()
        await until(lambda: world.ended("hop.acknowledged") == [hop])

    during(world, story)
    (end,) = world.journal.of_type("hop.acknowledged")
    assert end.body["session"] == "s1"
    assert end.parent_id == end.body["hop"]
    assert end.trace_id == world.journal.of_type("message")[0].trace_id


def test_a_surface_s_hop_is_not_acknowledged_as_the_surface_records_its_own_end() -> None:
    world = World()

    async def story() -> None:
        await world.send("one", "surface:cli")
        await until(lambda: world.surfaces.took == ["one>surface:cli"])
        await settled()

    during(world, story)
    assert not world.ended("hop.acknowledged")


def test_one_destination_that_hangs_and_one_that_errs_hold_up_no_other() -> None:
    world = World()

    async def story() -> None:
        world.agents.hold("hang")
        world.agents.failures["err"] = [Retryable("busy") for _ in range(99)]
        await world.send("hang", "agent:a")
        await world.send("err", "agent:b")
        for number in range(20):
            await world.send(str(number), "agent:c")
        await world.send("other room", "agent:a", group="other")
        await world.send("other thread", "agent:a", thread="t2")
        await until(lambda: len(world.agents.took) == 22)

    during(world, story)
    assert [took for took in world.agents.took if took.endswith("agent:c")] == [
        f"{number}>agent:c" for number in range(20)
    ]


def test_what_goes_to_one_agent_in_one_thread_stays_in_order_while_the_first_is_tried_again() -> None:
    world = World()

    async def story() -> None:
        world.agents.failures["0"] = [Retryable("busy"), Retryable("busy")]
        for number in range(5):
            await world.send(str(number))
        while len(world.agents.took) < 5:
            await settled()
            world.clock.advance(0.1)

    during(world, story)
    assert world.agents.took == [f"{number}>agent:a" for number in range(5)]
    assert len(world.journal.of_type("hop.retrying")) == 1


@pytest.mark.parametrize(
    ("mode", "in_order", "beside"),
    [
        ("per-thread", [{"thread": "t"}] * 4, [{}, {"thread": "u"}, {"group": "other"}, {"source": "chat"}]),
        ("shared", [{"thread": "t"}, {}, {"thread": "u"}, {}], [{"group": "other"}, {"source": "chat"}]),
        ("per-agent", [{}, {"group": "other"}, {"source": "chat"}, {"thread": "t"}], []),
    ],
)
def test_what_goes_to_one_session_stays_in_order_and_other_sessions_of_the_agent_go_on(
    mode: str, in_order: list[dict[str, str]], beside: list[dict[str, str]]
) -> None:
    world = World()

    async def story() -> None:
        world.agents.hold("0")
        for number, place in enumerate(in_order):
            await world.send(str(number), session=mode, **place)
        for number, place in enumerate(beside):
            await world.send(f"beside {number}", session=mode, **place)
        await until(lambda: len(world.agents.took) == len(beside))
        await settled()
        assert len(world.agents.took) == len(beside)
        world.agents.release()
        await until(lambda: len(world.agents.took) == len(beside) + 4)

    during(world, story)
    assert sorted(world.agents.took[: len(beside)]) == [f"beside {number}>agent:a" for number in range(len(beside))]
    assert world.agents.took[len(beside) :] == [f"{number}>agent:a" for number in range(4)]


def test_a_restart_keeps_the_order_of_a_session_that_spans_rooms() -> None:
    world = World()

    async def first() -> None:
        world.agents.hold("0")
        for number in range(4):
            await world.send(str(number), session="per-agent", group=f"g{number}")
        await settled()

    async def second() -> None:
        world.agents.hold("1")
        await until(lambda: world.agents.took == ["0>agent:a"])
        await settled()
        world.agents.release()
        await until(lambda: len(world.agents.took) == 4)

    during(world, first)
    world.agents.release()
    during(world, second)
    assert world.agents.took == [f"{number}>agent:a" for number in range(4)]


def test_retries_double_to_half_a_minute_and_never_end() -> None:
    world = World()

    async def story() -> None:
        world.agents.failures["one"] = [Retryable("busy") for _ in range(12)]
        await world.send("one")
        for number in range(12):
            await until(partial(_asked, world, number + 1))
            world.clock.advance(30)
        await until(lambda: len(world.agents.took) == 1)

    during(world, story)
    assert world.clock.asked == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30])


def test_a_destination_s_own_retry_time_is_kept() -> None:
    world = World()

    async def story() -> None:
        world.agents.failures["one"] = [Retryable("rate limit", retry_after=240)]
        await world.send("one")
        await until(lambda: world.clock.asked == [240])
        world.clock.advance(239)
        await settled()
        assert not world.agents.took
        world.clock.advance(1)
        await until(lambda: len(world.agents.took) == 1)

    during(world, story)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Permanent("no such session"), "no such session"),
        (Corrupt("inbound.db is not a mailbox"), "inbound.db is not a mailbox"),
        (KeyError("text"), "KeyError: 'text'"),
    ],
)
def test_a_hop_that_cannot_succeed_fails_at_once_visibly_and_the_next_goes_on(error: Exception, reason: str) -> None:
    world = World()

    async def story() -> None:
        world.agents.failures["bad"] = [error]
        bad = await world.send("bad")
        good = await world.send("good")
        await until(lambda: world.ended("hop.acknowledged") == [good])
        assert world.ended("hop.failed") == [bad]

    during(world, story)
    assert world.journal.of_type("hop.failed")[0].body["reason"] == reason


def test_a_destination_of_a_kind_that_nothing_serves_fails_visibly() -> None:
    world = World()

    async def story() -> None:
        await world.send("one", "webhook:x")
        await until(lambda: len(world.ended("hop.failed")) == 1)

    during(world, story)
    assert world.journal.of_type("hop.failed")[0].body["reason"] == "nothing here delivers to webhook"


def test_a_restart_takes_up_the_open_hops_and_leaves_the_ended_and_acknowledged_alone() -> None:
    world = World()

    async def first() -> None:
        world.agents.hold("open")
        world.agents.failures["failed"] = [Permanent("no")]
        await world.send("done", "agent:a")
        await world.send("failed", "agent:a")
        await world.send("open", "agent:b")
        await world.send("behind", "agent:b")
        await until(lambda: len(world.ended("hop.acknowledged") + world.ended("hop.failed")) == 2)

    async def second() -> None:
        world.agents.release()
        await world.send("new", "agent:a")
        await until(lambda: len(world.ended("hop.acknowledged")) == 4)
        await settled()

    during(world, first)
    during(world, second)
    assert sorted(world.agents.took) == ["behind>agent:b", "done>agent:a", "new>agent:a", "open>agent:b"]


def test_a_lane_longer_than_its_bound_loses_nothing_doubles_nothing_and_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "LANE_BOUND", 3)
    world = World()

    async def story() -> None:
        world.agents.hold("0")
        for number in range(20):
            await world.send(str(number))
            await world.send(f"b{number}", "agent:b", group=f"g{number % 2}")
        await until(lambda: len(world.agents.took) == 20)
        world.agents.release()
        for number in range(20, 40):
            await world.send(str(number))
        await until(lambda: len(world.agents.took) == 60)
        await settled()

    during(world, story)
    assert [took for took in world.agents.took if took.endswith(">agent:a")] == [
        f"{number}>agent:a" for number in range(40)
    ]
    assert len(world.agents.took) == len(set(world.agents.took)) == 60


def test_a_full_disk_delays_the_acknowledgement_and_the_work_is_not_done_again() -> None:
    world = World()

    async def story() -> None:
        world.agents.hold("one")
        await world.send("one")
        await settled()
        world.journal.full = True
        world.agents.release()
        await until(lambda: world.clock.sleeping == 1)
        world.journal.full = False
        world.clock.advance(0.1)
        await until(lambda: len(world.ended("hop.acknowledged")) == 1)

    during(world, story)
    assert world.agents.took == ["one>agent:a"]
