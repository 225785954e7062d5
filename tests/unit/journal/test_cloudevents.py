"""An exported event obeys the CloudEvents specification, and is the same event when it is read back."""

import json
import re
import string
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.journal.cloudevents import cloudevent, event_from
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, RunPosition, Trust

YEAR_1, YEAR_10000 = -62_135_596_800_000_000, 253_402_300_800_000_000
EVENT = Event(
    id="01JG8Q2M5E0000000000000001", tenant="local", source="cli", type="message", principal="owner:ana",
    trust=Trust.OWNER, trace_id="01JG8Q2M5E0000000000000002", occurred_at=1_800_000_000_000_001, parent_id=None,
    addressed_to=None, body={"text": "hello"}, run=None, seq=7, recorded_at=1_800_000_000_123_456,
)  # fmt: skip

words = st.text(min_size=1)
numbers = st.integers(0, 2**62)
times = st.integers(YEAR_1, YEAR_10000 - 1)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
events = st.builds(
    Event,
    id=words,
    tenant=words,
    source=words,
    type=words,
    principal=words,
    trust=st.sampled_from(Trust),
    trace_id=words,
    occurred_at=times,
    parent_id=st.none() | words,
    addressed_to=st.none() | words,
    body=st.dictionaries(st.text(), values, max_size=3),
    run=st.none() | st.builds(RunPosition, words, numbers, numbers),
    seq=numbers,
    recorded_at=times,
)


def faults(record: dict[str, Any]) -> list[str]:
    """What the record breaks of the rules that CloudEvents 1.0.2 sets for context attributes and its JSON format."""
    found = []
    for name, value in record.items():
        if name == "data":
            continue
        if not 1 <= len(name) <= 20 or set(name) - set(string.ascii_lowercase + string.digits):
            found.append(f"{name!r} is no attribute name")
        if not isinstance(value, str) or not value:
            found.append(f"{name} is empty or no string")
        elif any(forbidden(ord(char)) for char in value):
            found.append(f"{name} holds a character that it may not")
    found += [f"{name} is missing" for name in ("id", "source", "specversion", "type") if name not in record]
    for name in ("time", "recordedtime"):
        if datetime.fromisoformat(record[name]).isoformat(timespec="microseconds") != record[name].replace(
            "Z", "+00:00"
        ):
            found.append(f"{name} is not RFC 3339")
    source = urlsplit(record["source"])
    if source.scheme != "rucher" or not re.fullmatch(r"([\w.~-]|%[0-9A-F]{2}|/)+", source.path, re.ASCII):
        found.append("source is no URI")
    return found


def forbidden(code: int) -> bool:
    control = code <= 0x1F or 0x7F <= code <= 0x9F
    nonchar = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    return control or nonchar or 0xD800 <= code <= 0xDFFF


@given(events, words)
def test_an_exported_event_obeys_the_specification_and_is_the_same_when_read_back(event: Event, instance: str) -> None:
    line = json.dumps(cloudevent(event, instance), ensure_ascii=False, allow_nan=False)
    record = json.loads(line.encode())
    assert faults(record) == []
    assert event_from(record) == event


@given(st.characters(codec="utf-8"))
def test_every_character_is_written_so_that_it_may_stand_in_an_attribute(char: str) -> None:
    assert not any(forbidden(ord(each)) for each in cloudevent(changed(principal=f"u{char}"), "home")["principal"])


def test_the_attributes_are_those_that_consumers_know() -> None:
    event = changed(parent_id="p", addressed_to="agent:cos", run=RunPosition("r", 3, 1))
    assert cloudevent(event, "ana's hive") == {
        "specversion": "1.0",
        "id": "01JG8Q2M5E0000000000000001",
        "source": "rucher:ana%27s%20hive/cli",
        "type": "message",
        "subject": "ev.local.cli.message",
        "time": "2027-01-15T08:00:00.000001Z",
        "recordedtime": "2027-01-15T08:00:00.123456Z",
        "datacontenttype": "application/json",
        "data": {"text": "hello"},
        "tenant": "local",
        "principal": "owner:ana",
        "trust": "owner",
        "traceid": "01JG8Q2M5E0000000000000002",
        "parentid": "p",
        "addressedto": "agent:cos",
        "seq": "7",
        "runid": "r",
        "runseq": "3",
        "fence": "1",
    }


def test_what_an_event_does_not_have_is_left_out() -> None:
    assert {"parentid", "addressedto", "runid", "runseq", "fence"} & cloudevent(EVENT, "home").keys() == set()


@pytest.mark.parametrize(
    "event",
    [
        {"principal": ""},
        {"addressed_to": ""},
        {"source": ""},
        {"tenant": "\ud800"},
        {"source": "\ud800"},
        {"occurred_at": YEAR_10000},
        {"recorded_at": YEAR_1 - 1},
        {"occurred_at": 10**30},
    ],
)
def test_what_no_cloudevent_can_hold_is_refused_and_names_the_event(event: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^event 7 cannot be exported as a CloudEvent: .+"):
        cloudevent(changed(**event), "home")


def test_an_instance_without_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="its instance is empty"):
        cloudevent(EVENT, "")


@pytest.mark.parametrize("name", sorted(cloudevent(EVENT, "home")))
def test_a_record_that_lacks_an_attribute_is_refused_by_its_name(name: str) -> None:
    record = cloudevent(EVENT, "home")
    del record[name]
    with pytest.raises(BadInput, match=rf"is none that Rucher exported: its {name} is") as raised:
        event_from(record)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("part", ["runid", "runseq", "fence"])
def test_a_place_in_a_run_is_whole_or_absent(part: str) -> None:
    record = cloudevent(changed(run=RunPosition("r", 3, 1)), "home")
    del record[part]
    with pytest.raises(BadInput, match=f"its {part} is missing"):
        event_from(record)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("specversion", "0.3"),
        ("id", ""),
        ("id", 5),
        ("id", "%FF"),
        ("source", "/cli"),
        ("source", "rucher:home/cli/x"),
        ("source", "rucher:home/%FF"),
        ("subject", "ev.local.cli.other"),
        ("datacontenttype", "text/plain"),
        ("data", [1]),
        ("data", "text"),
        ("trust", "root"),
        ("trust", "OWNER"),
        ("seq", 7),
        ("seq", "-1"),
        ("seq", "07"),
        ("seq", "9" * 5000),
        ("seq", "٣"),
        ("time", "2027-01-15"),
        ("time", "2027-13-15T08:00:00Z"),
        ("time", "2027-01-15T08:00:00"),
        ("recordedtime", "now"),
    ],
)
def test_a_record_with_a_wrong_value_is_refused_in_one_line(name: str, value: object) -> None:
    with pytest.raises(BadInput, match=r"^the CloudEvent .+ is none that Rucher exported: ") as raised:
        event_from(cloudevent(EVENT, "home") | {name: value})
    assert "\n" not in str(raised.value)


def test_attributes_that_others_added_do_no_harm() -> None:
    assert event_from(cloudevent(EVENT, "home") | {"comexampleextension": "x"}) == EVENT


def test_a_time_with_another_offset_is_the_same_time() -> None:
    assert event_from(cloudevent(EVENT, "home") | {"time": "2027-01-15T10:00:00.000001+02:00"}) == EVENT


def changed(**fields: Any) -> Event:
    return replace(EVENT, **fields)
