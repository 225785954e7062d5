"""A model that follows a script: for tests, demonstrations and measurements of everything around a model.

Built by `rucher.daemon` from `[model] kind = "scripted"`. What it answers depends on the conversation alone, so that a
run resumed after a kill meets the same answers; only the count of pretended failures is forgotten with the process.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from rucher.protocol.clock import SystemClock
from rucher.protocol.conversation import (
    Assistant,
    CallRequested,
    Conversation,
    Finished,
    ModelEvent,
    ModelOptions,
    Stop,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    User,
)
from rucher.protocol.errors import BadInput, Permanent, Retryable
from rucher.protocol.ports import Clock

_SLOT = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Reply:
    """What a script decides: an answer, calls as (tool, arguments), or a failure."""

    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    delay_ms: int = 0
    fail_times: int = 0
    """How often this conversation meets Retryable before it gets the reply."""
    fail: str = ""
    """When set, the reply is this Permanent error."""


Decide = Callable[[Conversation], Reply]


class ScriptedModel:
    """The port over a pure function from conversation to reply."""

    def __init__(self, name: str, decide: Decide, clock: Clock | None = None) -> None:
        self.name = name
        self._decide = decide
        self._clock = clock or SystemClock()
        self._failures: Counter[str] = Counter()

    @classmethod
    def load(cls, script: str | Path, clock: Clock | None = None) -> "ScriptedModel":
        """The model of a built-in script's name ("echo") or of a script file in TOML or JSON; raises BadInput."""
        if script == "echo":
            return cls("scripted:echo", _ECHO.decide, clock)
        return cls(f"scripted:{Path(script).stem}", read(Path(script)).decide, clock)

    async def stream(
        self, conversation: Conversation, _tools: Sequence[ToolSpec], _options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        """One answer as events, ending with Finished; see the port for what it raises."""
        reply = self._decide(conversation)
        if reply.delay_ms:
            await self._clock.sleep(reply.delay_ms / 1000)
        self._fail(conversation, reply)
        if reply.text:
            yield TextDelta(reply.text)
        made = sum(len(said.calls) for said in conversation.messages if isinstance(said, Assistant))
        for place, (tool, arguments) in enumerate(reply.calls, start=made + 1):
            yield CallRequested(ToolCall(f"call_{place}", tool, arguments))
        yield Finished(Stop.TOOL_CALLS if reply.calls else Stop.END, Usage(output_tokens=len(reply.text.split())))

    async def close(self) -> None:
        """Nothing is held."""

    def _fail(self, conversation: Conversation, reply: Reply) -> None:
        if reply.fail:
            raise Permanent(reply.fail)
        if reply.fail_times:
            met = f"{len(conversation.messages)} {conversation.messages[-1]}"
            self._failures[met] += 1
            if self._failures[met] <= reply.fail_times:
                raise Retryable(f"pretended failure {self._failures[met]} of {reply.fail_times}", retry_after=0.0)


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Record):
    """A tool call; texts in `arguments` are templates."""

    tool: str
    arguments: dict[str, Any] = {}


class Rule(_Record):
    """What to reply in which situation; all conditions that are given must hold.

    Templates hold {text} (what the user said last), {result} (what the tools returned last), and the groups of `match`
    by name or number.
    """

    on: Literal["user", "result"] = "user"
    """Whether it is the user who spoke last, or a tool that returned."""
    persona: str = ""
    """Regular expression looked for in who the agent is: one script can speak for several."""
    match: str = ""
    """Regular expression looked for in what the user said last."""
    result: str = ""
    """Regular expression looked for in what the tools returned last."""
    after: int | None = None
    """How many results have come since the user spoke."""
    answer: str = ""
    """The reply's text, a template."""
    call: tuple[ScriptedCall, ...] = ()
    """The reply's tool calls."""
    delay_ms: int = 0
    """How long the reply takes."""
    fail_times: int = 0
    """How often this conversation meets Retryable before it gets the reply."""
    fail: str = ""
    """When set, the reply is this Permanent error."""

    @model_validator(mode="after")
    def _usable(self) -> "Rule":
        if not (self.answer or self.call or self.fail):
            raise ValueError("a rule needs an answer, a call or a fail")
        for pattern in (self.persona, self.match, self.result):
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression ({error})") from error
        return self

    def reply(self, now: "Situation") -> Reply | None:
        """The reply in this situation, or None where the rule does not apply."""
        found = re.search(self.match, now.text)
        if (
            found is None
            or self.on != now.on
            or self.after not in (None, now.results)
            or not re.search(self.result, now.result)
            or not re.search(self.persona, now.persona)
        ):
            return None
        words = {"text": now.text, "result": now.result, **_groups(found)}
        calls = tuple((call.tool, _filled(call.arguments, words)) for call in self.call)
        return Reply(_filled(self.answer, words), calls, self.delay_ms, self.fail_times, self.fail)


class Script(_Record):
    """An ordered list of rules; the first that applies gives the reply."""

    rule: tuple[Rule, ...]

    def decide(self, conversation: Conversation) -> Reply:
        """The reply to this conversation; a situation that no rule foresees is a Permanent failure."""
        now = situation(conversation)
        replies = (rule.reply(now) for rule in self.rule)
        unforeseen = Reply(fail=f"the script has no rule on = {now.on!r} for {now.text[:60]!r}: add one to it")
        return next((reply for reply in replies if reply is not None), unforeseen)


@dataclass(frozen=True, slots=True)
class Situation:
    """What rules look at: who spoke last, the last user text, the last results and how many came since that text."""

    on: Literal["user", "result"]
    text: str
    result: str
    results: int
    persona: str = ""


def situation(conversation: Conversation) -> Situation:
    """Where a conversation stands."""
    text, last, count = "", [""], 0
    for message in conversation.messages:
        match message:
            case User(said):
                text, last, count = said, [], 0
            case Assistant():
                last = []
            case ToolResult(text=returned):
                last.append(returned)
                count += 1
    return Situation("result" if last and count else "user", text, "\n".join(last), count, conversation.system)


def read(path: Path) -> Script:
    """The script in this file; raises BadInput that names file and place."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return Script.model_validate(data)
    except OSError as error:
        raise BadInput(
            f"script {path} cannot be read ({error.strerror}); name a file, or the built-in script echo"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"script {path}: {place or 'file'}: {first['msg']}") from error
    except ValueError as error:
        raise BadInput(f"script {path} cannot be parsed: {error}") from error


def _groups(found: re.Match[str]) -> dict[str, str]:
    numbered = {str(number): group or "" for number, group in enumerate(found.groups(), start=1)}
    return {**numbered, **{name: group or "" for name, group in found.groupdict().items()}}


def _filled(template: Any, words: Mapping[str, str]) -> Any:
    """The template with its slots filled, at any depth; a slot that has no word stays as it is written."""
    match template:
        case str():
            return _SLOT.sub(lambda slot: words.get(slot[1], slot[0]), template)
        case dict():
            return {name: _filled(value, words) for name, value in template.items()}
        case list():
            return [_filled(value, words) for value in template]
        case _:
            return template


_ECHO = Script(rule=(Rule(answer="echo: {text}"),))
