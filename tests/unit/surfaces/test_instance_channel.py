import asyncio
import base64
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from nacl.signing import SigningKey, VerifyKey

from rucher.protocol.clock import SystemClock
from rucher.protocol.errors import Permanent
from rucher.protocol.events import Event, Trust, committed, message
from rucher.protocol.ids import is_id
from rucher.surfaces.channels.instance import InstanceChannel, Node, public_text
from rucher.surfaces.posting import Target
from tests.fakes.receiver import Receiver, receiving

KEY = SigningKey(b"the key of a node, of 32 bytes..")


@pytest.fixture
def door() -> Iterator[Receiver]:
    with receiving(Receiver(key=KEY.verify_key)) as receiver:
        yield receiver


def event(source: str = "telegram", **body: Any) -> Event:
    said = message(
        tenant="home", source=source, key="k", principal="user:telegram:ana", trust=Trust.OWNER, text="hi", group="42",
        thread="t1", occurred_at=1,
    )  # fmt: skip
    return committed(replace(said, body={**said.body, **body}), 1, 2)


def sent(door: Receiver, said: Event, agent: str | None = None, *journal: Event) -> Mapping[str, Any]:
    known = {one.id: one for one in journal}

    async def find(event_id: str) -> Event | None:
        return known.get(event_id)

    channel = InstanceChannel(Target(door.url, 10.0), Node("home", KEY, find), SystemClock(), agent)
    asyncio.run(channel.deliver(said, "HOP"))
    assert not door.refused
    return door.taken.pop("HOP")


def test_what_goes_to_another_instance_is_signed_and_keeps_its_trace_and_claims_no_principal_and_no_trust(
    door: Receiver,
) -> None:
    said = event(via=["agent:a"], depth=2)
    got = sent(door, said, "scribe")
    assert (got["specversion"], got["id"], got["source"], got["type"]) == (
        "1.0",
        "HOP",
        "rucher:home/telegram",
        "message",
    )
    assert (got["traceid"], got["addressedto"]) == (said.trace_id, "agent:scribe")
    data = got["data"]
    assert (data["text"], data["group"], data["thread"], data["via"], data["depth"]) == (
        "hi",
        "42",
        "t1",
        ["agent:a"],
        3,
    )
    assert not {"principal", "trust"} & (got.keys() | data.keys())


def test_an_answer_goes_home_to_the_room_that_was_asked_in_and_names_the_event_there(door: Receiver) -> None:
    asked = event()
    there = sent(door, asked, "scribe")
    arrived = event("home", payload=there["data"]["payload"])
    answer = replace(event("agent", in_reply_to=arrived.id), type="answer", principal="agent:scribe")
    got = sent(door, answer, None, arrived)
    assert (got["type"], got["addressedto"]) == ("answer", "group:telegram:42")
    assert (got["data"]["in_reply_to"], got["data"]["group"], got["data"]["thread"]) == (asked.id, "42", "t1")
    assert "answers" not in got["data"]


def test_the_answer_to_what_an_agent_asked_goes_home_to_that_agent(door: Receiver) -> None:
    asked = replace(event("agent", reply_topic="reply:X"), type="ask", principal="agent:cos")
    there = sent(door, asked, "scribe")
    assert there["type"] == "message"
    arrived = event("home", payload=there["data"]["payload"])
    answer = replace(event("agent", in_reply_to=arrived.id), type="failure", principal="agent:scribe")
    got = sent(door, answer, None, arrived)
    assert (got["type"], got["addressedto"], got["data"]["answers"]) == ("failure", "agent:cos", asked.id)
    assert is_id(got["data"]["in_reply_to"])


def test_what_answers_an_event_from_elsewhere_or_none_is_addressed_to_nobody(door: Receiver) -> None:
    local = event("cli")
    for said in (event(), event(in_reply_to=local.id), event(in_reply_to="nothing"), event(in_reply_to=3)):
        got = sent(door, replace(said, type="answer"), None, local)
        assert "addressedto" not in got
        assert "in_reply_to" not in got["data"]


def test_an_answer_to_an_automatic_message_stays_marked(door: Receiver) -> None:
    assert sent(door, event(automatic=True))["data"]["automatic"] is True
    assert "automatic" not in sent(door, event())["data"]


def test_a_door_that_knows_another_key_refuses_and_that_is_said(door: Receiver) -> None:
    door.key = SigningKey(b"the key of another, of 32 bytes.").verify_key
    with pytest.raises(Permanent, match="answered 400: signature"):
        sent(door, event())


def test_the_public_key_is_told_as_standard_webhooks_write_it() -> None:
    told = public_text(KEY.verify_key)
    assert VerifyKey(base64.b64decode(told.removeprefix("whpk_"))) == KEY.verify_key
