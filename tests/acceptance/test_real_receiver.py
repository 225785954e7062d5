"""A real receiver, Arize Phoenix, takes the spans of a real instance and understands them. Started by `make test-otel`."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rucher.protocol.ids import decode
from tests.acceptance.test_telemetry import A_TURN, asked, traced
from tests.fakes.hive import free_port, resting, until

pytestmark = [pytest.mark.otel, pytest.mark.timeout(300)]

PHOENIX = Path(__file__).parents[2] / ".venv-otel" / "bin" / "phoenix"
PATIENCE_S = 180.0


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """The address of a Phoenix that keeps what it takes in `folder`."""
    folder.mkdir()
    port = free_port()
    told = {
        "PHOENIX_WORKING_DIR": str(folder), "PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(free_port()), "PHOENIX_TELEMETRY_ENABLED": "false",
    }  # fmt: skip
    environment = {"PATH": os.defpath, "HOME": str(folder), **told}
    with (folder / "phoenix.log").open("wb") as output:
        child = subprocess.Popen([str(PHOENIX), "serve"], env=environment, stdout=output, stderr=output)
    try:
        until(lambda: _answers(child, port, folder / "phoenix.log"), "Phoenix did not start", PATIENCE_S)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        child.wait(30)


def _answers(child: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    assert child.poll() is None, log.read_text()
    try:
        return httpx2.get(f"http://127.0.0.1:{port}/healthz", trust_env=False).status_code == httpx2.codes.OK
    except httpx2.HTTPError:
        time.sleep(0.2)
        return False


def kept(endpoint: str, trace: str) -> list[dict[str, Any]]:
    """What Phoenix kept of a trace."""
    url = f"{endpoint}/v1/projects/default/spans"
    answer = httpx2.get(url, params={"limit": "1000"}, trust_env=False)
    spans = answer.json()["data"] if answer.status_code == httpx2.codes.OK else []
    return [span for span in spans if span["context"]["trace_id"] == f"{decode(trace):032x}"]


def test_a_real_receiver_shows_the_trace_as_it_was_and_knows_agents_and_models(tmp_path: Path) -> None:
    with phoenix(tmp_path / "phoenix") as endpoint, resting(tmp_path) as hive:
        traced(hive, endpoint)
        hive.start()
        trace = asked(hive, "one")
        until(lambda: sorted(span["name"] for span in kept(endpoint, trace)) == A_TURN, "the turn was not taken")
        hive.kill()
        hive.start()
        asked(hive, "two")
        spans = {span["name"]: span for span in kept(endpoint, trace)}
        assert len(kept(endpoint, trace)) == len(A_TURN)
        names = {span["context"]["span_id"]: name for name, span in spans.items()}
        assert {name: names.get(span["parent_id"]) for name, span in spans.items()} == {
            "receive cli": None,
            "route agent:scribe": "receive cli",
            "invoke_agent scribe": "route agent:scribe",
            "chat scripted:script": "invoke_agent scribe",
            "emit answer": "invoke_agent scribe",
            "route surface:cli": "emit answer",
            "deliver cli": "route surface:cli",
        }
        assert (spans["invoke_agent scribe"]["span_kind"], spans["chat scripted:script"]["span_kind"]) == (
            "AGENT",
            "LLM",
        )
