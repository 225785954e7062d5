"""What cannot be delivered is told, listed, tried again and dropped, through the command line on a real daemon."""

import asyncio
import fcntl
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.store import open_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import control_event
from tests.fakes.hive import Hive, running, until


@contextmanager
def locked(hive: Hive, group: str) -> Iterator[None]:
    """Keep the surface from writing to this group's file."""
    folder = hive.state / "surfaces" / "cli"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{group}.jsonl").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def undelivered(hive: Hive, group: str) -> None:
    """Send a message whose answer cannot be delivered."""
    said = hive.rucher("send", "hello", "--group", group, "--wait", "--json")
    assert json.loads(said.stdout)["status"] == "undelivered", said


def broken(hive: Hive, group: str) -> Path:
    """Make the surface refuse everything that goes to this group for good; returns what to remove to mend it."""
    place = hive.state / "surfaces" / "cli" / f"{group}.jsonl"
    place.mkdir(parents=True)
    return place


def dead(hive: Hive) -> list[str]:
    return [row["hop_id"] for row in hive.told("deadletters", "list")]


def test_what_failed_is_told_to_owner_and_agent_and_is_delivered_once_after_retry(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        place = broken(hive, "den")
        undelivered(hive, "den")
        (hop,) = dead(hive)
        until(lambda: len(hive.delivered()) == 1, "the owner is told")
        assert f"hop {hop}" in hive.delivered()[0]
        assert "rucher deadletters retry" in hive.delivered()[0]
        (note,) = hive.events("ev.*.rucher.session.noted")
        told = {event["id"]: event for event in hive.events("ev.*.rucher.delivery.told")}[note["body"]["event"]]
        assert "was not delivered" in told["body"]["text"]
        place.rmdir()
        assert hive.rucher("deadletters", "retry", hop[:12]).returncode == 0
        until(lambda: hive.delivered("den") == ["echo: hello"], "the retried answer")
        until(lambda: dead(hive) == [], "no dead letter is left")
        again = hive.rucher("deadletters", "retry", hop)
        assert (again.returncode, "ended well" in again.stderr) == (2, True)
        assert hive.delivered("den") == ["echo: hello"]


def test_a_dropped_letter_stays_dropped_over_a_restart_and_is_not_sent(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        place = broken(hive, "den")
        undelivered(hive, "den")
        (hop,) = dead(hive)
        assert hive.rucher("deadletters", "drop", hop, "--reason", "old").returncode == 0
        assert dead(hive) == []
        place.rmdir()
        hive.kill()
        hive.start()
        hive.told("send", "next", "--group", "den", "--wait")
        (said,) = hive.delivered("den")
        assert said.endswith("next")
        assert hive.told("deadletters", "show", hop)["why"] == "dropped by owner:owner: old"


def test_a_failed_hop_is_not_tried_again_by_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        place = broken(hive, "den")
        undelivered(hive, "den")
        hive.stop()
        place.rmdir()
        hive.start()
        hive.told("send", "next", "--group", "den", "--wait")
        (said,) = hive.delivered("den")
        assert said.endswith("next")
        assert len(dead(hive)) == 1


def test_an_answer_in_flight_when_the_daemon_stops_is_delivered_after_its_start(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        with locked(hive, "den"):
            hive.told("send", "hello", "--group", "den")
            until(lambda: bool(hive.events("ev.*.rucher.delivery.deferred")), "an attempt")
            (row,) = hive.told("deliveries", "list", "--open")
            assert "locked by another program" in row["detail"]
            hive.stop()
        hive.start()
        until(lambda: hive.delivered("den") == ["echo: hello"], "the answer")


def test_the_same_message_sent_again_and_again_has_one_answer(tmp_path: Path) -> None:
    with running(tmp_path) as hive:
        for number in range(6):
            said = hive.told("send", "hello", "--key", "k", "--wait")
            assert said["answer"] == "echo: hello"
            if number == 2:
                hive.kill()
                hive.start()
        hive.told("send", "next", "--wait")
        assert hive.delivered() == ["echo: hello", "echo: next"]


def test_ten_stuck_hops_starve_nobody_and_are_visible(tmp_path: Path) -> None:
    with running(tmp_path) as hive, ExitStack() as stack:
        for number in range(10):
            stack.enter_context(locked(hive, f"stuck{number}"))
            hive.told("send", "hello", "--group", f"stuck{number}")
        until(lambda: len(hive.told("deliveries", "list", "--open")) == 10, "ten stuck deliveries")
        said = hive.told("send", "quick", "--wait", "--timeout", "20")
        assert said["status"] == "answered"
        rows = hive.told("hops", "list", "--open")
        assert len(rows) == 10
        assert all("locked by another program" in row["why"] and row["since"] for row in rows)


@pytest.mark.parametrize(("verdict", "visible"), [("delivered", []), ("not-delivered", ["echo: hello"])])
def test_the_owner_s_word_about_what_is_uncertain_is_asked_for_and_obeyed(
    tmp_path: Path, verdict: str, visible: list[str]
) -> None:
    with running(tmp_path) as hive:
        with locked(hive, "den"):
            hive.told("send", "hello", "--group", "den")
            until(lambda: bool(hive.events("ev.*.rucher.delivery.deferred")), "an attempt")
            hive.stop()
        (row,) = hive.told("hops", "list", "--open")
        asyncio.run(leave_uncertain(hive, row))
        hive.start()
        until(lambda: len(hive.delivered()) == 1, "the owner is asked")
        assert f"hop {row['hop_id']}" in hive.delivered()[0]
        assert "rucher deliveries resolve" in hive.delivered()[0]
        (part,) = hive.told("deliveries", "list", "--uncertain")
        assert part["detail"] == "the machine lost power"
        assert hive.rucher("deliveries", "resolve", f"{row['hop_id']}:1", verdict).returncode == 0
        until(lambda: hive.told("hops", "show", row["hop_id"])["state"] == "delivered", "the hop's end")
        assert hive.delivered("den") == visible
        again = hive.rucher("deliveries", "resolve", row["hop_id"], verdict)
        assert (again.returncode, "is not uncertain" in again.stderr) == (2, True)


async def leave_uncertain(hive: Hive, row: dict[str, Any]) -> None:
    """Write down what the daemon would of a surface that can tell nothing about an attempt that was cut off."""
    async with open_store(hive.instance.journal, SystemClock()) as store:
        about = {"hop": row["hop_id"], "part": 1, "parts": 1, "reason": "the machine lost power"}
        event = control_event(
            tenant="local", part="delivery", kind="delivery.uncertain", key=row["hop_id"], trace_id=row["trace_id"],
            parent_id=row["hop_id"], occurred_at=SystemClock().now(), body=about,
        )  # fmt: skip
        await store.append(event)
