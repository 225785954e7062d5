import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rucher.protocol.events import Draft, Event, control_event
from rucher.router.conditions import Condition
from rucher.router.rules import Rules
from tests.fakes.clock import settled, until
from tests.fakes.journal import MemoryJournal
from tests.unit.router.builders import HEAD, draft
from tests.unit.router.world import FAN_OUT, World, during


def test_every_event_gets_its_hops_in_its_own_trace(tmp_path: Path) -> None:
    world = World(tmp_path, HEAD + FAN_OUT)

    async def story() -> None:
        await world.journal.append(draft("one", "1"), draft("both", "2"))
        await until(lambda: world.routed() == 2)

    during(world.router(), story)
    assert world.hops() == [
        ("one", "default", "agent:scribe"),
        ("both", "fan", "agent:scribe"),
        ("both", "fan", "agent:other"),
    ]
    first, made = world.journal.events[0], world.journal.of_type("hop.made")[0]
    assert (made.trace_id, made.parent_id, made.principal) == (first.trace_id, first.id, "system:router")
    assert made.body == {
        "event": first.id,
        "event_seq": first.seq,
        "rule": "default",
        "rules": world.file.current.version,
        "to": "agent:scribe",
        "mode": "wake",
        "session": "per-thread",
    }


def test_the_control_plane_s_own_events_are_never_routed(tmp_path: Path) -> None:
    world = World(tmp_path)
    own = control_event(tenant="home", part="kernel", kind="message", key="k", trace_id="t", occurred_at=1)

    async def story() -> None:
        await world.journal.append(own, draft("one"))
        await until(lambda: world.routed() == 1)
        await settled()

    during(world.router(), story)
    assert world.hops() == [("one", "default", "agent:scribe")]


def test_routing_again_makes_the_missing_hops_and_repeats_no_other(tmp_path: Path) -> None:
    world = World(tmp_path, HEAD + FAN_OUT)

    async def story() -> None:
        await world.journal.append(draft("both"))
        await until(lambda: world.routed() == 1)

    during(world.router(), story)
    partial = MemoryJournal()
    complete = [replace(event) for event in world.journal.events]
    asyncio.run(_copy(partial, [event for event in complete if event.body.get("to") != "agent:other"]))
    world.journal = partial

    async def again() -> None:
        await until(lambda: len(world.hops()) == 2)
        await settled()

    during(world.router(cursor=0), again)
    assert sorted(event.id for event in partial.events) == sorted(event.id for event in complete)


async def _copy(journal: MemoryJournal, events: list[Event]) -> None:
    fields = Draft.__dataclass_fields__
    await journal.append(*(Draft(**{name: getattr(event, name) for name in fields}) for event in events))


def test_a_restart_at_the_cursor_routes_only_what_is_new(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await world.journal.append(draft("old", "1"))
        await world.journal.append(draft("new", "2"))
        await until(lambda: world.routed() == 1)
        await settled()

    during(world.router(cursor=1), story)
    assert world.hops() == [("new", "default", "agent:scribe")]


def test_more_events_than_one_batch_holds_are_all_routed_in_order(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await world.journal.append(*(draft(str(number), str(number)) for number in range(1234)))
        await until(lambda: world.routed() == 1234)

    during(world.router(), story)
    assert [text for text, _, _ in world.hops()] == [str(number) for number in range(1234)]


def test_a_full_disk_delays_routing_and_loses_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await until(lambda: len(world.journal.of_type("rules.applied")) == 1)
        await settled()
        world.journal.full = True
        world.journal.take(draft("one"))
        for _ in range(12):
            await settled()
            world.clock.advance(30)
        assert world.routed() == 0
        world.journal.full = False
        await settled()
        world.clock.advance(30)
        await until(lambda: world.routed() == 1)

    during(world.router(), story)
    assert max(world.clock.asked) == 30.0
    assert world.hops() == [("one", "default", "agent:scribe")]


def test_a_rule_that_raises_is_passed_over_and_recorded_and_the_others_decide(tmp_path: Path) -> None:
    world = World(tmp_path, HEAD + FAN_OUT)

    def poisoned(event: Event) -> bool:
        if event.body["text"] == "poison":
            raise RecursionError("too deep")
        return False

    (rule,) = world.file.current.rules
    broken = replace(rule, match=(Condition("text", "x", poisoned),))
    world.file._current = Rules("r", "", "v", "agent:scribe", (broken,), ())  # noqa: SLF001 - no rules text can poison

    async def story() -> None:
        await world.journal.append(draft("a", "1"), draft("poison", "2"), draft("b", "3"))
        await until(lambda: world.routed() == 3)

    during(world.router(), story)
    assert [text for text, _, _ in world.hops()] == ["a", "poison", "b"]
    (faulted,) = world.journal.of_type("rule.faulted")
    poisoned_event = next(one for one in world.journal.events if one.body.get("text") == "poison")
    assert faulted.body == {
        "event": poisoned_event.id, "event_seq": poisoned_event.seq, "rule": "fan", "rules": "v",
        "reason": "RecursionError: too deep",
    }  # fmt: skip


def test_a_changed_file_is_in_force_for_the_next_event_and_recorded_with_its_version(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await world.journal.append(draft("one", "1"))
        await until(lambda: world.routed() == 1)
        world.path.write_text(HEAD.replace("scribe", "other"))
        await world.journal.append(draft("two", "2"))
        await until(lambda: world.routed() == 2)

    during(world.router(), story)
    assert [to for _, _, to in world.hops()] == ["agent:scribe", "agent:other"]
    first, second = world.journal.of_type("rules.applied")
    assert second.body == {
        "version": world.file.current.version, "rules": 0, "path": str(world.path), "text": world.path.read_text(),
    }  # fmt: skip
    versions = [made.body["rules"] for made in world.journal.of_type("hop.made")]
    assert versions == [first.body["version"], second.body["version"]]
    assert first.trace_id == second.trace_id != world.journal.of_type("message")[0].trace_id


def test_an_idle_router_sees_a_changed_file_within_a_second_of_its_clock(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await until(lambda: world.clock.sleeping == 1)
        world.path.write_text("default = 3")
        await settled()
        assert not world.journal.of_type("rules.refused")
        world.clock.advance(1.0)
        await until(lambda: len(world.journal.of_type("rules.refused")) == 1)
        for _ in range(5):
            await until(lambda: world.clock.sleeping == 1)
            world.clock.advance(1.0)

    during(world.router(), story)
    (refused,) = world.journal.of_type("rules.refused")
    assert refused.body["reason"].endswith("rules.toml:1:1: default must be text in quotes")
    assert world.file.current.default == "agent:scribe"


def test_the_version_in_force_is_recorded_at_start_exactly_when_it_is_another_than_before(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def story() -> None:
        await settled()

    recorded = []
    for text in (HEAD, HEAD, HEAD + "# more\n", HEAD + "# more\n", HEAD):
        world.path.write_text(text)
        world.file.check()
        during(world.router(), story)
        recorded.append(len(world.journal.of_type("rules.applied")))
        world.clock.advance(1)
    assert recorded == [1, 1, 2, 2, 3]
    assert world.journal.of_type("rules.applied")[-1].body["text"] == HEAD


@pytest.mark.parametrize("stopped_after", [0, 1, 2, 3, 5, 8, 13, 21])
def test_a_router_stopped_anywhere_and_started_again_gives_each_event_exactly_its_hops(
    tmp_path: Path, stopped_after: int
) -> None:
    world = World(tmp_path, HEAD + FAN_OUT)

    async def cut() -> None:
        await world.journal.append(draft("both", "1"))
        await settled(stopped_after)
        await world.journal.append(draft("one", "2"), draft("both", "3"))
        await settled(stopped_after)

    async def whole() -> None:
        await until(lambda: world.routed() == 3)

    during(world.router(), cut)
    done = max((one.body["event_seq"] for one in world.journal.of_type("hop.made")), default=0)
    during(world.router(cursor=done), whole)
    assert sorted(world.hops()) == sorted(
        [("both", "fan", to) for to in ("agent:scribe", "agent:other")] * 2 + [("one", "default", "agent:scribe")]
    )
