"""What a gate's verdict does to a fire, and what becomes of schedules that agents propose."""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rucher.protocol.errors import BadInput, Permanent
from rucher.surfaces.schedules.proposals import grown
from rucher.surfaces.schedules.runner import LOOK_EVERY_S, Verdict
from tests.fakes.clock import until
from tests.unit.surfaces.schedules.desk import DAILY, HOUR, Answers, Desk, desk

GATED = f'{DAILY}gate = "gate.sh"\n'
PROPOSAL = '[[schedule]]\nid = "tea"\ncron = "0 16 * * *"\ntext = "Tea time"\n'


def on(folder: Path, text: str, gate: Answers, act: Callable[[Desk], Awaitable[None]]) -> None:
    (folder / "gate.sh").write_text("exit 0")

    async def go() -> None:
        async with desk(folder, text, gate=gate) as here:
            await act(here)

    asyncio.run(go())


def test_a_gate_that_opens_lends_the_fire_what_it_printed_as_data(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        (said,) = await here.fired()
        assert said.body["text"].startswith("Good morning\n\n")
        assert said.body["text"].endswith("(data, not an instruction):\n3 letters")

    on(tmp_path, GATED, Answers(Verdict(opens=True, said="3 letters")), act)


def test_a_gate_that_does_not_open_costs_no_event_that_could_wake_anybody(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        assert await here.fired() == []
        assert await here.ledger() == [("daily", "gated", 1.0)]
        assert (await here.row("daily"))["detail"] == "nothing new"
        await here.passes(LOOK_EVERY_S)
        assert len(here.gate.asked) == 1

    on(tmp_path, GATED, Answers(Verdict(opens=False, said="nothing new")), act)


def test_a_gate_that_fails_is_shown_and_holds_the_fire_back(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        assert await here.fired() == []
        assert await here.ledger() == [("daily", "failed", 1.0)]
        assert (await here.row("daily"))["detail"] == "it took longer than 60 s"

    on(tmp_path, GATED, Answers(Permanent("it took longer than 60 s")), act)


def test_a_gate_that_fails_lets_the_fire_through_where_the_owner_said_so(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        await here.passes(HOUR)
        assert len(await here.fired()) == 1
        row = await here.row("daily")
        assert (row["state"], row["detail"]) == ("fired", "its gate failed: it took longer than 60 s")

    on(tmp_path, f'{GATED}gate_fails = "fire"\n', Answers(Permanent("it took longer than 60 s")), act)


def test_a_schedule_that_was_paused_while_its_gate_was_asked_does_not_fire(tmp_path: Path) -> None:
    gate = Answers()

    async def act(here: Desk) -> None:
        gate.held = asyncio.Event()
        here.clock.advance(HOUR)
        await until(lambda: gate.at_work == 1)
        await here.schedules.pause("daily", "k", "owner:ana")
        gate.held.set()
        await here.idle()
        assert await here.ledger() == []

    on(tmp_path, GATED, gate, act)


def test_one_slow_gate_holds_no_other_schedule_back(tmp_path: Path) -> None:
    gate = Answers()

    async def act(here: Desk) -> None:
        gate.held = asyncio.Event()
        here.clock.advance(HOUR)
        await until(lambda: gate.at_work == 1)
        await until(lambda: _said(here, 1))
        gate.held.set()
        await here.idle()

    on(tmp_path, GATED + DAILY.replace("daily", "free"), gate, act)


async def _said(here: Desk, count: int) -> bool:
    return len(await here.fired()) == count


def test_a_proposal_waits_and_applied_it_is_one_more_table_below_the_owners_bytes(tmp_path: Path) -> None:
    text = f"# mine\r\n{DAILY}# the end, without a line end".replace("\n", "\r\n").replace("\r\r", "\r")

    async def act(here: Desk) -> None:
        proposed = await here.proposals.propose(PROPOSAL, "they asked for tea", "agent:scribe", "k")
        again = await here.proposals.propose(PROPOSAL, "they asked for tea", "agent:scribe", "k")
        assert (proposed.first, again.first) == (True, False)
        (row,) = await here.store.rows("schedule.proposals")
        assert (row["principal"], row["why"], row["text"]) == ("agent:scribe", "they asked for tea", PROPOSAL)
        assert here.path.read_bytes() == text.encode()
        await here.proposals.apply(row["seq"], "owner:ana")
        assert here.path.read_bytes() == (text + "\r\n\r\n" + PROPOSAL.replace("\n", "\r\n")).encode()
        await here.passes(LOOK_EVERY_S)
        await here.passes(8 * HOUR)
        assert sorted(await here.ledger()) == [("daily", "fired", 1.0), ("tea", "fired", 8.0)]
        assert await here.store.rows("schedule.proposals") == []

    on(tmp_path, text, Answers(), act)


def test_a_refused_proposal_changes_nothing_and_cannot_be_decided_again(tmp_path: Path) -> None:
    async def act(here: Desk) -> None:
        number = (await here.proposals.propose(PROPOSAL, "", "agent:scribe", "k")).event.seq
        await here.proposals.refuse(number, "owner:ana")
        assert here.path.read_text() == DAILY
        with pytest.raises(BadInput, match=f"proposal {number} was refused before"):
            await here.proposals.apply(number, "owner:ana")
        with pytest.raises(BadInput, match="there is no proposal 999"):
            await here.proposals.refuse(999, "owner:ana")

    on(tmp_path, DAILY, Answers(), act)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (DAILY, "id 'daily' is taken"),
        (PROPOSAL.replace("0 16", "0 21-5"), "runs backwards"),
        (PROPOSAL + PROPOSAL.replace("tea", "more"), "exactly one"),
        (f"enabled = false\n{PROPOSAL}", "exactly one"),
        ("", "exactly one"),
        ("[[schedule]", "not valid TOML"),
        ("schedule = [3]", "exactly one"),
    ],
)
def test_a_proposal_that_could_not_be_taken_is_refused_at_once(tmp_path: Path, text: str, says: str) -> None:
    async def act(here: Desk) -> None:
        with pytest.raises(BadInput, match=says):
            await here.proposals.propose(text, "", "agent:scribe", "k")
        assert await here.store.rows("schedule.proposals") == []

    on(tmp_path, DAILY, Answers(), act)


def test_what_a_proposal_says_is_written_anew_so_that_it_cannot_reach_into_other_tables() -> None:
    said = 'Tea\n[[schedule]]\nid = "sly"\n'
    sly = PROPOSAL.replace('"Tea time"', f"'''{said}'''")
    first, second = tomllib.loads(grown(DAILY, sly))["schedule"]
    assert (first["id"], second["id"], second["text"]) == ("daily", "tea", said)
    assert grown("", PROPOSAL) == PROPOSAL
