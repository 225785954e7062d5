import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from nacl.signing import SigningKey

from rucher.daemon.outside import Agents, Outside, PlacesWatch, open_places, webhook_secrets
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import Secret, write_secrets
from rucher.protocol.errors import Retryable
from rucher.protocol.events import Event, Trust, committed, message
from rucher.router.dispatch import Hop
from rucher.surfaces.channels.webhook import secret_of
from rucher.surfaces.delivery import Delivery
from tests.fakes.clock import ManualClock, settled, until
from tests.fakes.journal import MemoryJournal

FILE = '[file.notes]\npath = "notes.jsonl"\n'


def event() -> Event:
    said = message(
        tenant="home", source="cli", key="k", principal="owner:ana", trust=Trust.OWNER, text="hi", group="main", occurred_at=1
    )  # fmt: skip
    return committed(said, 1, 2)


def hop(to: str, mode: str = "wake") -> Hop:
    return Hop("HOP", 2, event().id, "r", to, mode=mode)


class World:
    def __init__(self, folder: Path, text: str = FILE) -> None:
        self.instance = Instance(folder)
        self.instance.state.mkdir()
        self.write(text)
        self.journal = MemoryJournal()
        self.clock = ManualClock()
        self.file = open_places(self.instance, ["scribe"])
        self.outside = Outside(self.instance, "home", SigningKey(b"k" * 32), self.journal, self.clock)
        self.watch = PlacesWatch(self.file, self.outside, self.journal, self.clock, "home")
        self.delivery = Delivery(self.journal, self.clock, self.outside.of("file"))

    def write(self, text: str) -> None:
        self.instance.destinations.write_text(text, "utf-8")

    async def accept(self, to: str) -> str:
        await self.journal.append(event())
        await self.delivery.accept(hop(to), event())
        return self.journal.events[-1].type


def test_a_hop_to_a_destination_that_was_removed_fails_visibly_and_one_that_was_added_is_delivered(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        world = World(tmp_path, "")
        watching = asyncio.ensure_future(world.watch.run())
        await settled()
        assert await world.accept("file:notes") == "delivery.failed"
        assert "the file notes is not configured" in world.journal.events[-1].body["reason"]
        world.write(FILE)
        await until(lambda: world.clock.sleeping == 1)
        world.clock.advance(1)
        await until(lambda: "file:notes" in world.file.current.names)
        world.journal = MemoryJournal()
        world.delivery = Delivery(world.journal, world.clock, world.outside.of("file"))
        assert await world.accept("file:notes") == "delivery.delivered"
        watching.cancel()

    asyncio.run(story())


def test_a_refused_file_is_told_once_and_the_old_destinations_go_on(tmp_path: Path) -> None:
    async def story() -> list[str]:
        world = World(tmp_path)
        watching = asyncio.ensure_future(world.watch.run())
        for text in ("[file", "[file", FILE + "# more\n"):
            await until(lambda: world.clock.sleeping == 1)
            world.write(text)
            world.clock.advance(1)
            await settled()
        assert await world.accept("file:notes") == "delivery.delivered"
        watching.cancel()
        return [one.type for one in world.journal.events if one.type.startswith("destinations.")]

    assert asyncio.run(story()) == ["destinations.applied", "destinations.refused", "destinations.applied"]


def test_a_secret_that_ran_out_signs_no_more_and_a_damaged_one_makes_it_wait(tmp_path: Path) -> None:
    world = World(tmp_path, '[webhook.crm]\nurl = "http://127.0.0.1:1/"\n')
    path = webhook_secrets(world.instance, "crm")
    webhook = world.outside.find("webhook:crm")
    assert webhook is not None
    write_secrets(path, [Secret(secret_of(b"o" * 32), until=world.clock.now())])
    with pytest.raises(Retryable, match="no secret to sign with"):
        asyncio.run(webhook.deliver(event(), "K"))
    write_secrets(path, [Secret(secret_of(b"n" * 32)), Secret(secret_of(b"o" * 32), until=world.clock.now())])
    with pytest.raises(Retryable, match="cannot be reached"):
        asyncio.run(webhook.deliver(event(), "K"))
    write_secrets(path, [Secret("whsec_x")])
    with pytest.raises(Retryable, match="damaged"):
        asyncio.run(webhook.deliver(event(), "K"))


class Took:
    """A destination that remembers what it took."""

    def __init__(self, said: Mapping[str, Any] | None) -> None:
        self.hops: list[str] = []
        self._said = said

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any] | None:
        assert event.body["text"] == "hi"
        self.hops.append(hop.to)
        return self._said


def test_an_agent_works_where_its_line_says_and_only_what_wakes_it_is_sent_away() -> None:
    here, there = Took({"session": "s"}), Took(None)
    away: set[str] = set()
    agents = Agents(here, there, away)
    assert asyncio.run(agents.accept(hop("agent:scribe"), event())) == {"session": "s"}
    away.add("scribe")
    assert asyncio.run(agents.accept(hop("agent:scribe"), event())) is None
    told = asyncio.run(agents.accept(hop("agent:scribe", "context"), event()))
    assert told is not None
    assert "not carried" in told["detail"]
    asyncio.run(agents.accept(hop("agent:talker"), event()))
    assert (here.hops, there.hops) == (["agent:scribe", "agent:talker"], ["agent:scribe"])


def test_nothing_but_what_the_file_holds_is_found(tmp_path: Path) -> None:
    place = '[instance.laptop]\nurl = "https://h"\nsource = "home"\n[agent.scribe]\nat = "instance:laptop"\n'
    outside = World(tmp_path, FILE + place).outside
    assert outside.find("file:notes")
    assert outside.find("instance:laptop")
    for name in ("agent:scribe", "surface:cli", "notes", "file:", "", "webhook:notes"):
        assert outside.find(name) is None
    assert (list(outside.of("agent")), len(outside.of("webhook"))) == (["scribe"], 0)
