"""langgraph with its SqliteSaver: a graph of one node that is visited once a step, checkpoints written before it goes on."""

import sqlite3
import time
from dataclasses import asdict
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks.peers import on_sqlite
from benchmarks.peers.work import Acts, Recovered, Work, on_threads, report, steady

STEPS = "SELECT count(*) FROM checkpoints WHERE json_extract(metadata, '$.step') > 0"


class State(TypedDict):
    """What the graph keeps."""

    run: str
    step: int
    steps: int


def main() -> None:
    """Measure, or hold, or resume."""
    work = Work.read("sqlite")
    acts = Acts(work)
    connection = sqlite3.connect(work.file, check_same_thread=False)
    graph = _graph(acts, SqliteSaver(connection))
    connection.execute("PRAGMA synchronous = FULL")

    def run(name: str, state: State | None) -> None:
        config = {"configurable": {"thread_id": name}, "recursion_limit": work.steps + 5}
        graph.invoke(state, config, durability="sync")

    def begin(name: str) -> None:
        run(name, {"run": name, "step": 0, "steps": work.steps})

    if work.phase == "steady":
        workers = [lambda number: begin(str(number))] * work.concurrency
        report(steady(work, workers, lambda: on_sqlite.value(work.file, STEPS)))
    if work.phase == "hold":
        on_threads([lambda number: begin(f"r{number}")] * work.runs, range(work.runs))
    ready_at = time.monotonic()
    names = [row[0] for row in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")]
    on_threads([lambda number: run(names[number], None)] * len(names), range(len(names)))
    done_at = time.monotonic()
    acts.stop_again()
    on_threads([lambda number: begin(f"new{number}")] * work.runs, range(work.runs))
    report(asdict(Recovered(ready_at, acts.first_at, done_at, time.monotonic() - acts.met_at)))


def _graph(acts: Acts, saver: SqliteSaver) -> Any:
    def act(state: State) -> dict[str, int]:
        step = state["step"] + 1
        acts.act(state["run"], step)
        return {"step": step}

    graph = StateGraph(State)
    graph.add_node("act", act)
    graph.add_edge(START, "act")
    graph.add_conditional_edges("act", lambda state: "act" if state["step"] < state["steps"] else END)
    saver.setup()
    return graph.compile(checkpointer=saver)


if __name__ == "__main__":
    main()
