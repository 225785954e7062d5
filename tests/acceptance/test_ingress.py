"""Webhooks through the whole daemon: each sender's own library signs, its owner sees what became of it, nothing comes twice."""

import contextlib
import http.client
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from rucher.protocol.clock import SystemClock
from rucher.surfaces.verification import Scheme
from tests.fakes.hive import Hive, resting, running, until
from tests.fakes.senders import OTHERS, PUBLIC_KEY, SECRETS, Sent, bearer, by, github

PAYLOAD = {"type": "invoice.paid", "id": "evt_1", "text": "the invoice is paid"}


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    with running(tmp_path) as started:
        yield started


def now() -> int:
    return SystemClock().now() // 1_000_000


def add(hive: Hive, scheme: Scheme, *words: str) -> None:
    """A source named as its scheme, with the secret that tests sign with."""
    if scheme is Scheme.ED25519:
        given: tuple[str, ...] = ("--public-key", PUBLIC_KEY)
    else:
        given = ("--secret-file", "-")
    text = SECRETS[scheme] + "\n"
    done = hive.rucher("sources", "add", scheme.value, "--scheme", scheme.value, *given, *words, text=text)
    assert done.returncode == 0, done.stderr


def post(hive: Hive, source: str, sent: Sent) -> httpx2.Response:
    url = f"http://127.0.0.1:{hive.port}/ingress/{source}"
    return httpx2.post(url, content=sent.body, headers=dict(sent.headers), timeout=60, trust_env=False)


def request(sent: Sent, source: str) -> bytes:
    """The delivery as it goes over the wire."""
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.headers.items())
    first = f"POST /ingress/{source} HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(sent.body)}\r\n\r\n"
    return first.encode() + sent.body


def test_every_sender_is_heard_once_and_its_event_is_routed(hive: Hive) -> None:
    for scheme in Scheme:
        add(hive, scheme)
    for scheme in Scheme:
        sent = by(scheme, PAYLOAD, now())
        told = [post(hive, scheme.value, sent).json() for _ in range(3)]
        assert [one["duplicate"] for one in told] == [False, True, True]
        assert len({one["event_id"] for one in told}) == 1
        (event,) = hive.events(f"ev.*.{scheme.value}.>")
        assert (event["id"], event["trust"]) == (told[0]["event_id"], "partner")
        assert event["body"]["payload"] == PAYLOAD
    until(lambda: len(hive.events("ev.*.rucher.hop.acknowledged")) == len(Scheme), "not all were handed to an agent")
    rows = {row["name"]: row for row in hive.told("sources", "list")}
    assert [(row["accepted"], row["duplicate"], row["refused"]) for row in rows.values()] == [(1, 2, {})] * len(Scheme)


def test_what_is_not_signed_leaves_no_trace_but_a_number(hive: Hive) -> None:
    add(hive, Scheme.GITHUB)
    assert post(hive, "github", github(PAYLOAD, secret=OTHERS[Scheme.GITHUB])).status_code == 401
    assert post(hive, "nobody", github(PAYLOAD)).status_code == 404
    assert [event for event in hive.events() if event["source"] != "rucher"] == []
    (row,) = hive.told("sources", "list")
    assert (row["accepted"], row["refused"]) == (0, {"signature": 1})
    assert "1 signature" in hive.rucher("sources", "list").stdout
    assert "1 no_source" in hive.rucher("sources", "list").stderr
    token = hive.instance.token.read_text().strip()
    url = f"http://127.0.0.1:{hive.port}/api/v1/metrics"
    assert httpx2.get(url, trust_env=False).status_code == 403
    response = httpx2.get(url, headers={"authorization": f"Bearer {token}"}, trust_env=False)
    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    line = 'rucher_ingress_deliveries_total{source="github",outcome="refused",reason="signature"} 1'
    assert line in response.text.splitlines()
    assert response.text.endswith("# EOF\n")


def test_a_delivery_that_was_not_acknowledged_before_a_kill_is_handled_once(tmp_path: Path) -> None:
    with resting(tmp_path) as hive:
        add(hive, Scheme.STANDARD)
        hive.start()
        sent = by(Scheme.STANDARD, PAYLOAD, now())
        assert post(hive, "standard", sent).status_code == 202
        hive.kill()
        hive.start()
        again = post(hive, "standard", sent)
        assert (again.status_code, again.json()["duplicate"]) == (200, True)
        until(lambda: hive.events("ev.*.rucher.run.finished"), "it was not handled")
        assert len(hive.events("ev.*.standard.>")) == 1
        assert len(hive.events("ev.*.rucher.run.finished")) == 1
        hive.stop()


@pytest.mark.parametrize("wait_s", [0.0, 0.005])
def test_a_kill_at_any_moment_of_a_delivery_and_a_second_attempt_are_one_event(tmp_path: Path, wait_s: float) -> None:
    with resting(tmp_path) as hive:
        add(hive, Scheme.STANDARD)
        hive.start()
        sent = by(Scheme.STANDARD, PAYLOAD, now())
        with socket.create_connection(("127.0.0.1", hive.port)) as connection:
            connection.sendall(request(sent, "standard"))
            connection.settimeout(wait_s)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                connection.recv(1)
            hive.kill()
        kept = len(hive.events("ev.*.standard.>"))
        hive.start()
        assert post(hive, "standard", sent).json()["duplicate"] is bool(kept)
        assert len(hive.events("ev.*.standard.>")) == 1
        hive.stop()


def test_a_sender_that_connects_anew_again_and_again_gets_one_answer(hive: Hive) -> None:
    add(hive, Scheme.BEARER)
    sent = bearer(PAYLOAD, "k-1")
    head = "".join(f"{name}: {value}\r\n" for name, value in sent.headers.items())
    request = (
        f"POST /ingress/bearer HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(sent.body)}\r\n\r\n".encode()
        + sent.body
    )
    for cut in (len(request), len(request), len(request) - 5, 40, len(request)):
        with socket.create_connection(("127.0.0.1", hive.port)) as connection:
            connection.sendall(request[:cut])
    assert post(hive, "bearer", sent).json()["event_id"]
    until(lambda: hive.events("ev.*.agent.answer"), "there was no answer")
    assert len(hive.events("ev.*.bearer.>")) == 1
    assert len(hive.events("ev.*.agent.answer")) == 1


def test_secrets_are_rotated_and_sources_removed_while_the_daemon_runs(hive: Hive) -> None:
    add(hive, Scheme.GITHUB)
    assert post(hive, "github", github({"n": 1})).status_code == 202
    told = hive.told("sources", "rotate", "github")
    assert post(hive, "github", github({"n": 2})).status_code == 202
    assert post(hive, "github", github({"n": 3}, secret=told["secret"])).status_code == 202
    newest = hive.told("sources", "rotate", "github", "--now")
    assert post(hive, "github", github({"n": 4})).status_code == 401
    assert post(hive, "github", github({"n": 5}, secret=newest["secret"])).status_code == 202
    assert hive.rucher("sources", "remove", "github").returncode == 0
    assert post(hive, "github", github({"n": 6}, secret=newest["secret"])).status_code == 404
    everything = json.dumps(hive.events())
    assert told["secret"] not in everything
    assert newest["secret"] not in everything
    until(lambda: len(hive.events("ev.*.rucher.sources.applied")) == 2, "the changes were not recorded")


def test_a_bad_sources_file_is_recorded_and_the_old_sources_go_on(hive: Hive) -> None:
    add(hive, Scheme.BEARER)
    assert post(hive, "bearer", bearer(PAYLOAD)).status_code == 202
    file = hive.root / "sources.toml"
    file.write_text(file.read_text() + '[[source]]\nname = "x"\nscheme = "y"\n')
    until(lambda: hive.events("ev.*.rucher.sources.refused"), "the refusal was not recorded")
    (refusal,) = hive.events("ev.*.rucher.sources.refused")
    assert re.search(r"sources\.toml:\d+:1: 'y' is no scheme", refusal["body"]["reason"])
    assert post(hive, "bearer", bearer(PAYLOAD)).status_code == 202


def test_a_daemon_does_not_start_on_a_bad_sources_file(tmp_path: Path) -> None:
    hive = Hive(tmp_path)
    (hive.root / "sources.toml").write_text("[[source]]\n")
    done = hive.rucher("up")
    assert done.returncode == 2
    assert re.fullmatch(r"rucher: \S+/sources\.toml:1:1: this source has no name; .+\n", done.stderr)
    assert not (hive.state / "rucher.db").exists()


def test_what_the_interface_does_not_have_is_one_line_too(hive: Hive) -> None:
    token = hive.instance.token.read_text().strip()
    headers = {"authorization": f"Bearer {token}"}
    for method, path, status in (("GET", "/api/v1/nothing", 404), ("DELETE", "/api/v1/health", 405), ("GET", "/", 404)):
        response = httpx2.request(method, f"http://127.0.0.1:{hive.port}{path}", headers=headers, trust_env=False)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"
        assert f"there is no {method} {path} here" in response.json()["detail"]


def test_a_connection_that_never_finishes_a_request_does_not_stay(hive: Hive) -> None:
    idle = [socket.create_connection(("127.0.0.1", hive.port), 60) for _ in range(20)]
    for connection in idle[10:]:
        connection.sendall(b"POST /ingress/x HTTP/1.1\r\nhost: x\r\n")
    used = http.client.HTTPConnection("127.0.0.1", hive.port, timeout=60)
    used.request("GET", "/ingress/x")
    assert used.getresponse().status == 404
    for connection in idle:
        assert connection.recv(1) == b""
        connection.close()
    used.close()
