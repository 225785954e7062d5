"""A whole instance tells a receiver of its traces, and works the same whatever becomes of the receiver."""

from pathlib import Path

import pytest

from rucher.protocol.ids import decode
from tests.fakes.hive import Hive, resting, until
from tests.fakes.otlp_receiver import Receiver, receiving

pytestmark = pytest.mark.timeout(180)

A_TURN = sorted([
    "receive cli", "route agent:scribe", "chat scripted:script", "invoke_agent scribe", "emit answer", "route surface:cli",
    "deliver cli",
])  # fmt: skip


def traced(hive: Hive, endpoint: str) -> None:
    config = hive.root / "rucher.toml"
    config.write_text(f'{config.read_text("utf-8")}\n[otel]\nendpoint = "{endpoint}"\n')


def asked(hive: Hive, text: str) -> str:
    """The trace of a message that was answered."""
    done = hive.rucher("send", text, "--key", text)
    assert done.returncode == 0, done.stderr
    until(lambda: f"echo: {text}" in hive.delivered(), f"{text} was not answered")
    return next(str(event["trace_id"]) for event in hive.events("ev.*.cli.message") if event["body"]["text"] == text)


def noted(hive: Hive) -> int:
    """How far the receiver was told, as the next start will read it."""
    place = hive.state / "otel.place"
    return int(place.read_text("ascii")) if place.exists() else 0


def names(server: Receiver, trace: str) -> list[str]:
    wanted = decode(trace).to_bytes(16, "big")
    return sorted(span.name for span in server.spans if span.trace_id == wanted)


def test_each_turn_is_told_once_also_over_a_kill_and_while_the_receiver_was_away(tmp_path: Path) -> None:
    with resting(tmp_path) as hive, receiving() as server:
        traced(hive, server.endpoint)
        hive.start()
        first = asked(hive, "one")
        until(lambda: names(server, first) == A_TURN, "the first turn was not told")
        # Killed before it has noted this, it would tell some spans again, under the same ids.
        until(lambda: noted(hive) == hive.events()[-1]["seq"], "it was not noted how far the receiver was told")
        hive.kill()
        server.answers = [(503, {})] * 2
        hive.start()
        second = asked(hive, "two")
        until(lambda: names(server, second) == A_TURN, "the second turn was not told")
        assert server.faults == []
        ids = [span.span_id for span in server.spans]
        assert len(ids) == len(set(ids))


def test_an_instance_whose_receiver_is_not_there_answers_all_the_same(tmp_path: Path) -> None:
    with receiving() as gone:
        endpoint = gone.endpoint
    with resting(tmp_path) as hive:
        traced(hive, endpoint)
        hive.start()
        asked(hive, "one")
        until(lambda: "cannot be reached" in hive.instance.log.read_text("utf-8"), "nothing is said of the receiver")
        asked(hive, "two")
        hive.stop()
