"""What a run's events say about one step, for people: pure. Called by `control.trees` and by `rucher runs`."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rucher.kernel.contents import ARTIFACT
from rucher.protocol.events import Event

SHORT = 120
"""Characters of a text that are shown on one line."""
_BY_TIME = {"expired": "expired", "fired": "its time had come", "agreed": "may go on with this version"}
_OF_STEPS = ("step.intended", "step.recorded", "step.reopened")


@dataclass(frozen=True, slots=True)
class Step:
    """One step. `request` and `result` are None where no event tells them; times are microseconds.

    `state` is `done`, `failed` (a tool said so), `open` (intended, and no result yet) or `reopened` (by its owner).
    `tries` counts the intentions: more than one means that it was interrupted and done again. `taken_from` is the run that
    a fork has it from.
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
    taken_from: str = ""

    @classmethod
    def of(cls, events: Sequence[Event]) -> "Step":
        """The step that these events, all of one step and in order, tell of; what it cost is told by others than its own."""
        own = [event for event in events if event.type in _OF_STEPS]
        intended = [event for event in own if event.type == "step.intended"]
        recorded = [event for event in own if event.type == "step.recorded"]
        facts: dict[str, Any] = {}
        for event in own:
            facts |= event.body
        result = recorded[-1].body["result"] if recorded else None
        return cls(
            key=str(events[0].body["step"]),
            kind=str(facts.get("kind", "unknown")),
            state=_state(own[-1].type if own else "", result),
            request=facts.get("request"),
            result=result,
            effect=str(facts.get("effect", "")),
            tries=len(intended),
            began_at=intended[-1].occurred_at if intended else None,
            ended_at=recorded[-1].occurred_at if recorded else None,
            taken_from=str(facts.get("from", "")),
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

    @property
    def depth(self) -> int:
        """How many branches it is inside of: `3` in none, `4.2.1` in one."""
        return self.key.count(".") // 2


def steps_of(events: Iterable[Event]) -> list[Step]:
    """The steps of one run by their keys, a branch's together."""
    grouped: dict[str, list[Event]] = {}
    for event in events:
        if event.type in _OF_STEPS:
            grouped.setdefault(str(event.body["step"]), []).append(event)
    return [Step.of(grouped[key]) for key in sorted(grouped, key=_place)]


def told(step: Step) -> Iterator[str]:
    """The step in few words: what was asked, what came of it, and whether it was interrupted."""
    request, result = step.request or {}, step.result or {}
    yield from _asked(request)
    if "model" in result:
        yield str(result["model"])
    if usage := step.usage:
        yield f"{usage.get('input_tokens', 0)}+{usage.get('output_tokens', 0)} tokens"
    yield from _outcome(step, result)
    if step.tries > 1:
        yield f"begun {step.tries} times"
    if step.taken_from:
        yield f"taken from run {step.taken_from}"


def short(value: object) -> str:
    """Text, or anything else as JSON, on one line and cut; of what lies in a file, how it begins."""
    if isinstance(value, Mapping) and ARTIFACT in value:
        return f"{_cut(str(value.get('preview', '')), SHORT // 2)} ({value.get('bytes', 0):,} bytes)"
    return _cut(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), SHORT)


def called(request: Mapping[str, Any]) -> str:
    """A tool and its arguments, cut; of another request what it says."""
    return f"{request['tool']} {short(request.get('arguments', {}))}" if "tool" in request else short(request)


def told_outcome(outcome: Mapping[str, Any]) -> str:
    """What a wait brought: a decision, an answer, a verdict, the end of a run, or that its time had come."""
    match outcome:
        case {"approved": decision}:
            said, why = "approved" if decision else "refused", outcome.get("reason")
        case {"verdict": verdict}:
            said, why = f"its owner says: {verdict}", ""
        case {"state": state}:
            said, why = f"ended {state}", outcome.get("reason")
        case {"text": str(text)}:
            said, why = f'"{short(text)}"', ""
        case _:
            known = next((words for name, words in _BY_TIME.items() if outcome.get(name)), "")
            said, why = known or short(dict(outcome)), ""
    return f"{said}: {short(why)}" if why else said


def _asked(request: Mapping[str, Any]) -> Iterator[str]:
    match request:
        case _ if "tool" in request or ARTIFACT in request:
            yield called(request)
        case {"read": "steers"}:
            yield "reads what its owner said"
        case {"read": what}:
            yield f"reads its {what}"
        case {"runs": [*runs]}:
            yield f"joins {', '.join(map(str, runs))}"
        case _:
            pass


def _outcome(step: Step, result: Mapping[str, Any]) -> Iterator[str]:
    if step.result is None:
        yield "to be done again, by its owner's word" if step.state == "reopened" else "no result yet"
        return
    match result:
        case _ if ARTIFACT in result:
            yield f"{'failed: ' if result.get('ok') is False else ''}{short(result)}"
        case {"ok": ok}:
            yield f"{'ok' if ok else 'failed'}: {short(str(result.get('text', '')))}"
        case {"calls": [_, *_] as calls}:
            yield f"calls {', '.join(str(call['name']) for call in calls)}"
        case {"texts": [*texts]}:
            yield from (f'"{short(str(text))}"' for text in texts)
        case {"outcomes": [*outcomes]}:
            yield from (told_outcome(outcome) for outcome in outcomes if outcome)
        case {"run": run} if step.kind == "spawn":
            yield f"begins run {run}"
        case {"text": text}:
            yield f'says "{short(str(text))}"'
        case _:
            pass


def _state(last: str, result: Mapping[str, Any] | None) -> str:
    if last == "step.reopened":
        return "reopened"
    if result is None:
        return "open"
    return "failed" if result.get("ok") is False else "done"


def _place(key: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in key.split("."))


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3] + "..."
