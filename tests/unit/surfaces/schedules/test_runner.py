"""Schedules carried out, through restarts, edits and a clock that jumps."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Trust
from rucher.surfaces.schedules.plan import SOURCE
from rucher.surfaces.schedules.runner import AT_ONCE, LOOK_EVERY_S
from tests.fakes.clock import ManualClock, until
from tests.unit.surfaces.schedules.desk import DAILY, HOUR, Answers, Desk, desk

DAY = 24 * HOUR


def once(folder: Path, text: str, act: Callable[[Desk], Awaitable[None]]) -> None:
    async def go() -> None:
        async with desk(folder, text) as here:
            await act(here)

    asyncio.run(go())


def test_a_fire_is_an_ordinary_event_and_its_record(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        (said,) = await here.fired()
        assert (said.source, said.type, said.principal, said.trust) == (SOURCE, "fire", "system:timer", Trust.OWNER)
        assert (said.addressed_to, said.body["text"], said.body["group"], said.body["room"]) == (
            "agent:scribe", "Good morning", "team", "cli:team",
        )  # fmt: skip
        assert said.body["schedule"] == "daily"
        (record,) = await here.noted("schedule.fired")
        assert (record.trace_id, record.parent_id, record.body["event"]) == (said.trace_id, said.id, said.id)
        assert record.seq == said.seq + 1

    once(tmp_path, f'{DAILY}to = "agent:scribe"\ngroup = "cli:team"\n', act)


def test_a_series_goes_on_day_after_day(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        for _ in range(3):
            await here.passes(DAY)
        assert await here.ledger() == [("daily", "fired", 1.0), ("daily", "fired", 25.0), ("daily", "fired", 49.0)]

    once(tmp_path, DAILY, act)


def test_a_single_moment_fires_once_and_never_again(tmp_path: Path) -> None:
    async def go() -> None:
        clock = ManualClock()
        text = '[[schedule]]\nid = "party"\nat = 2027-01-15T09:00:00\ntext = "x"\n'
        async with desk(tmp_path, text, clock) as here:
            await here.passes(HOUR)
            await here.passes(DAY)
        async with desk(tmp_path, None, clock) as here:
            await here.passes(DAY)
            assert await here.ledger() == [("party", "fired", 1.0)]

    asyncio.run(go())


def test_three_days_offline_are_dealt_with_by_policy_and_the_ledger_shows_it(tmp_path: Path) -> None:
    text = "".join(
        DAILY.replace('"daily"', f'"{misfire}"') + f'misfire = "{misfire}"\n' for misfire in ("skip", "once", "all")
    )

    async def go() -> None:
        clock = ManualClock()
        async with desk(tmp_path, text, clock) as here:
            await here.passes(HOUR)
        clock.advance(3 * DAY + HOUR)
        async with desk(tmp_path, None, clock) as here:
            told = sorted(await here.ledger())
            days = [25.0, 49.0, 73.0]
            assert [entry for entry in told if entry[0] == "all"] == [("all", "fired", at) for at in (1.0, *days)]
            assert [entry for entry in told if entry[0] == "once"] == [
                ("once", "fired", 1.0), ("once", "fired", 73.0), ("once", "missed", 49.0),
            ]  # fmt: skip
            assert [entry for entry in told if entry[0] == "skip"] == [("skip", "fired", 1.0), ("skip", "missed", 73.0)]
            assert (await here.row("skip"))["times"] == 3
            assert (await here.row("all"))["late_us"] == HOUR * 1e6

    asyncio.run(go())


@pytest.mark.parametrize("committed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("misfire", ["once", "all"])
def test_killed_before_or_after_any_commit_no_fire_is_lost_and_none_is_doubled(
    tmp_path: Path, misfire: str, at: int, *, committed: bool
) -> None:
    async def go() -> None:
        clock = ManualClock()
        async with desk(tmp_path, f'{DAILY}misfire = "{misfire}"\n', clock) as here:
            await here.passes(HOUR)
        clock.advance(3 * DAY + HOUR)
        async with desk(tmp_path, None, clock, cut=(at, committed)) as here:
            assert here.running.done() == (at <= (2 if misfire == "once" else 3))
        async with desk(tmp_path, None, clock) as here:
            told = sorted(await here.ledger())
            fired = [hour for _, state, hour in told if state == "fired"]
            assert fired == ([1.0, 73.0] if misfire == "once" else [1.0, 25.0, 49.0, 73.0])
            assert len(await here.fired()) == len(fired)

    asyncio.run(go())


def test_started_twice_at_one_moment_nothing_is_doubled(tmp_path: Path) -> None:
    async def go() -> None:
        clock = ManualClock()
        async with desk(tmp_path, DAILY, clock) as here:
            await here.passes(HOUR)
        for _ in range(3):
            async with desk(tmp_path, None, clock) as here:
                await here.passes(LOOK_EVERY_S)
        async with desk(tmp_path, None, clock) as here:
            assert await here.ledger() == [("daily", "fired", 1.0)]
            assert len(await here.fired()) == 1
            assert len(await here.noted("schedules.applied")) == 1

    asyncio.run(go())


def test_an_edited_schedule_has_a_new_next_fire_and_the_old_one_is_gone(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.path.write_text(DAILY.replace("0 9", "30 9"))
        await here.passes(LOOK_EVERY_S)
        await here.passes(HOUR)
        assert await here.ledger() == []
        await here.passes(HOUR / 2)
        assert await here.ledger() == [("daily", "fired", 1.5)]

    once(tmp_path, DAILY, act)


def test_a_new_text_leaves_the_next_fire_where_it_was(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR - 10)
        here.path.write_text(DAILY.replace("morning", "day"))
        await here.passes(LOOK_EVERY_S)
        await here.passes(10)
        assert [said.body["text"] for said in await here.fired()] == ["Good day"]

    once(tmp_path, DAILY, act)


def test_a_removed_schedule_does_not_fire_and_added_again_makes_nothing_up(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.path.unlink()
        await here.passes(LOOK_EVERY_S)
        await here.passes(3 * DAY)
        here.path.write_text(DAILY.replace("daily", "daily") + 'misfire = "all"\n')
        await here.passes(LOOK_EVERY_S)
        assert await here.ledger() == []

    once(tmp_path, DAILY, act)


def test_a_refused_file_leaves_the_old_schedules_running_and_is_told_once(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.path.write_text(DAILY.replace("0 9", "0 21-5"))
        for _ in range(3):
            await here.passes(LOOK_EVERY_S)
        (refused,) = await here.noted("schedules.refused")
        assert "runs backwards" in refused.body["reason"]
        await here.passes(HOUR)
        assert await here.ledger() == [("daily", "fired", 1.0)]

    once(tmp_path, DAILY, act)


def test_a_clock_set_forth_fires_by_policy_and_set_back_again_fires_nothing_twice(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.clock.jump(2 * HOUR)
        await here.passes(LOOK_EVERY_S)
        assert await here.ledger() == [("daily", "fired", 1.0)]
        here.clock.jump(-2 * HOUR)
        await here.passes(LOOK_EVERY_S)
        await here.passes(2 * HOUR)
        assert await here.ledger() == [("daily", "fired", 1.0)]
        assert len(await here.fired()) == 1
        await here.passes(DAY)
        assert (await here.ledger())[1:] == [("daily", "fired", 25.0)]

    once(tmp_path, DAILY, act)


def test_a_year_too_far_by_mistake_does_not_silence_a_schedule_for_a_year(tmp_path: Path) -> None:
    async def go() -> None:
        clock = ManualClock()
        async with desk(tmp_path, DAILY, clock) as here:
            here.clock.jump(365 * DAY)
            await here.passes(LOOK_EVERY_S)
        clock.jump(-365 * DAY)
        async with desk(tmp_path, None, clock) as here:
            await here.passes(HOUR)
            assert ("daily", "fired", 1.0) in await here.ledger()

    asyncio.run(go())


def test_some_seconds_back_just_after_a_fire_do_not_fire_or_ask_the_gate_again(tmp_path: Path) -> None:
    (tmp_path / "gate.sh").write_text("exit 0")

    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        here.clock.jump(-2 * LOOK_EVERY_S)
        for _ in range(4):
            await here.passes(LOOK_EVERY_S)
        assert len(here.gate.asked) == 1
        assert len(await here.fired()) == 1

    once(tmp_path, f'{DAILY}gate = "gate.sh"\n', act)


def test_what_fired_stays_so_in_the_ledger_when_a_wrong_clock_passes_its_time_again(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        here.clock.jump(-2 * HOUR)
        await here.passes(LOOK_EVERY_S)
        here.clock.jump(4 * HOUR)
        await here.passes(LOOK_EVERY_S)
        assert await here.ledger() == [("daily", "fired", 1.0)]

    once(tmp_path, f'{DAILY}misfire = "skip"\n', act)


def test_a_laptop_that_slept_over_the_time_fires_late_and_says_how_late(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.clock.jump(3 * HOUR)
        await here.passes(LOOK_EVERY_S)
        row = await here.row("daily")
        assert (row["state"], row["late_us"]) == ("fired", (2 * HOUR + LOOK_EVERY_S) * 1e6)

    once(tmp_path, DAILY, act)


def test_fifty_due_together_all_fire_a_few_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "gate.sh").write_text("exit 0")
    text = "".join(DAILY.replace("daily", f"d{number}") + 'gate = "gate.sh"\n' for number in range(50))

    async def act(here: Desk) -> None:
        here.gate.held = asyncio.Event()
        here.clock.advance(HOUR)
        await until(lambda: here.gate.at_work == AT_ONCE)
        here.gate.held.set()
        await here.idle()
        assert here.gate.most_at_work == AT_ONCE
        assert sorted(name for name, _, _ in await here.ledger()) == sorted(f"d{number}" for number in range(50))

    once(tmp_path, text, act)


def test_paused_it_does_not_fire_and_resumed_nothing_is_made_up(tmp_path: Path) -> None:
    async def go() -> None:
        clock = ManualClock()
        async with desk(tmp_path, f'{DAILY}misfire = "all"\n', clock) as here:
            await here.schedules.pause("daily", "k", "owner:ana")
            await here.passes(2 * DAY)
        async with desk(tmp_path, None, clock) as here:
            await here.passes(DAY)
            assert await here.ledger() == []
            await here.schedules.resume("daily", "k", "owner:ana")
            await here.passes(LOOK_EVERY_S)
            assert await here.ledger() == []
        async with desk(tmp_path, None, clock) as here:
            assert await here.ledger() == []
            await here.passes(DAY)
            assert await here.ledger() == [("daily", "fired", 73.0)]

    asyncio.run(go())


def test_switched_off_in_the_file_it_does_not_fire(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(2 * DAY)
        here.path.write_text(f'{DAILY}misfire = "all"\n')
        await here.passes(LOOK_EVERY_S)
        assert await here.ledger() == []

    once(tmp_path, f'{DAILY}misfire = "all"\nenabled = false\n', act)


def test_fired_by_hand_once_it_is_marked_and_its_planned_times_stay(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        first = await here.schedules.fire_now("daily", "k", "owner:ana")
        again = await here.schedules.fire_now("daily", "k", "owner:ana")
        assert (first.first, again.first, again.event.id) == (True, False, first.event.id)
        assert (await here.row("daily"))["by_whom"] == "owner:ana"
        await here.passes(HOUR)
        assert await here.ledger() == [("daily", "fired", 0.0), ("daily", "fired", 1.0)]

    once(tmp_path, DAILY, act)


def test_an_order_about_no_schedule_is_refused(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        for order in (here.schedules.pause, here.schedules.resume, here.schedules.fire_now):
            with pytest.raises(BadInput, match="there is no schedule 'nightly'"):
                await order("nightly", "k", "owner:ana")

    once(tmp_path, DAILY, act)


def test_the_views_are_the_same_when_they_are_folded_again(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(DAY)
        await here.schedules.pause("daily", "k", "owner:ana")
        statements = (("schedules.all",), ("fires.before", 2**62, 100))
        before = [[tuple(row) for row in await here.store.rows(*statement)] for statement in statements]
        await here.store.rebuild()
        assert before == [[tuple(row) for row in await here.store.rows(*statement)] for statement in statements]
        assert all(before)

    once(tmp_path, DAILY, act)


def test_waiting_costs_one_look_at_a_time(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        here.clock.asked.clear()
        await here.passes(LOOK_EVERY_S)
        assert here.clock.asked == [LOOK_EVERY_S]

    once(tmp_path, DAILY, act)


def test_one_that_cannot_be_kept_is_recorded_and_neither_its_series_nor_the_others_stop(tmp_path: Path) -> None:
    (tmp_path / "gate.sh").write_text("exit 0")

    async def go() -> None:
        def broken() -> None:
            raise RuntimeError("boom")

        gate = Answers(broken)  # type: ignore[arg-type]
        text = f'{DAILY}gate = "gate.sh"\n' + DAILY.replace("daily", "other")
        async with desk(tmp_path, text, gate=gate) as here:
            await here.passes(HOUR)
            await here.passes(DAY)
            told = sorted(await here.ledger())
            assert told == [
                ("daily", "failed", 1.0), ("daily", "failed", 25.0), ("other", "fired", 1.0), ("other", "fired", 25.0),
            ]  # fmt: skip
            assert (await here.row("daily"))["detail"] == "RuntimeError: boom"

    asyncio.run(go())
