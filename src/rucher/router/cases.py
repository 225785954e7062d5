"""Tests of a rules file, written by its owner: events, and where they must go. Pure.

Read from TOML and tried by `rucher rules test`; a change of the rules that breaks one is seen before it is made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rucher.protocol.errors import BadInput
from rucher.protocol.events import DEFAULT_GROUP, Event, Trust
from rucher.protocol.tomltext import FileName, load
from rucher.router.decide import Decision, Dropped, Held, decide
from rucher.router.explain import shown
from rucher.router.registry import Engagement, Registry
from rucher.router.rules import Rules

HELD, DROPPED = "held", "dropped"

_TRUST = {"owner": Trust.OWNER, "agent": Trust.AGENT, "partner": Trust.PARTNER, "system": Trust.OWNER}
"""The trust of a principal of this kind where a case names none; of any other it is public."""


class _Said(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SaidEvent(_Said):
    """The event of a case; what is left out is that of a plain message of the owner."""

    source: str = "cli"
    type: str = "message"
    principal: str = "owner:owner"
    trust: str = ""
    addressed_to: str | None = None
    text: str = ""
    group: str = DEFAULT_GROUP
    thread: str = ""
    body: dict[str, Any] = Field(default_factory=dict)


class SaidEngagement(_Said):
    """An agent that an earlier mention engaged."""

    agent: str
    room: str
    thread: str = ""


class SaidCase(_Said):
    """One `[[case]]`. `expect` lists destinations, each perhaps with ` as context`, or is `held` or `dropped`."""

    name: str
    event: SaidEvent
    expect: list[str] | str
    known: list[str] = Field(default_factory=list)
    roles: dict[str, str | dict[str, str]] = Field(default_factory=dict)
    blocked: list[str] = Field(default_factory=list)
    policy: str = Field("public", pattern="^(strict|ask|public)$")
    engaged: list[SaidEngagement] = Field(default_factory=list)


class SaidCases(_Said):
    """The whole file."""

    case: list[SaidCase] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Case:
    """One test: with what the instance knows, where an event must go."""

    name: str
    event: Event
    registry: Registry
    expected: Sequence[str]


@dataclass(frozen=True, slots=True)
class Result:
    """What was expected of a case and what was decided; both are sorted."""

    case: Case
    expected: Sequence[str]
    found: Sequence[str]
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether they are the same."""
        return self.expected == self.found


def read_cases(text: str, path: FileName, tenant: str) -> Sequence[Case]:
    """The cases that a text says; raises BadInput naming the case and the field."""
    document = load(text, path)
    try:
        said = SaidCases.model_validate(document)
    except ValidationError as error:
        raise BadInput(f"{path}: {_fault(document, error)}") from error
    return [_case(one, path, tenant) for one in said.case]


def try_cases(cases: Sequence[Case], rules: Rules) -> Sequence[Result]:
    """Each case decided by these rules."""
    results: list[Result] = []
    for case in cases:
        decision = decide(case.event, rules, case.registry)
        results.append(Result(case, sorted(case.expected), sorted(summary(decision)), decision))
    return results


def summary(decision: Decision) -> Sequence[str]:
    """A decision in the words of `expect`."""
    match decision.end:
        case Held():
            return [HELD]
        case Dropped() if not decision.routes:
            return [DROPPED]
        case _:
            return [shown(route) for route in decision.routes]


def _case(said: SaidCase, path: FileName, tenant: str) -> Case:
    expected = [said.expect] if isinstance(said.expect, str) else said.expect or [DROPPED]
    return Case(said.name, _event(said, path, tenant), _registry(said), expected)


def _event(said: SaidCase, path: FileName, tenant: str) -> Event:
    event = said.event
    trust = _TRUST.get(event.principal.partition(":")[0], Trust.PUBLIC)
    if event.trust:
        words = {one.word: one for one in Trust}
        if event.trust not in words:
            raise BadInput(f"{path}: case {said.name!r}: event.trust: {event.trust!r} is none of {', '.join(words)}")
        trust = words[event.trust]
    body = {"text": event.text, "group": event.group, "thread": event.thread, **event.body}
    return Event(
        id=said.name, tenant=tenant, source=event.source, type=event.type, principal=event.principal, trust=trust,
        trace_id=said.name, occurred_at=0, addressed_to=event.addressed_to, body=body, seq=0, recorded_at=0,
    )  # fmt: skip


def _registry(said: SaidCase) -> Registry:
    roles: dict[str, dict[str, str]] = {principal: {"": "member"} for principal in said.known}
    for principal, role in said.roles.items():
        roles[principal] = {"": role} if isinstance(role, str) else dict(role)
    return Registry(
        roles=roles, blocked=set(said.blocked), default_policy=said.policy,
        engaged={Engagement(one.agent, one.room, one.thread) for one in said.engaged},
    )  # fmt: skip


def _fault(document: Mapping[str, Any], error: ValidationError) -> str:
    fault = error.errors()[0]
    match fault["loc"]:
        case ("case", int(number), *rest):
            table = document["case"][number]
            name = repr(table["name"]) if isinstance(table, dict) and "name" in table else f"number {number + 1}"
            return f"case {name}: {'.'.join(str(part) for part in rest) or 'the table'}: {fault['msg']}"
        case loc:
            return f"{'.'.join(str(part) for part in loc) or 'the file'}: {fault['msg']}; write [[case]] tables"
