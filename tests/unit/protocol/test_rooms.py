"""How much of a room one session spans."""

import pytest

from rucher.protocol.events import Event, Trust, committed, message
from rucher.protocol.rooms import crossing, room_of


def said(source: str, group: str, thread: str) -> Event:
    draft = message(
        tenant="local", source=source, key="k", principal="owner:ana", trust=Trust.OWNER, text="x", group=group,
        thread=thread, occurred_at=1,
    )  # fmt: skip
    return committed(draft, 1, 1)


def test_a_room_is_a_group_of_one_surface_and_the_usual_one_where_none_is_named() -> None:
    assert room_of(said("cli", "kitchen", "t")) == "cli:kitchen"
    assert room_of(committed(said("hook", "x", ""), 1, 1, {"text": "nobody said where"})) == "hook:main"


@pytest.mark.parametrize(
    ("mode", "place"),
    [
        ("per-thread", ("cli:kitchen", "t")),
        ("shared", ("cli:kitchen", "")),
        ("per-agent", ("", "")),
    ],
)
def test_a_session_spans_a_thread_a_room_or_all_rooms(mode: str, place: tuple[str, str]) -> None:
    assert crossing(mode, said("cli", "kitchen", "t")) == place


def test_the_shared_session_of_a_room_is_the_one_outside_of_threads() -> None:
    assert crossing("shared", said("cli", "kitchen", "t")) == crossing("per-thread", said("cli", "kitchen", ""))
