"""Who is who, on a real daemon through the command line: discovered from traffic, ordered by the owner; and sessions."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rucher.daemon.registrystore import StoredRegistry
from rucher.journal.store import JournalStore, open_store
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.events import Event, Trust, control_event
from rucher.surfaces.ingress import IncomingMessage, Ingress
from tests.fakes.hive import Hive, resting, until

SCRIPT = r"""
[[rule]]
on = "user"
match = "^keep (?P<text>\\S+)"
call = [{ tool = "write_file", arguments = { path = "note.txt", content = "{text}" } }]

[[rule]]
on = "user"
match = "^read"
call = [{ tool = "read_file", arguments = { path = "note.txt" } }]

[[rule]]
on = "result"
answer = "it says: {result}"

[[rule]]
answer = "echo: {text}"
"""
ANA, EVE = "user:cli:ana", "user:cli:eve"


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with resting(tmp_path, SCRIPT) as made:
        yield made


def meanwhile(hive: Hive, act: Callable[[JournalStore], Awaitable[Any]]) -> Any:
    """Do it with the journal of the instance, whose daemon rests."""
    assert hive.process is None

    async def acting() -> Any:
        async with open_store(hive.instance.journal, SystemClock()) as store:
            return await act(store)

    return asyncio.run(acting())


async def arrives(store: JournalStore, text: str, **told: Any) -> Event:
    """A message, as a channel hands it in."""
    told = {"source": "cli", "principal": ANA, "trust": Trust.OWNER, **told}
    known = StoredRegistry(store, "ask")
    door = Ingress(store, SystemClock(), SystemEntropy(), "local", lambda: {"scribe"}, known)
    return (await door.accept(IncomingMessage(text=text, **told))).event


async def decided(store: JournalStore, event: Event, kind: str, **told: Any) -> None:
    """What the router records about a message."""
    body = {"event": event.id, "event_seq": event.seq, **told}
    await store.append(
        control_event(
            tenant="local",
            part="router",
            kind=kind,
            key=event.id,
            trace_id=event.trace_id,
            parent_id=event.id,
            occurred_at=event.occurred_at,
            body=body,
        )
    )


def said(hive: Hive, *words: str) -> str:
    """The one line that a command answers."""
    done = hive.rucher(*words)
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    return line


def users(hive: Hive) -> dict[str, dict[str, Any]]:
    return {user["principal"]: user for user in hive.told("users", "list")}


def test_people_and_rooms_show_up_by_speaking_and_what_they_become_outlives_a_power_cut(hive: Hive) -> None:
    first = meanwhile(hive, lambda store: arrives(store, "hello", name="Ana M.", group="kitchen"))
    assert first.trust is Trust.PUBLIC
    hive.start()
    assert [group["room"] for group in hive.told("groups", "list")] == ["cli:kitchen"]
    assert (users(hive)[ANA]["name"], users(hive)[ANA]["roles"]) == ("Ana M.", [])
    said(hive, "users", "grant", ANA, "member")
    said(hive, "users", "grant", ANA, "admin", "--agent", "scribe")
    said(hive, "users", "name", ANA, "Ana from next door")
    said(hive, "users", "block", EVE)
    said(hive, "groups", "name", "cli:kitchen", "The kitchen")
    said(hive, "groups", "policy", "cli:kitchen", "strict")
    hive.kill()
    told = users(hive)
    assert {role["agent"]: role["role"] for role in told[ANA]["roles"]} == {"": "member", "scribe": "admin"}
    assert (told[ANA]["given_name"], told[EVE]["blocked"]) == ("Ana from next door", True)
    (kitchen,) = hive.told("groups", "list")
    assert (kitchen["given_name"], kitchen["policy"], kitchen["own_policy"]) == ("The kitchen", "strict", True)
    before = [hive.told(*words) for words in (("users", "list"), ("groups", "list"))]
    assert hive.rucher("journal", "rebuild").returncode == 0
    assert [hive.told(*words) for words in (("users", "list"), ("groups", "list"))] == before
    for who, trust in ((ANA, Trust.MEMBER), (EVE, Trust.PUBLIC)):
        assert meanwhile(hive, partial(arrives, text="again", principal=who)).trust is trust


def test_the_policy_of_a_room_is_that_of_the_settings_until_it_has_its_own(hive: Hive) -> None:
    meanwhile(hive, lambda store: arrives(store, "hello"))
    assert [group["policy"] for group in hive.told("groups", "list")] == ["ask"]
    config = hive.root / "rucher.toml"
    config.write_text(config.read_text().replace('# unknown_senders = "ask"', 'unknown_senders = "public"'))
    assert [group["policy"] for group in hive.told("groups", "list")] == ["public"]
    hive.start()
    assert said(hive, "groups", "policy", "cli:main", "strict") == "unknown senders in cli:main are dropped"
    assert "are heard" in said(hive, "groups", "policy", "cli:main", "default")
    assert "nothing was said there yet" in said(hive, "groups", "policy", "cli:new", "ask")


def test_what_is_held_is_listed_with_its_text_and_admitting_says_how_many_go_on(hive: Hive) -> None:
    async def strangers(store: JournalStore) -> None:
        for text, who in (("let me in", ANA), ("please", ANA), ("buy now", EVE)):
            event = await arrives(store, text, principal=who)
            await decided(store, event, "route.held", principal=who, room="cli:main", reason="an unknown sender")

    meanwhile(hive, strangers)
    assert [(row["principal"], row["text"]) for row in hive.told("users", "held")] == [
        (ANA, "let me in"), (ANA, "please"), (EVE, "buy now"),
    ]  # fmt: skip
    assert (users(hive)[ANA]["held"], users(hive)[EVE]["held"]) == (2, 1)
    hive.start()
    assert said(hive, "users", "admit", ANA) == f"{ANA} is member; held messages that go on: 2"
    assert said(hive, "users", "block", EVE) == f"{EVE} is blocked; held messages that are dropped: 1"


@pytest.mark.parametrize(("mode", "sessions"), [("per-thread", 3), ("shared", 2), ("per-agent", 1)])
def test_each_answer_goes_to_the_room_its_message_came_from_however_sessions_are_cut(
    hive: Hive, mode: str, sessions: int
) -> None:
    rooms = [("garden", ""), ("kitchen", ""), ("kitchen", "t")]

    async def three_rooms_at_once(store: JournalStore) -> None:
        for number, (group, thread) in enumerate(rooms * 2):
            event = await arrives(store, str(number), group=group, thread=thread)
            await decided(store, event, "hop.made", rule="r", rules="v", to="agent:scribe", session=mode)

    meanwhile(hive, three_rooms_at_once)
    hive.start()
    until(lambda: len(hive.delivered("garden") + hive.delivered("kitchen")) == 6, "six answers were expected")
    assert hive.delivered("garden") == ["echo: 0", "echo: 3"]
    assert sorted(hive.delivered("kitchen")) == ["echo: 1", "echo: 2", "echo: 4", "echo: 5"]
    assert len(hive.told("sessions", "list")) == sessions
    (agent,) = [agent for agent in hive.told("agents", "list") if agent["name"] == "scribe"]
    assert (len(agent["sessions"]), agent["last_run"]["state"]) == (sessions, "done")


def test_four_messages_to_a_session_of_all_rooms_survive_in_order_across_a_power_cut(hive: Hive) -> None:
    async def four(store: JournalStore) -> None:
        for number in range(4):
            event = await arrives(store, str(number), group=f"g{number}")
            await decided(store, event, "hop.made", rule="r", rules="v", to="agent:scribe", session="per-agent")

    meanwhile(hive, four)
    hive.start()
    hive.kill()
    hive.start()
    until(lambda: all(hive.delivered(f"g{number}") for number in range(4)), "four answers were expected")
    assert [hive.delivered(f"g{number}") for number in range(4)] == [[f"echo: {number}"] for number in range(4)]
    (session,) = hive.told("sessions", "list")
    shown = hive.told("sessions", "show", session["session_id"])
    began = [run["created_at"] for run in shown["runs"]]
    assert (len(began), began) == (4, sorted(began, reverse=True))


def earlier(hive: Hive, trace: str) -> list[str]:
    """What the run of this trace was told of earlier requests."""
    (run,) = [row["run_id"] for row in hive.told("runs") if row["trace_id"] == trace]
    steps = hive.told("runs", run, "--full")["steps"]
    (context,) = [step["result"] for step in steps if step["kind"] == "checkpoint"]
    return [exchange["request"] for exchange in context["earlier"]]


def test_a_reset_session_begins_with_no_history_and_keeps_its_files(hive: Hive) -> None:
    hive.start()
    hive.told("send", "keep secret", "--wait")
    second = hive.told("send", "hello", "--wait")
    assert earlier(hive, second["trace_id"])
    (session,) = hive.told("sessions", "list")
    assert "begins its next message with no history" in said(hive, "sessions", "reset", session["session_id"][:8])
    third = hive.told("send", "read", "--wait")
    assert (earlier(hive, third["trace_id"]), third["answer"]) == ([], "it says: secret")
    fourth = hive.told("send", "and now", "--wait")
    assert earlier(hive, fourth["trace_id"]) == ["read"]
    assert [row["session_id"] for row in hive.told("sessions", "list")] == [session["session_id"]]
    assert hive.rucher("journal", "rebuild").returncode != 0
    hive.stop()
    assert hive.rucher("journal", "rebuild").returncode == 0
    assert hive.told("sessions", "show", session["session_id"])["reset"]


def test_a_restarted_session_has_no_sandbox_until_its_next_call_and_keeps_its_files(hive: Hive) -> None:
    hive.start()
    hive.told("send", "keep this", "--wait")
    (session,) = hive.told("sessions", "list")
    heartbeat = Path(session["folder"]) / ".heartbeat"
    before = heartbeat.stat().st_mtime_ns
    until(lambda: heartbeat.stat().st_mtime_ns != before, "a runner's heart beats")
    assert "is ended; the next tool call starts another" in said(hive, "sessions", "restart", session["session_id"])
    still = heartbeat.stat().st_mtime_ns
    assert hive.told("send", "read", "--wait")["answer"] == "it says: this"
    assert heartbeat.stat().st_mtime_ns != still


BAD = {
    "users show user:cli:nobody": "there is no user",
    "users grant ana member": "write user:SURFACE:NAME",
    "users grant user:cli:ana king": "'king' is not one of",
    "users grant user:cli:ana member --agent scrib": "did you mean scribe?",
    "users revoke user:cli:ana": "has no role",
    "users block owner:owner": "write user:SURFACE:NAME",
    "users unblock user:cli:ana": "is not blocked",
    "users admit user:cli:anna": "did you mean user:cli:ana",
    "users name user:cli:nobody X": "there is no user",
    "groups show cli:attic": "there is no group",
    "groups name cli:attic X": "there is no group",
    "groups policy attic ask": "write SURFACE:GROUP",
    "groups policy cli:main open": "'open' is not one of",
    "agents show nobody": "there is no agent",
    "sessions show ZZZZ": "there is no session ZZZZ",
    "sessions show ?": "is no id",
    "sessions reset ZZZZ": "there is no session ZZZZ",
    "sessions restart ZZZZ": "there is no session ZZZZ",
}


def test_bad_input_to_each_command_is_one_line_and_changes_nothing(hive: Hive) -> None:
    meanwhile(hive, lambda store: arrives(store, "hello"))
    hive.start()
    for words, reason in BAD.items():
        done = hive.rucher(*words.split())
        assert done.returncode == 2, words
        (line,) = done.stderr.splitlines()
        assert reason in line, words
    assert [event["type"] for event in hive.events() if event["body"].get("by")] == []


def test_orders_need_the_daemon_and_lists_do_not(hive: Hive) -> None:
    meanwhile(hive, lambda store: arrives(store, "hello"))
    for words in (("users", "block", ANA), ("groups", "policy", "cli:main", "ask")):
        done = hive.rucher(*words)
        assert (done.returncode, "is not running" in done.stderr) == (2, True)
    for listing in ("users list", "users held", "groups list", "agents list", "sessions list"):
        assert isinstance(json.loads(hive.rucher(*listing.split(), "--json").stdout), list)
        assert hive.rucher(*listing.split()).returncode == 0
