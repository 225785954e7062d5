"""What a session did before, read off the journal in the shape that the engine's context wants. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from rucher.protocol.events import Event


def exchange(request: str, answer: str, log: Iterable[Event]) -> Mapping[str, Any]:
    """One earlier request with its answer and, from its run's log, the tool calls in between with their results."""
    calls: dict[str, dict[str, Any]] = {}
    for event in log:
        if event.body.get("kind") != "tool_call":
            continue
        call = calls.setdefault(event.body["step"], {})
        call |= event.body.get("request", {})
        call |= event.body.get("result", {})
    made = [call for call in calls.values() if "tool" in call and "text" in call]
    return {"request": request, "answer": answer, "calls": made}
