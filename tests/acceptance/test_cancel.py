"""What an owner cancels ends with the tool that it is at, through the command line, on a real daemon and a real sandbox.

What goes on is seen from outside: a file that grows as long as anything in the sandbox lives.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.test_orders import begun, ordered, state_of
from tests.fakes.hive import Hive, resting, running, until

SCRIPT = r"""
[[rule]]
on = "user"
match = "^grow"
call = [{ tool = "shell", arguments = { command = '''
loop='while :; do echo x >> beat; sleep 0.05; done'
(setsid sh -c "$loop" &) & sh -c "$loop" & eval "$loop"
''' } }]

[[rule]]
on = "user"
match = "^prepare"
call = [{ tool = "write_file", arguments = { path = "bad.txt", content = "ENDLESS" } }]

[[rule]]
on = "user"
match = "^seek"
call = [{ tool = "search", arguments = { pattern = "((a|a)+)+b" } }]

[[rule]]
on = "user"
match = "^try"
call = [{ tool = "shell", arguments = { command = "echo fine" } }]

[[rule]]
on = "result"
answer = "done: {result}"

[[rule]]
answer = "echo: {text}"
""".replace("ENDLESS", "a" * 60)


def beats(hive: Hive) -> int:
    return sum(path.stat().st_size for path in hive.state.rglob("beat"))


def calls(hive: Hive) -> list[tuple[str, str]]:
    """Kind and state of what the sandbox was asked."""
    (file,) = hive.state.rglob("inbound.db")
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as inbound:
        return inbound.execute("SELECT kind, state FROM inbound WHERE kind <> 'message' ORDER BY seq").fetchall()


def demand_still(hive: Hive) -> None:
    before = beats(hive)
    time.sleep(0.5)
    assert before == beats(hive) > 0


def test_a_cancelled_run_has_ended_with_the_tool_that_it_was_at_and_all_that_this_started(tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as hive:
        run = begun(hive, "grow")
        until(lambda: beats(hive) > 10, "the tool did not begin")
        ordered(hive, "cancel", run)
        until(lambda: state_of(hive, run) == "cancelled", "it was not cancelled", 20)
        demand_still(hive)
        assert hive.told("send", "try", "--wait")["answer"] == "done: fine"


def test_a_search_without_end_that_is_cancelled_holds_up_nothing(tmp_path: Path) -> None:
    with running(tmp_path, SCRIPT) as hive:
        hive.told("send", "prepare", "--wait")
        run = begun(hive, "seek")
        until(lambda: len(calls(hive)) == 2, "the tool did not begin")
        ordered(hive, "cancel", run)
        until(lambda: state_of(hive, run) == "cancelled", "it was not cancelled", 20)
        assert calls(hive)[1] == ("tool_call", "failed")
        assert hive.told("send", "try", "--wait")["answer"] == "done: fine"


@pytest.mark.parametrize("end", [Hive.kill, Hive.stop], ids=["killed", "stopped"])
def test_a_daemon_that_ends_leaves_the_call_and_a_cancel_after_that_gives_it_up(
    tmp_path: Path, end: Callable[[Hive], None]
) -> None:
    with resting(tmp_path, SCRIPT) as hive:
        hive.start()
        run = begun(hive, "grow")
        until(lambda: beats(hive) > 10, "the tool did not begin")
        end(hive)
        assert calls(hive) == [("tool_call", "pending")]
        hive.start()
        until(lambda: state_of(hive, run) == "waiting", "the owner was not asked")
        assert calls(hive) == [("tool_call", "pending")]
        ordered(hive, "cancel", run)
        until(lambda: state_of(hive, run) == "cancelled", "it was not cancelled", 20)
        assert calls(hive) == [("tool_call", "failed"), ("cancel", "pending")]
        demand_still(hive)
        assert hive.told("send", "try", "--wait")["answer"] == "done: fine"
        hive.stop()
