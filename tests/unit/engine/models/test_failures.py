"""What a provider's refusal means, and what a person is told to do."""

import json

import pytest

from rucher.engine.models.wire.failures import failed_midway, refused
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.retrying import retry_after

WHERE = "api.example.org, model m"


def error(message: str, code: str | None = None) -> str:
    return json.dumps({"error": {"message": message, "code": code}})


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_an_overloaded_provider_is_worth_another_try(status: int) -> None:
    found = refused(status, {"retry-after": "7"}, error("slow down"), WHERE)
    assert isinstance(found, Retryable)
    assert found.retry_after == 7.0
    assert str(found) == "api.example.org, model m: slow down"


@pytest.mark.parametrize(
    ("status", "body", "advice"),
    [
        (401, error("bad key"), "key_env"),
        (403, error("not allowed"), "key_env"),
        (404, error("no such model"), "name and base_url"),
        (404, "<html>not here</html>", "HTTP status 404"),
        (402, error("pay"), "credit"),
        (429, error("You exceeded your current quota", "insufficient_quota"), "credit"),
        (400, error("too long", "context_length_exceeded"), "new thread"),
        (400, json.dumps({"error": {"message": "x", "type": "exceed_context_size_error"}}), "new thread"),
        (500, error("the context size is exceeded"), "new thread"),
        (413, "", "new thread"),
        (400, error("unknown field"), "name and base_url"),
        (308, "", "final address"),
        (400, '{"error": "in plain words"}', "in plain words"),
        (400, '["odd"]', "HTTP status 400"),
    ],
)
def test_a_final_refusal_says_what_to_do(status: int, body: str, advice: str) -> None:
    found = refused(status, {}, body, WHERE)
    assert isinstance(found, Permanent)
    assert advice in str(found)
    assert str(found).startswith(WHERE)


def test_a_reason_of_many_lines_becomes_one_short_line() -> None:
    told = str(refused(400, {}, error("a\nb\n" + "c" * 5000), WHERE))
    assert "\n" not in told
    assert len(told) < 400


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2.5"}, 2.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "soon", "date": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
def test_the_time_to_wait_is_read_without_a_clock(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_an_error_inside_a_stream_is_judged_by_its_code() -> None:
    assert isinstance(failed_midway('{"error": {"message": "overloaded"}}', WHERE), Retryable)
    assert isinstance(failed_midway('{"message": "x", "code": "insufficient_quota"}', WHERE), Permanent)
