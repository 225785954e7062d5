"""What an owner orders while runs go on, and while workers die: it is obeyed before the next tool, and it acts once."""

from pathlib import Path

import pytest

from tests.chaos.crew import PATIENCE_S, Crew, NewStore, crew, new_postgres, new_sqlite
from tests.chaos.worker_program import run_called
from tests.fakes.hive import until

STORES = [pytest.param(new_sqlite, id="sqlite"), pytest.param(new_postgres, id="postgres")]


def begun(workers: Crew) -> None:
    until(lambda: workers.outside.lines("begun"), "the first tool did not begin", PATIENCE_S)


@pytest.mark.parametrize("new_store", STORES)
def test_a_cancelled_run_stops_before_its_next_tool(tmp_path: Path, new_store: NewStore) -> None:
    with crew(tmp_path, new_store(tmp_path), {"one": "held"}) as workers:
        process = workers.start()
        begun(workers)
        workers.order("cancel", "one")
        workers.finish(process)
        assert workers.state("one") == "cancelled"
        assert not workers.outside.counts(), "the tool was interrupted, and no other begun"


@pytest.mark.parametrize("new_store", STORES)
def test_a_paused_run_stops_before_its_next_tool_and_goes_on_when_resumed_though_all_died_meanwhile(
    tmp_path: Path, new_store: NewStore
) -> None:
    with crew(tmp_path, new_store(tmp_path), {"one": "held"}) as workers:
        process = workers.start()
        begun(workers)
        workers.order("pause", "one")
        workers.outside.open("release")
        until(lambda: workers.state("one") == "queued", "it is not parked", PATIENCE_S)
        workers.kill(process)
        process = workers.start("b")
        workers.up("b")
        assert workers.outside.counts() == {(run_called("one"), "first"): 1}, "the next tool was not begun"
        workers.outside.note("orders", "resume", "one")
        workers.finish(process)
        workers.demand_whole()


def test_two_answers_at_the_same_moment_act_once(tmp_path: Path) -> None:
    with crew(tmp_path, new_postgres(tmp_path), {"one": "asking"}) as workers:
        process = workers.start("w", owner=False)
        owners = [
            workers.start(name, works=False, approves=name == "yes", gates=("before signal.sent",))
            for name in ("yes", "no")
        ]
        for name in ("yes", "no"):
            workers.at("before signal.sent", name)
        workers.outside.open("open")
        workers.finish(process, *owners)
        ((_, accepted),) = workers.outside.lines("answered")
        assert [words[1] for words in workers.outside.lines("refused")] == ["no" if accepted == "yes" else "yes"]
        assert "decided already" in " ".join(workers.outside.lines("refused")[0])
        (end,) = [event.body for event in workers.log("one") if event.type == "run.finished"]
        assert end["result"] == {"said": [accepted, "act"]}
        assert workers.outside.counts() == {(run_called("one"), "act"): 1}
