"""What a run's events say about one step, for people: pure. Called by `control.trees` and by `rucher runs`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rucher.protocol.events import Event

SHORT = 120
"""Characters of a text that are shown on one line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `request` and `result` are None where no event tells them; times are microseconds.

    `state` is `done`, `failed` (a tool said so), `open` (intended, and no result yet) or `reopened` (by its owner).
    `tries` counts the intentions: more than one means that it was interrupted and done again.
    """

    key: str
    kind: str
    state: str
    request: Mapping[str, Any] | None = None
    result: Mapping[str, Any] | None = None
    effect: str = ""
    tries: int = 0
    began_at: int | None = None
    ended_at: int | None = None

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Step":
        """The step that these events, all of one step and in order, tell of."""
        intended = [event for event in events if event.type == "step.intended"]
        recorded = [event for event in events if event.type == "step.recorded"]
        facts: dict[str, Any] = {}
        for event in events:
            facts |= event.body
        result = recorded[-1].body["result"] if recorded else None
        return cls(
            key=str(facts["step"]),
            kind=str(facts.get("kind", "unknown")),
            state=_state(events[-1], result),
            request=facts.get("request"),
            result=result,
            effect=str(facts.get("effect", "")),
            tries=len(intended),
            began_at=intended[-1].occurred_at if intended else None,
            ended_at=recorded[-1].occurred_at if recorded else None,
        )

    @property
    def duration(self) -> int | None:
        """Microseconds from the last intention to the result, where both are known."""
        if self.began_at is None or self.ended_at is None:
            return None
        return self.ended_at - self.began_at

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens that the step used, as its model counted them; empty when it used none."""
        found = (self.result or {}).get("usage")
        return found if isinstance(found, dict) else {}


def steps_of(events: Iterable[Event]) -> list[Step]:
    """The steps of one run in the order in which they were first heard of."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        if event.type in ("step.intended", "step.recorded", "step.reopened"):
            grouped.setdefault(str(event.body["step"]), []).append(event)
    return [Step.of(group) for group in grouped.values()]


def told(step: Step) -> Iterator[str]:
    """The step in few words: what was asked, what came of it, and whether it was interrupted."""
    request, result = step.request or {}, step.result or {}
    if "tool" in request:
        yield f"{request['tool']} {short(request.get('arguments', {}))}"
    if "model" in result:
        yield str(result["model"])
    if usage := step.usage:
        yield f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)} tokens"
    yield from _outcome(step, result)
    if step.tries > 1:
        yield f"begun {step.tries} times"


def short(value: object) -> str:
    """Text, or anything else as JSON, on one line and cut."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= SHORT else text[: SHORT - 3] + "..."


def _outcome(step: Step, result: Mapping[str, Any]) -> Iterator[str]:
    if step.result is None:
        yield "no result yet" if step.state == "open" else "to be done again, by its owner's word"
    elif "ok" in result:
        yield f"{'ok' if result['ok'] else 'failed'}: {short(str(result.get('text', '')))}"
    elif calls := result.get("calls"):
        yield f"calls {', '.join(str(call['name']) for call in calls)}"
    elif "text" in result:
        yield f'says "{short(str(result["text"]))}"'


def _state(last: Event, result: Mapping[str, Any] | None) -> str:
    if last.type == "step.reopened":
        return "reopened"
    if result is None:
        return "open"
    return "failed" if result.get("ok") is False else "done"
