"""Laws of what `rucher users`, `groups`, `agents` and `sessions` print of an instance that rests."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rucher.instance.layout import Instance
from rucher.journal.store import open_store
from rucher.protocol.events import control_event
from rucher.protocol.ids import caused, derived
from tests.unit.cli.recorded import Ticking, make_instance, record, rucher, say

ANA, EVE = "user:chat:ana", "user:chat:eve"
TALE: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("user.seen", {"principal": ANA, "name": "Ana \x1b[2J[bold]", "room": "chat:main"}),
    ("user.seen", {"principal": EVE, "name": "", "room": "chat:main"}),
    ("group.seen", {"room": "chat:main"}),
    ("role.granted", {"principal": ANA, "role": "member", "agent": "", "by": "owner:owner"}),
    ("role.granted", {"principal": ANA, "role": "admin", "agent": "scribe", "by": "owner:owner"}),
    ("user.blocked", {"principal": EVE, "by": "owner:owner"}),
    ("group.policy", {"room": "chat:side", "policy": "strict", "by": "owner:owner"}),
    ("session.opened", {"session": "S1", "agent": "scribe", "group": "cli:main", "thread": ""}),
    ("session.opened", {"session": "S2", "agent": "scribe", "group": "", "thread": ""}),
    ("session.stopped", {"session": "S1", "run": "R", "reason": "inbound.db is damaged"}),
)


def happen(instance: Instance, *tale: tuple[str, Mapping[str, Any]]) -> None:
    async def go() -> None:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            for number, (kind, body) in enumerate(tale):
                trace = caused(derived("tale", kind, str(number)), "trace")
                await store.append(
                    control_event(
                        tenant="local",
                        part="test",
                        kind=kind,
                        key="k",
                        trace_id=trace,
                        occurred_at=clock.now(),
                        body=body,
                    )
                )

    asyncio.run(go())


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    made = record(tmp_path / "hive").instance
    happen(made, *TALE)
    return made


def told(instance: Instance, *words: str) -> Any:
    result = rucher(instance, *words, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.output)


def shown(instance: Instance, *words: str) -> str:
    result = rucher(instance, *words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_users_are_listed_with_their_roles_and_no_name_steers_the_terminal(instance: Instance) -> None:
    lines = shown(instance, "users", "list").splitlines()
    assert "\x1b" not in "".join(lines)
    assert lines[1].startswith(f"{ANA}  Ana \\x1b[2J[bold]  member, admin@scribe  2027-01-15  2027-01-15")
    assert "blocked" in lines[2]
    assert [user["blocked"] for user in told(instance, "users", "list")] == [False, True]


def test_a_user_is_shown_with_who_granted_what_and_what_to_do(instance: Instance) -> None:
    ana, eve = shown(instance, "users", "show", ANA), shown(instance, "users", "show", EVE)
    assert "member with all agents, granted 2027-01-15 by owner:owner" in ana
    assert "admin with agent scribe" in ana
    assert f"blocked; undo with: rucher users unblock {EVE}" in eve
    assert [role["agent"] for role in told(instance, "users", "show", ANA)["roles"]] == ["", "scribe"]


def test_held_messages_are_listed_until_they_are_routed(instance: Instance) -> None:
    say(instance, "one", "two")
    seqs = {event["body"]["text"]: event for event in told(instance, "events", "--subject", "ev.*.cli.>")}
    held = [
        {
            "event": seqs[text]["id"],
            "event_seq": seqs[text]["seq"],
            "principal": ANA,
            "room": "chat:main",
            "reason": "x",
        }
        for text in ("one", "two")
    ]
    happen(instance, *(("route.held", body) for body in held))
    assert [row["text"] for row in told(instance, "users", "held")] == ["one", "two"]
    assert f'held: {held[0]["event"]}  "one"' in shown(instance, "users", "show", ANA)
    happen(instance, ("route.dropped", held[0]))
    assert [row["text"] for row in told(instance, "users", "held")] == ["two"]
    assert "two" in shown(instance, "users", "held")


def test_a_group_is_shown_with_its_policy_and_where_that_comes_from(instance: Instance) -> None:
    rooms = {room["room"]: room for room in told(instance, "groups", "list")}
    assert (rooms["chat:main"]["policy"], rooms["chat:main"]["own_policy"]) == ("ask", False)
    assert (rooms["chat:side"]["policy"], rooms["chat:side"]["own_policy"]) == ("strict", True)
    assert "strict (its own policy)  never" in shown(instance, "groups", "list")
    assert "unknown senders are held until you admit them (by default)" in shown(
        instance, "groups", "show", "chat:main"
    )


def test_sessions_are_listed_with_the_one_that_worked_last_first(instance: Instance) -> None:
    first, second = told(instance, "sessions", "list")
    assert (first["session_id"], first["runs"], first["last_run"]["state"]) == ("S1", 1, "done")
    assert (second["session_id"], second["runs"], second["last_run"]) == ("S2", 0, None)
    assert [row["session_id"] for row in told(instance, "sessions", "list", "--group", "cli:main")] == ["S1"]
    assert told(instance, "sessions", "list", "--agent", "talker") == []
    assert len(told(instance, "sessions", "list", "--limit", "1")) == 1
    assert "(all)" in shown(instance, "sessions", "list")


def test_a_session_is_shown_with_why_it_stopped_and_where_its_files_will_lie(instance: Instance) -> None:
    text = shown(instance, "sessions", "show", "s1")
    assert "session S1  stopped" in text
    assert "inbound.db is damaged" in text
    assert f"{instance.sessions / 'S1'} (made at its first run)" in text
    assert len(told(instance, "sessions", "show", "S1")["runs"]) == 1
    assert "several sessions begin with S" in str(rucher(instance, "sessions", "show", "S").exception)


def test_an_agent_is_shown_with_its_file_its_rules_and_what_it_does(instance: Instance) -> None:
    scribe = told(instance, "agents", "show", "scribe")
    assert Path(scribe["file"]).is_file()
    assert scribe["rules"] == ["r-scribe-addressed", "default"]
    assert [session["session_id"] for session in scribe["sessions"]] == ["S1", "S2"]
    assert scribe["last_run"]["state"] == "done"
    assert "rules that lead to it: r-scribe-addressed, default" in shown(instance, "agents", "show", "scribe")
    assert "scribe" in shown(instance, "agents", "list")


def test_the_agents_of_an_instance_that_was_never_started_are_listed(tmp_path: Path) -> None:
    made = make_instance(tmp_path / "hive")
    agents = told(made, "agents", "list")
    assert "scribe" in [agent["name"] for agent in agents]
    assert {(len(agent["sessions"]), agent["last_run"]) for agent in agents} == {(0, None)}
    assert not made.journal.exists()
