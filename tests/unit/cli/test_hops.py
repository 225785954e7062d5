"""Laws of `rucher hops`, `deliveries` and `deadletters`: they read a stopped instance, and say what can be done."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rucher.instance.layout import Instance
from rucher.journal.store import open_store
from rucher.protocol.events import control_event
from tests.unit.cli.recorded import Story, Ticking, asked, hop_of, record, rucher


def told(instance: Instance, *words: str) -> Any:
    result = rucher(instance, *words, "--json")
    assert result.exit_code == 0, result
    return json.loads(result.output)


def trouble(story: Story, kind: str, **body: Any) -> str:
    """One more hop to a surface, of which this is the last that happened; returns its id."""

    async def telling() -> str:
        clock = Ticking()
        async with open_store(story.instance.journal, clock) as store:
            draft = asked(clock, kind, "to be delivered \x1b[2J")
            hop = await hop_of(store, clock, draft, "r-chat-reply", "surface:chat", accepted=False)
            for number, (what, more) in enumerate(
                (("delivery.sending", {"surface": "chat", "attempt": 1}), (kind, body))
            ):
                about = {"hop": hop, "part": 1, "parts": 2, **more}
                event = control_event(
                    tenant="local", part="delivery", kind=what, key=f"{hop}:{number}", trace_id=draft.trace_id,
                    parent_id=hop, occurred_at=clock.now(), body=about,
                )  # fmt: skip
                await store.append(event)
        return hop

    return asyncio.run(telling())


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return record(tmp_path / "hive")


def test_hops_are_listed_newest_first_with_how_far_each_got(story: Story) -> None:
    hop = trouble(story, "delivery.deferred", attempt=1, reason="connection refused")
    rows = told(story.instance, "hops", "list")
    assert [(row["dest"], row["state"]) for row in rows] == [
        ("surface:chat", "sending"), ("surface:cli", "delivered"), ("agent:scribe", "done"),
    ]  # fmt: skip
    assert [row["hop_id"] for row in told(story.instance, "hops", "list", "--open")] == [hop]
    assert len(told(story.instance, "hops", "list", "--trace", story.trace_id)) == 2
    assert told(story.instance, "hops", "list", "--trace", story.trace_id, "--open") == []
    assert len(told(story.instance, "hops", "list", "--limit", "1")) == 1


def test_an_open_hop_says_since_when_and_why(story: Story) -> None:
    hop = trouble(story, "delivery.deferred", attempt=1, reason="connection refused")
    (row,) = told(story.instance, "hops", "list", "--open")
    assert row["why"] == "connection refused"
    assert row["made_at"] < row["since"]
    assert "connection refused" in rucher(story.instance, "hops", "list", "--open").output
    shown = rucher(story.instance, "hops", "show", hop[:20]).output
    assert "connection refused" in shown
    assert "unchanged for" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("kind", "option", "todo"),
    [
        ("delivery.failed", "--failed", "rucher deadletters retry"),
        ("delivery.uncertain", "--uncertain", "rucher deliveries resolve"),
    ],
)
def test_what_ended_badly_is_listed_and_says_what_to_do(story: Story, kind: str, option: str, todo: str) -> None:
    hop = trouble(story, kind, reason="chat gone")
    rows = told(story.instance, "deliveries", "list", option)
    assert [(row["hop_id"], row["part"], row["detail"]) for row in rows] == [(hop, 1, "chat gone")]
    assert [(row["part"], row["state"]) for row in told(story.instance, "deliveries", "list", "--open")] == [
        (2, "pending")
    ]
    shown = rucher(story.instance, "deliveries", "show", hop)
    assert f"To go on: {todo} {hop}" in shown.output
    letters = [row["hop_id"] for row in told(story.instance, "deadletters", "list")]
    assert letters == ([hop] if kind == "delivery.failed" else [])
    assert "chat gone" in rucher(story.instance, "deliveries", "list").output


def test_a_hop_is_shown_whole_as_json(story: Story) -> None:
    hop = trouble(story, "delivery.failed", reason="chat gone")
    shown = told(story.instance, "hops", "show", hop)
    assert [part["state"] for part in shown["parts"]] == ["failed", "pending"]
    assert [event["type"] for event in shown["story"]] == ["hop.made", "delivery.sending", "delivery.failed"]
    assert shown["event"]["body"]["text"].startswith("to be delivered")
    assert told(story.instance, "deadletters", "show", hop)["todo"] == f"rucher deadletters retry {hop}"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("hops", "show", "ZZZ"), "there is no hop ZZZ"),
        (("hops", "show", "!"), "is no id"),
        (("hops", "list", "--trace", "ZZZ"), "there is no trace"),
        (("deadletters", "retry", "ZZZ"), "there is no hop ZZZ"),
        (("deadletters", "drop", "ZZZ"), "there is no hop ZZZ"),
        (("deliveries", "resolve", "ZZZ", "delivered"), "there is no hop ZZZ"),
        (("deliveries", "resolve", "ZZZ:x", "delivered"), "'x' is no part"),
        (("deliveries", "resolve", "ZZZ:0", "delivered"), "'0' is no part"),
        (("deliveries", "resolve", "ZZZ", "maybe"), "'maybe' is not one of"),
        (("deliveries", "list", "--limit", "0"), "0 is not in the range"),
    ],
)
def test_bad_input_is_refused_in_one_line(story: Story, words: tuple[str, ...], says: str) -> None:
    result = rucher(story.instance, *words)
    assert result.exit_code != 0
    assert says in (str(result.exception) + result.output)


def test_what_is_no_dead_letter_and_what_was_never_sent_are_not_shown_as_such(story: Story) -> None:
    done = told(story.instance, "hops", "list", "--trace", story.trace_id)
    delivered, taken = (row["hop_id"] for row in done)
    assert "is no dead letter, it is delivered" in str(
        rucher(story.instance, "deadletters", "show", delivered).exception
    )
    assert "was sent out" in str(rucher(story.instance, "deliveries", "show", taken).exception)
    assert rucher(story.instance, "deliveries", "show", delivered).exit_code == 0


def test_an_order_needs_a_running_daemon(story: Story) -> None:
    hop = trouble(story, "delivery.failed", reason="chat gone")
    for words in (
        ("deadletters", "retry", hop),
        ("deadletters", "drop", hop),
        ("deliveries", "resolve", hop, "delivered"),
    ):
        assert "is not running; start it" in str(rucher(story.instance, *words).exception)
