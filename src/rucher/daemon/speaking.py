"""What an agent may say with its tools, to whom, and the events that come of it: pure.

Called by the kernel through `Run.emits`, in the commit of the step that says it. What is refused is refused here, at once, so
that the agent learns it as the result of its call; whether anybody hears the rest is the rules' business.
"""

import difflib
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rucher.daemon.emissions import OWNER_ROOM, Message, emission
from rucher.kernel.run import Emitted
from rucher.kernel.spec import RunSpec
from rucher.protocol.errors import Denied
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ids import derived

PROPOSED = {"rules": "rules.proposed", "schedule": "schedule.proposed"}
"""By what an agent proposes, the event that waits for the owner."""
MOST_PROPOSED = 200_000
"""Characters of a proposed file: the event that holds it also holds the difference."""
_GENERATED = "generated = true"


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who speaks: a run, the message that it is about, and the agents that there are."""

    spec: RunSpec
    message: Message
    agents: Collection[str]

    def say(self, kind: str, step: str, to: str, text: str, now: int, **more: str) -> Draft:
        """The emission of this step."""
        return emission(self.spec, self.message, kind, key=step, to=to, text=text, now=now, more=more)


def speak(speaker: Speaker, step: str, request: Mapping[str, Any], now: int, text_of: Callable[[str], str]) -> Emitted:
    """What the call of a talking tool emits. `text_of` gives the owner's file of what is proposed, as it is now.

    Raises Denied, in words for the agent, when it must not be said.
    """
    given = {name: str(value) for name, value in request["arguments"].items()}
    match request["tool"]:
        case "ask_agent":
            to = _agent(speaker, given["agent"].removeprefix("agent:"))
            ask = speaker.say("ask", step, to, given["text"], now)
            return Emitted([ask], f"for the reply of {to}")
        case "notify":
            told = speaker.say("notify", step, _address(speaker, given["to"]), given["text"], now)
            return Emitted([told], f"It was said to {given['to']}; nobody answers it.")
        case "propose":
            return _proposal(speaker, step, given, now, text_of(given["what"]))
        case tool:
            raise Denied(f"nothing can be said with {tool}")


def _agent(speaker: Speaker, name: str) -> str:
    mine = speaker.spec.agent
    if name == mine:
        raise Denied("You cannot talk to yourself; think it over and go on, or address another agent.")
    if name not in speaker.agents:
        others = ", ".join(sorted(each for each in speaker.agents if each != mine)) or "none"
        raise Denied(f"There is no agent {name!r}. The other agents are: {others}.")
    return f"agent:{name}"


def _address(speaker: Speaker, to: str) -> str:
    kind, _, name = to.partition(":")
    match kind:
        case "owner" if not name:
            return f"group:{OWNER_ROOM}"
        case "agent":
            return _agent(speaker, name)
        case "group" if all(name.partition(":")[::2]):
            return to
        case _:
            raise Denied(f"{to!r} is no address; write agent:NAME, group:SURFACE:GROUP or owner.")


def _proposal(speaker: Speaker, step: str, given: Mapping[str, str], now: int, before: str) -> Emitted:
    what, why = given["what"], given["why"]
    after = with_addition(before, given["text"])
    if len(after) > MOST_PROPOSED:
        raise Denied(f"With this the {what} would have more than {MOST_PROPOSED:,} characters; tell the owner instead.")
    diff = "".join(
        difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), "in force", "proposed")
    )
    text = f"I propose to change the {what}: {why}\n\n{diff}"
    said = speaker.say("propose", step, f"group:{OWNER_ROOM}", text, now, what=what, why=why)
    body = {"why": why, "by": said.principal, "event": said.id, "run": speaker.spec.run_id}
    if what == "rules":
        body |= {"base": hashlib.sha256(before.encode()).hexdigest(), "text": after, "diff": diff}
    else:
        body |= {"text": given["text"]}
    # In the history of what is proposed to change, where the owner's commands look for it.
    waiting = control_event(
        tenant=said.tenant, part="kernel", kind=PROPOSED[what], key=f"{said.principal}:{said.id}",
        trace_id=derived("trace", said.tenant, what), parent_id=said.id, occurred_at=now, body=body,
    )  # fmt: skip
    return Emitted([said, replace(waiting, principal=said.principal)], "It was put to the owner, who decides.")


def with_addition(before: str, addition: str) -> str:
    """An owner's file with these tables added: below the owner's own ones, above those that were generated."""
    lines = before.splitlines(keepends=True)
    place = _first_generated(lines)
    above, below = "".join(lines[:place]).rstrip("\n"), "".join(lines[place:])
    parts = [above] if above else []
    return "\n\n".join([*parts, addition.strip("\n")]) + "\n" + (f"\n{below}" if below else "")


def _first_generated(lines: list[str]) -> int:
    start = len(lines)
    for number, line in enumerate(lines):
        if line.startswith("[["):
            start = number
        elif line.strip() == _GENERATED:
            return start
    return len(lines)
