"""What a session did before, read off the journal in the shape that the engine's context wants. Pure.

Of a request or result that lies in a file, what the journal holds beside its name is shown.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rucher.kernel.contents import ARTIFACT
from rucher.protocol.events import Event

NO_ANSWER = "(I gave no answer.)"


def exchange(request: str, answer: str, log: Iterable[Event]) -> Mapping[str, Any]:
    """One earlier request with its answer and, from its run's log, the tool calls in between with their results."""
    calls: dict[str, dict[str, Any]] = {}
    for event in log:
        if event.body.get("kind") != "tool_call":
            continue
        call = calls.setdefault(event.body["step"], {})
        call |= _shown(event.body.get("request", {}), "tool", "arguments")
        call |= _shown(_brought(event.body.get("result", {})), "ok", "text")
    made = [call for call in calls.values() if call.keys() == {"tool", "arguments", "ok", "text"}]
    return {"request": request, "answer": answer or NO_ANSWER, "calls": made}


def _brought(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of a call; of one that waited, what it waited for."""
    match result:
        case {"outcomes": [Mapping() as outcome]}:
            return {"ok": False, "text": "no reply came in time"} if outcome.get("expired") else outcome
        case _:
            return result


def _shown(content: Mapping[str, Any], *names: str) -> dict[str, Any]:
    told = {**content, "text": content["preview"]} if ARTIFACT in content else content
    return {name: told[name] for name in names if name in told}
