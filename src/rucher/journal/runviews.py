"""What the events of runs change in the views: who may go on, what is waited for, what was spent. Pure.

Called by `views.changes`. A run's steps themselves change no view: what a step costs, stores or waits for is said by a record
of its own beside it, so that the common step is one row and nothing else.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rucher.protocol.events import Event

Change = tuple[str, Mapping[str, Any]]
"""The name of a statement in views.sql and its parameters."""

MEASURES = ("nanodollars", "tokens", "turns", "tool_calls", "wall_us")
"""What budgets are kept in: 1e-9 dollars, tokens in and out, model calls, tool calls, and microseconds of work."""


def child_topic(run_id: str) -> str:
    """The topic that is signalled when this run has finished."""
    return f"run:{run_id}"


def _created(event: Event) -> Iterator[Change]:
    body = event.body
    yield "run.created", {
        "run_id": body["run"], "seq": event.seq, "tenant": event.tenant, "agent": body["agent"],
        "queue": f"{event.tenant}/{body['agent']}", "lane": body.get("lane", body["session"]),
        "session_id": body["session"], "hop_id": body["hop"], "event_id": body.get("event", ""),
        "trace_id": event.trace_id, "parent_id": body.get("parent", ""), "mission": body.get("mission", ""),
        "accounts": json.dumps(body.get("accounts", [])), "priority": body.get("priority", 0), "model": body["model"],
        "engine_version": body["engine_version"], "prompt_hash": body.get("prompt_hash", ""),
        "tools_hash": body.get("tools_hash", ""), "at": event.recorded_at,
    }  # fmt: skip
    for account, ceilings in body.get("budget", {}).items():
        for measure in MEASURES:
            yield "budget.opened", {"account": account, "measure": measure, "ceiling": ceilings.get(measure)}


def _acquired(event: Event) -> Iterator[Change]:
    yield "run.acquired", {"run_id": event.body["run"], "worker": event.body["worker"], "at": event.recorded_at}


def _waiting(event: Event) -> Iterator[Change]:
    body, run, at = event.body, event.body["run"], event.recorded_at
    yield "run.let_go", {"run_id": run, "state": "waiting", "reason": body["reason"], "at": at}
    yield "wait.over", {"run_id": run}
    for number, item in enumerate(body.get("items", ())):
        yield "wait.opened", {
            "run_id": run, "step": body["step"], "item": number, "kind": item["kind"], "mode": body["mode"],
            "topic": item["topic"], "due_at": item.get("due_at"), "seq": event.seq,
        }  # fmt: skip
    yield "wait.catch_up", {"run_id": run}
    yield "run.wake", {"run_id": run, "at": at}
    yield "run.promote_of", {"run_id": run}


def _parked(event: Event) -> Iterator[Change]:
    body = event.body
    yield "run.let_go", {"run_id": body["run"], "state": "queued", "reason": body["reason"], "at": event.recorded_at}
    yield "run.promote_of", {"run_id": body["run"]}


def _wait_over(event: Event) -> Iterator[Change]:
    yield "wait.over", {"run_id": event.body["run"]}


def _finished(event: Event) -> Iterator[Change]:
    body, run, at = event.body, event.body["run"], event.recorded_at
    yield "run.ended", {"run_id": run, "state": body["state"], "reason": body.get("reason", ""), "at": at}
    if body.get("waited", True):
        yield "wait.over", {"run_id": run}
    if body.get("hop"):
        yield "hop.state", {"hop_id": body["hop"], "state": "done", "detail": "", "at": at}
    if body.get("parent"):
        outcome = {"state": body["state"], "reason": body.get("reason", ""), "result": body.get("result")}
        yield from signal(child_topic(run), outcome, event)
    if body.get("spawned"):
        yield "run.cancelling", {"run_id": run, "at": at}
    yield "run.promote_of", {"run_id": run}


def _signalled(event: Event) -> Iterator[Change]:
    body = event.body
    if "unheard" in body:
        yield "note.unless_awaited", {
            "session_id": body["unheard"]["session"], "event_id": body["unheard"]["event"], "seq": event.seq,
            "topic": body["topic"],
        }  # fmt: skip
    yield from signal(body["topic"], body["outcome"], event)


def signal(topic: str, outcome: Mapping[str, Any], event: Event) -> Iterator[Change]:
    """Whoever waits under this topic, now or later, has this outcome, if it is the first."""
    told = json.dumps(outcome, ensure_ascii=False)
    yield "signal.sent", {"topic": topic, "seq": event.seq, "outcome": told}
    yield "wait.signalled", {"topic": topic, "outcome": told}
    yield "run.wake_all", {"topic": topic, "at": event.recorded_at}
    yield "run.promote_woken", {"topic": topic}


def given_up(event: Event) -> Iterator[Change]:
    """A run that waits for what comes of an event learns that nothing will, and why."""
    body = event.body
    if "reply_topic" in body:
        yield from signal(body["reply_topic"], {"ok": False, "text": body["reason"]}, event)


def _timer_fired(event: Event) -> Iterator[Change]:
    body, run = event.body, event.body["run"]
    yield "wait.fired", {
        "run_id": run, "step": body["step"], "item": body["item"],
        "outcome": json.dumps(body["outcome"], ensure_ascii=False),
    }  # fmt: skip
    yield "run.wake", {"run_id": run, "at": event.recorded_at}
    yield "run.promote_of", {"run_id": run}


def _paused(event: Event) -> Iterator[Change]:
    yield "run.paused", {"run_id": event.body["run"], "at": event.recorded_at}
    yield "run.promote_of", {"run_id": event.body["run"]}


def _resumed(event: Event) -> Iterator[Change]:
    yield "run.resumed", {"run_id": event.body["run"], "at": event.recorded_at}
    yield "run.promote_of", {"run_id": event.body["run"]}


def _cancelling(event: Event) -> Iterator[Change]:
    yield "run.cancelling", {"run_id": event.body["run"], "at": event.recorded_at}


def _steered(event: Event) -> Iterator[Change]:
    body = event.body
    yield "steer.told", {
        "seq": event.seq, "run_id": body["run"], "principal": event.principal, "text": body["text"],
    }  # fmt: skip


def _migrated(event: Event) -> Iterator[Change]:
    body = event.body
    yield "run.migrated", {
        "run_id": body["run"], "engine_version": body["engine_version"], "prompt_hash": body["prompt_hash"],
        "tools_hash": body["tools_hash"], "at": event.recorded_at,
    }  # fmt: skip


def _spent(event: Event) -> Iterator[Change]:
    """What a step used: added to its run, and moved from reserved to spent on every account up the tree."""
    body = event.body
    used, released = body["used"], body.get("released", {})
    yield "run.spent", {
        "run_id": body["run"], "input_tokens": used.get("input_tokens", 0), "output_tokens": used.get("output_tokens", 0),
        "nanodollars": used.get("nanodollars", 0), "unpriced": used.get("unpriced", 0), "at": event.recorded_at,
    }  # fmt: skip
    for account in body.get("accounts", ()):
        for measure in MEASURES:
            amount, freed = used.get(measure, 0), released.get(measure, 0)
            if amount or freed:
                yield "budget.settle", {"account": account, "measure": measure, "amount": amount, "released": freed}


def _reserved(event: Event) -> Iterator[Change]:
    body = event.body
    for account in body["accounts"]:
        for measure, amount in body["amounts"].items():
            yield "budget.reserve", {"account": account, "measure": measure, "amount": amount}


def _artifact(event: Event) -> Iterator[Change]:
    body = event.body
    yield "artifact.stored", {"digest": body["digest"], "bytes": body["bytes"], "run_id": body["run"]}


RUN_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "run.created": _created,
    "run.acquired": _acquired,
    "run.waiting": _waiting,
    "run.parked": _parked,
    "run.finished": _finished,
    "run.paused": _paused,
    "run.resumed": _resumed,
    "run.cancelling": _cancelling,
    "run.steered": _steered,
    "run.migrated": _migrated,
    "run.spent": _spent,
    "wait.over": _wait_over,
    "signal.sent": _signalled,
    "timer.fired": _timer_fired,
    "budget.reserved": _reserved,
    "artifact.stored": _artifact,
}
"""By the type of a control-plane event."""
