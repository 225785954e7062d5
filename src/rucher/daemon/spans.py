"""Spans from events: what OpenTelemetry is told of a trace. Pure; the same events always give the same spans.

Called by `rucher.daemon.telemetry`. A span's id derives from the id of the event, hop or run that it stands for, so that a
span that is sent twice is one span, and instances that share a trace name each other's. Nothing that anybody wrote is in a
span unless `content` says so: names, states and counts only.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from rucher.daemon import genai
from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.protocol.ports import StepKind

Value = str | int | bool | Sequence[str]
ENDS_OF_DELIVERY = frozenset({"delivery.delivered", "delivery.deferred", "delivery.failed", "delivery.uncertain"})
_NOWHERE = frozenset({"route.dropped", "route.held", "rule.faulted"})
_FAILED_RUNS = frozenset({"failed", "blocked", "cancelled", "budget_exhausted"})
_HAPPENED = frozenset({"delivery.delivered"})


@dataclass(frozen=True, slots=True)
class Span:
    """One span. Times are microseconds since the epoch; `kind` is that of OTLP; `error` is empty where nothing failed."""

    trace: str
    id: int
    parent: int | None
    name: str
    kind: str
    start: int
    end: int
    attributes: Mapping[str, Value]
    error: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Telling:
    """How spans are told: with what people and models wrote or without, and who provides the models."""

    content: bool = False
    provider: str = ""


@dataclass(slots=True)
class RunSoFar:
    """What was seen of a run that is needed for spans that end later."""

    created: Event | None = None
    begun: dict[str, Event] = field(default_factory=dict)
    calls: Sequence[Mapping[str, Any]] = ()
    last_at: int = 0
    """The newest moment in its log, and the one before that: when a step began that recorded no intention."""
    earlier_at: int = 0

    def learn(self, event: Event) -> None:
        """Take the run's next event in."""
        if event.occurred_at > self.last_at:
            self.earlier_at, self.last_at = self.last_at, event.occurred_at
        body = event.body
        match event.type:
            case "run.created":
                self.created = event
            case "step.intended":
                self.begun[str(body["step"])] = event
            case "step.recorded":
                self.begun.pop(str(body["step"]), None)
                if body["kind"] == StepKind.MODEL_CALL:
                    self.calls = body["result"].get("calls") or ()
            case _:
                pass

    def fact(self, name: str) -> str:
        """What its creation says, empty where that is not known."""
        return "" if self.created is None else str(self.created.body.get(name) or "")


def span_id(name: str) -> int:
    """The 64 bits, never 0, that stand for an event, a hop or a run."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") or 1


def of_message(event: Event, telling: Telling) -> Span:
    """What came from outside, or what an agent emitted beneath its run."""
    ours = event.source == "agent"
    at = event.occurred_at if ours else event.recorded_at
    parent = event.body.get("run") if ours else None
    attributes = _about(event) | {
        "rucher.source": event.source,
        "rucher.trust": event.trust.word,
        "rucher.principal.kind": event.principal.partition(":")[0],
        **_given(_SAID, _text(event), telling),
    }
    name = f"{'emit' if ours else 'receive'} {event.source if not ours else event.type}"
    return Span(
        event.trace_id, span_id(event.id), _parent(parent or event.parent_id), name, "PRODUCER" if ours else "CONSUMER",
        at, at, attributes,
    )  # fmt: skip


def of_hop(event: Event, about: Event | None) -> Span:
    """The decision that an event goes somewhere, from its arrival on."""
    body = event.body
    start = min(about.recorded_at, event.occurred_at) if about else event.occurred_at
    attributes = _about(event) | {
        "rucher.rule": str(body["rule"]),
        "rucher.rules": str(body.get("rules", "")),
        "rucher.destination": str(body["to"]),
        "rucher.mode": str(body.get("mode", "wake")),
    }
    return Span(
        event.trace_id, span_id(event.id), span_id(str(body["event"])), f"route {body['to']}", "INTERNAL", start,
        event.occurred_at, attributes,
    )  # fmt: skip


def of_failure(event: Event, telling: Telling) -> Span:
    """An event that went nowhere, a rule that failed, or a hop that did not arrive."""
    body = event.body
    rule = {"rucher.rule": str(body["rule"])} if body.get("rule") else {}
    parent = body.get("hop") or body.get("event") or event.parent_id
    failed = event.type in {"rule.faulted", "hop.failed"}
    return Span(
        event.trace_id, span_id(event.id), _parent(parent), event.type, "INTERNAL", event.occurred_at, event.occurred_at,
        _about(event) | rule, *_error(event.type if failed else "", body.get("reason"), telling),
    )  # fmt: skip


def of_delivery(event: Event, began: Event | None, telling: Telling) -> Span:
    """One attempt to deliver one part."""
    body = event.body
    begun = began.body if began else {}
    numbers = {
        f"rucher.{name}": begun[name] for name in ("attempt", "part", "parts") if isinstance(begun.get(name), int)
    }
    where = str(begun.get("surface") or "a destination")
    state = event.type.partition(".")[2]
    return Span(
        event.trace_id, span_id(event.id), span_id(str(body["hop"])), f"deliver {where}", "CLIENT",
        _start(began, event), event.occurred_at, _about(event) | numbers | {"rucher.delivery": state},
        *_error("" if event.type in _HAPPENED else state, body.get("reason"), telling),
    )  # fmt: skip


def of_run(event: Event, run: RunSoFar, asked: Event | None, telling: Telling) -> Span:
    """A whole run, told when it ended. `asked` is the event that it worked on."""
    body, state = event.body, str(event.body["state"])
    head = run.created or event
    parent = run.fact("hop") or run.fact("parent") or head.parent_id
    attributes = _about(event) | _of_run(run, telling) | {
        genai.OPERATION: genai.INVOKE_AGENT, "rucher.run": str(body["run"]), "rucher.state": state,
    }  # fmt: skip
    if telling.content and asked and _text(asked):
        attributes[genai.INPUT] = genai.said("user", _text(asked))
    return Span(
        event.trace_id, span_id(str(body["run"])), _parent(parent), _named(genai.INVOKE_AGENT, run.fact("agent")),
        "INTERNAL", _start(run.created, event), event.occurred_at, attributes,
        *_error(state if state in _FAILED_RUNS else "", body.get("reason"), telling),
    )  # fmt: skip


def of_step(event: Event, run: RunSoFar, telling: Telling) -> Span | None:
    """A model call or a tool call; None for other steps. `run` is as it was before this event."""
    body = event.body
    intended = run.begun.get(str(body["step"]))
    if body["kind"] == StepKind.MODEL_CALL:
        name, kind, more = _chat(body["result"], run, telling)
    elif body["kind"] == StepKind.TOOL_CALL:
        name, kind, more = _tool(intended.body if intended else body, body["result"], run, telling)
    else:
        return None
    start = _start(intended, event) if intended else _unintended(run, event)
    attributes = _about(event) | _of_run(run, telling) | more | {
        "rucher.run": str(body["run"]), "rucher.step": str(body["step"]),
    }  # fmt: skip
    failed = "tool_failed" if body["result"].get("ok") is False else ""
    return Span(
        event.trace_id, span_id(event.id), span_id(str(body["run"])), name, kind, start, event.occurred_at, attributes,
        *_error(failed, None, telling),
    )  # fmt: skip


def is_failure(event: Event) -> bool:
    """Whether `of_failure` tells of it."""
    return event.source == CONTROL_PLANE and (event.type in _NOWHERE or event.type == "hop.failed")


_SAID = "rucher.text"


def _chat(result: Mapping[str, Any], run: RunSoFar, telling: Telling) -> tuple[str, str, dict[str, Value]]:
    model = str(result.get("model") or run.fact("model"))
    usage = result.get("usage")
    counted = usage if isinstance(usage, Mapping) else {}
    told: dict[str, Value] = {genai.OPERATION: genai.CHAT, genai.MODEL: model}
    for name, count in ((genai.INPUT_TOKENS, "input_tokens"), (genai.OUTPUT_TOKENS, "output_tokens")):
        if isinstance(counted.get(count), int):
            told[name] = counted[count]
    if result.get("stop"):
        told[genai.FINISH_REASONS] = (str(result["stop"]),)
    if telling.content:
        told[genai.OUTPUT] = genai.said("assistant", str(result.get("text") or ""), result.get("calls") or ())
    return _named(genai.CHAT, model), "CLIENT", told


def _tool(
    asked: Mapping[str, Any], result: Mapping[str, Any], run: RunSoFar, telling: Telling
) -> tuple[str, str, dict[str, Value]]:
    request = asked.get("request")
    request = request if isinstance(request, Mapping) else {}
    tool = str(request.get("tool") or "")
    told: dict[str, Value] = {
        genai.OPERATION: genai.EXECUTE_TOOL,
        genai.TOOL: tool or "unknown",
        genai.TOOL_TYPE: "function",
    }
    # Of equal calls of one answer, the first one's id is told: the journal does not say which is which.
    for call in run.calls:
        if call.get("name") == tool and call.get("arguments") == request.get("arguments") and call.get("id"):
            told[genai.CALL_ID] = str(call["id"])
            break
    if telling.content:
        told[genai.CALL_ARGUMENTS] = genai.cut(json.dumps(request.get("arguments", {}), ensure_ascii=False))
        told[genai.CALL_RESULT] = genai.cut(str(result.get("text") or result.get("preview") or ""))
    return _named(genai.EXECUTE_TOOL, tool), "INTERNAL", told


def _of_run(run: RunSoFar, telling: Telling) -> dict[str, Value]:
    told: dict[str, Value] = {genai.PROVIDER: telling.provider} if telling.provider else {}
    for name, fact in ((genai.AGENT, "agent"), (genai.CONVERSATION, "session"), (genai.MODEL, "model")):
        if run.fact(fact):
            told[name] = run.fact(fact)
    return told


def _about(event: Event) -> dict[str, Value]:
    return {"rucher.event": event.id, "rucher.seq": event.seq, "rucher.type": event.type}


def _given(name: str, text: str, telling: Telling) -> dict[str, Value]:
    return {name: genai.cut(text)} if telling.content and text else {}


def _text(event: Event) -> str:
    text = event.body.get("text")
    return text if isinstance(text, str) else ""


def _error(kind: str, reason: object, telling: Telling) -> tuple[str, str]:
    """What failed, and why where that may be told: reasons quote what people and models wrote."""
    return kind, genai.cut(str(reason)) if kind and reason and telling.content else ""


def _named(operation: str, what: str) -> str:
    return f"{operation} {what}" if what else operation


def _parent(name: str | None) -> int | None:
    return span_id(name) if name else None


def _start(began: Event | None, ended: Event) -> int:
    return min(began.occurred_at, ended.occurred_at) if began else ended.occurred_at


def _unintended(run: RunSoFar, event: Event) -> int:
    """A read records no intention: it began when the run wrote the last time before."""
    at = event.occurred_at
    before = run.last_at if run.last_at < at else run.earlier_at
    return before or at
