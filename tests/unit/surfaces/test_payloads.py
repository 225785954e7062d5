"""Laws of what a verified delivery becomes: a type that subjects can hold, a short text, the whole beside it, a signed key."""

from typing import Any

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.ids import derived
from rucher.surfaces.ingress import IncomingEvent
from rucher.surfaces.payloads import JSON, MOST_SHOWN, at_path, event_of, kind_of, read_payload
from rucher.surfaces.sources import Source, parse_sources
from rucher.surfaces.verification import Delivery, Scheme, Verified, body_key
from tests.fakes.senders import PUBLIC_KEY

BODY = b"the signed body"


def source(scheme: Scheme, *lines: str) -> Source:
    key = f'public_key = "{PUBLIC_KEY}"\n' if scheme is Scheme.ED25519 else ""
    text = f'[[source]]\nname = "shop"\nscheme = "{scheme.value}"\n{key}' + "\n".join(lines)
    return parse_sources(text, "sources.toml").by_name["shop"]


def made(scheme: Scheme, payload: Any, *lines: str, key: str | None = "k", **headers: str) -> IncomingEvent:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return event_of(source(scheme, *lines), Verified(key), Delivery(named, BODY, 0), payload)


GITHUB = {
    "action": "opened",
    "repository": {"full_name": "ana/notes"},
    "sender": {"login": "ben"},
    "issue": {"title": "It rains", "html_url": "https://example.org/1"},
    "comment": {"body": "in the\nkitchen"},
}
CHARGE = {"object": {"object": "charge", "id": "ch_1", "amount": 1200, "currency": "eur", "status": "succeeded"}}


@pytest.mark.parametrize(
    ("scheme", "payload", "kind", "text"),
    [
        (
            Scheme.GITHUB, GITHUB, "issues",
            "issues opened in ana/notes by ben: It rains\nin the\nkitchen\nhttps://example.org/1",
        ),
        (Scheme.GITHUB, {"zen": "Keep it simple."}, "issues", "issues"),
        (
            Scheme.STRIPE, {"type": "charge.succeeded", "data": CHARGE}, "charge.succeeded",
            "charge.succeeded, charge, ch_1, succeeded, 1200 EUR in its smallest unit",
        ),
        (Scheme.STRIPE, {"type": "charge.succeeded", "data": None}, "charge.succeeded", "charge.succeeded"),
        (Scheme.SLACK, {"type": "event_callback", "event": {"type": "message", "text": "hello"}}, "message", "hello"),
        (Scheme.SLACK, {"command": "/now", "text": ""}, "command", "/now"),
        (Scheme.SLACK, {"type": "block_actions"}, "block_actions", 'block_actions: {"type": "block_actions"}'),
        (Scheme.STANDARD, {"type": "user.created", "data": {"text": "Ana came"}}, "user.created", "Ana came"),
        (Scheme.STANDARD, {"type": "user.created", "n": 1}, "user.created", 'user.created: {"type": "user.created", "n": 1}'),
        (Scheme.BEARER, {"text": "hi"}, "message", "hi"),
        (Scheme.BEARER, [1, 2], "message", "message: [1, 2]"),
        (Scheme.BEARER, "hi", "message", "hi"),
        (Scheme.BEARER, {}, "message", "message"),
        (Scheme.BEARER, {"text": " "}, "message", 'message: {"text": " "}'),
    ],
)  # fmt: skip
def test_each_senders_events_have_a_type_and_a_text_to_read(scheme: Scheme, payload: Any, kind: str, text: str) -> None:
    event = made(scheme, payload, x_github_event="issues")
    assert (event.type, event.body["text"], event.body["payload"]) == (kind, text, payload)
    assert (event.body["group"], event.body["thread"], event.principal) == ("main", "", "partner:shop")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("a.b", "a.b"),
        ("..a..b..", "a.b"),
        ("a b/c>*", "a_b_c"),
        ("", "message"),
        ("> . *", "message"),
        ("é", "message"),
        (None, "message"),
        (7, "7"),
        (True, "message"),
        ({"x": 1}, "message"),
        ("x" * 5000, "x" * 100),
        ("a\nb\0c", "a_b_c"),
    ],
)
def test_a_type_is_always_parts_that_a_subject_can_hold(given: Any, kind: str) -> None:
    assert made(Scheme.BEARER, {"type": given}).type == kind


def test_type_text_group_and_thread_come_from_where_the_owner_says() -> None:
    payload = {"event": {"kind": "alarm", "room": "C024 BE/91L", "n": 12, "lines": [{"said": "smoke"}]}}
    lines = (
        'type = "body:event.kind"',
        'text = "event.lines.0.said"',
        'group = "body:event.room"',
        'thread = "body:event.n"',
    )
    event = made(Scheme.BEARER, payload, *lines)
    assert (event.type, event.body["text"]) == ("alarm", "smoke")
    assert (event.body["group"], event.body["thread"]) == ("c024-be-91l", "12")
    assert made(Scheme.BEARER, {}, 'type = "header:X-Kind"', x_kind="ring").type == "ring"
    assert made(Scheme.BEARER, {}, 'type = "ring"').type == "ring"
    assert made(Scheme.BEARER, {}, 'group = "body:nowhere"').body["group"] == "main"
    assert made(Scheme.BEARER, {"a": {"b": 1}}, 'text = "a"').body["text"] == '{"b": 1}'
    assert made(Scheme.BEARER, {"text": "b"}, 'text = "nowhere"').body["text"] == "b"


def test_a_rendering_is_cut_visibly_and_a_field_that_the_owner_chose_is_not() -> None:
    assert made(Scheme.BEARER, {"text": "x" * 9000}).body["text"] == "x" * (MOST_SHOWN - 4) + " ..."
    assert made(Scheme.BEARER, {"text": "x" * 9000}, 'text = "text"').body["text"] == "x" * 9000


@pytest.mark.parametrize(
    ("scheme", "payload", "key"),
    [
        (Scheme.STRIPE, {"id": "evt_1"}, "id:evt_1"),
        (Scheme.STRIPE, {"id": 7}, body_key(BODY)),
        (Scheme.STRIPE, {"id": "e" * 101}, body_key(BODY)),
        (Scheme.SLACK, {"event_id": "Ev1", "trigger_id": "1.2"}, "id:Ev1"),
        (Scheme.SLACK, {"trigger_id": "1.2"}, "id:1.2"),
        (Scheme.SLACK, {}, body_key(BODY)),
        (Scheme.BEARER, {"id": "x"}, None),
    ],
)
def test_the_key_is_an_id_that_was_signed_or_the_body_itself(scheme: Scheme, payload: Any, key: str | None) -> None:
    assert made(scheme, payload, key=None).key == key


def test_what_a_program_wrote_into_a_chat_is_automatic() -> None:
    assert made(Scheme.SLACK, {"event": {"bot_id": "B1"}}).body["automatic"] is True
    assert made(Scheme.SLACK, {"event": {"subtype": "bot_message"}}).body["automatic"] is True
    assert "automatic" not in made(Scheme.SLACK, {"event": {"user": "U1"}}).body


@pytest.mark.parametrize(
    ("scheme", "given", "kind"),
    [
        (Scheme.GITHUB, "application/json", "json"),
        (Scheme.GITHUB, "Application/JSON; charset=UTF-8", "json"),
        (Scheme.STANDARD, "application/cloudevents+json", "json"),
        (Scheme.GITHUB, "application/x-www-form-urlencoded", "form"),
        (Scheme.SLACK, "application/x-www-form-urlencoded", "form"),
        (Scheme.STRIPE, "application/x-www-form-urlencoded", None),
        (Scheme.BEARER, "text/plain; charset=utf-8", "text"),
        (Scheme.STANDARD, "text/plain", None),
        (Scheme.BEARER, 'application/json; charset="utf-16"', None),
        (Scheme.BEARER, "json", None),
        (Scheme.BEARER, "", None),
    ],
)
def test_a_body_is_read_by_its_content_type_only(scheme: Scheme, given: str, kind: str | None) -> None:
    assert kind_of(scheme, {"content-type": given}) == kind


def test_a_form_is_its_fields_and_one_field_payload_is_the_json_in_it() -> None:
    assert read_payload("form", b"command=%2Fnow&text=") == {"command": "/now", "text": ""}
    assert read_payload("form", b"payload=%7B%22a%22%3A1%7D") == {"a": 1}
    assert read_payload("text", "é".encode()) == {"text": "é"}
    with pytest.raises(BadInput, match="not JSON"):
        read_payload("form", b"payload=%7B")
    with pytest.raises(BadInput, match="no form"):
        read_payload("form", b"a=%ff")
    with pytest.raises(BadInput, match="no form"):
        read_payload("form", b"&".join(b"a=1" for _ in range(501)))
    with pytest.raises(BadInput, match="line 1 column 1"):
        read_payload(JSON, b"{")


def test_a_path_leads_through_tables_and_lists_and_never_fails() -> None:
    assert at_path({"a": [{"b": 0}]}, "a.0.b") == 0
    for path in ("", "a.1.b", "a.b", "a.-1", "a.0.b.c", "a.\u0661"):
        assert at_path({"a": [{"b": 0}]}, path) is None


ID = derived("one")
CLOUD = {
    "specversion": "1.0", "type": "answer", "traceid": ID, "addressedto": "group:cli:kitchen", "principal": "owner:ana",
    "trust": "owner",
    "data": {
        "text": "done", "group": "kitchen", "thread": "t1", "via": ["agent:scribe"], "depth": 3, "answers": ID,
        "in_reply_to": ID, "automatic": True, "payload": {"n": 1}, "run": "x",
    },
}  # fmt: skip
MAY = 'addresses = ["group:cli:*", "agent:scribe"]'


def test_of_a_cloud_event_what_it_says_is_taken_over_and_never_who_it_says_it_is() -> None:
    event = made(Scheme.ED25519, CLOUD, MAY)
    assert (event.principal, event.type, event.addressed_to) == ("partner:shop", "answer", "group:cli:kitchen")
    assert event.body == {
        "text": "done", "group": "kitchen", "thread": "t1", "via": ["agent:scribe"], "depth": 3, "answers": ID,
        "in_reply_to": ID, "trace": ID, "automatic": True, "payload": {"n": 1},
    }  # fmt: skip
    plain = made(Scheme.STANDARD, {"specversion": "1.0", "type": "t", "data": [1]})
    assert (plain.body["payload"], plain.body["text"], plain.addressed_to) == ([1], "t: [1]", None)


def test_only_another_node_goes_on_with_a_trace_of_ours() -> None:
    said = {"specversion": "1.0", "type": "t", "traceid": ID, "data": {"text": "hi"}}
    assert made(Scheme.ED25519, said).trace_id == ID
    assert [made(scheme, said).trace_id for scheme in (Scheme.STANDARD, Scheme.BEARER)] == [None, None]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"addressedto": "agent:other"}, "may not address 'agent:other'"),
        ({"addressedto": "group:cli:"}, "may not address"),
        ({"addressedto": 5}, "addressedto must be text"),
        ({"traceid": "x"}, "traceid must be an id"),
        ({"data": {"text": 5}}, "data.text must be text"),
        ({"data": {"group": "A b"}}, "data.group must be a name"),
        ({"data": {"via": ["a"] * 65}}, "data.via must list up to 64"),
        ({"data": {"via": ["a\n"]}}, "data.via"),
        ({"data": {"via": "a"}}, "data.via"),
        ({"data": {"depth": -1}}, "data.depth"),
        ({"data": {"depth": True}}, "data.depth"),
        ({"data": {"answers": 5}}, "data.answers must be an id"),
    ],
)
def test_a_cloud_event_that_cannot_be_used_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        made(Scheme.ED25519, {**CLOUD, **changes}, MAY)


def test_without_a_line_of_the_owner_nobody_may_be_addressed() -> None:
    with pytest.raises(BadInput, match="may not address"):
        made(Scheme.ED25519, CLOUD)
