"""An instance on disk whose journal holds a whole story, made with the real store and kernel."""

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from typing_extensions import override

import rucher as rucher_package
from rucher.cli.main import cli
from rucher.instance.create import KERNEL, Contents, config_text, create
from rucher.instance.layout import Instance
from rucher.instance.secrets import node_key
from rucher.journal.artifacts import Artifacts
from rucher.journal.seals import Sealer
from rucher.journal.store import JournalStore, open_store
from rucher.kernel.run import Run
from rucher.kernel.runs import Kernel
from rucher.kernel.spec import RunSpec, run_of_hop
from rucher.kernel.steps import RunSteps
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.conversation import Effect
from rucher.protocol.errors import Suspended, Uncertain
from rucher.protocol.events import Draft, Trust, control_event, message
from rucher.protocol.ids import caused
from rucher.protocol.ports import StepKind
from rucher.router.generated import ensure_generated
from tests.fakes.clock import ManualClock

QUESTION = "What does the [bold]harbour[/bold] log say?\x1b[2J\nSecond line"
ANSWER = "It says: fog until noon."
TOOL = {"tool": "search", "arguments": {"pattern": "harbour"}}


class Ticking(ManualClock):
    """A clock on which every look takes a millisecond."""

    @override
    def now(self) -> int:
        self.advance(0.001)
        return super().now()


@dataclass(frozen=True, slots=True)
class Story:
    """What was recorded: the instance, and the ids to look it up by."""

    instance: Instance
    trace_id: str
    message_id: str
    run_id: str
    waiting_run: str = ""


def make_instance(folder: Path, port: int = 7999) -> Instance:
    rules = ensure_generated('default = "agent:scribe"\n', ["scribe", "talker"], ["cli"])
    assert KERNEL.is_dir()
    return create(folder, Contents(config_text("hive", "scripted", port), rules), SystemEntropy())


def record(folder: Path, *, waiting: bool = False) -> Story:
    """A question that was answered and delivered; with `waiting`, one more whose tool call is uncertain."""
    instance = make_instance(folder)

    async def telling() -> Story:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            story = await _answered(store, clock, instance)
            if waiting:
                story = await _uncertain(store, clock, story)
            await Sealer(store, node_key(instance.node_key, SystemEntropy()), instance.seal_head, clock).seal()
            return story

    return asyncio.run(telling())


def say(instance: Instance, *keys: str) -> None:
    """Append one message for each key in one commit, as a daemon beside the command would."""

    async def telling() -> None:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            await store.append(*(asked(clock, key, key) for key in keys))

    asyncio.run(telling())


def drop(instance: Instance, *kinds: str) -> None:
    """Append one event of a partner for each type."""

    async def telling() -> None:
        clock = Ticking()
        async with open_store(instance.journal, clock) as store:
            for kind in kinds:
                draft = asked(clock, kind, kind)
                await store.append(replace(draft, source="stripe", type=kind, principal="partner:stripe"))

    asyncio.run(telling())


def grow(story: Story, *keys: str) -> None:
    """For each key, a message that nobody wants, and a seal: so what was before can be archived."""

    async def growing() -> None:
        clock = ManualClock()
        async with open_store(story.instance.journal, clock) as store:
            for key in keys:
                (told,) = await store.append(asked(clock, key, key))
                seen = {"event": told.event.id, "event_seq": told.event.seq, "reason": "nobody wants it"}
                dropped = control_event(
                    tenant="local", part="router", kind="route.dropped", key=key, trace_id=told.event.trace_id,
                    occurred_at=clock.now(), body=seen,
                )  # fmt: skip
                await store.append(dropped)
                signing = node_key(story.instance.node_key, SystemEntropy())
                await Sealer(store, signing, story.instance.seal_head, clock).seal()

    asyncio.run(growing())


def asked(clock: ManualClock, key: str, text: str) -> Draft:
    return message(
        tenant="local",
        source="cli",
        key=key,
        principal="owner:owner",
        trust=Trust.OWNER,
        text=text,
        group="main",
        occurred_at=clock.now(),
    )


async def _answered(store: JournalStore, clock: ManualClock, instance: Instance) -> Story:
    draft = asked(clock, "first", QUESTION)
    hop = await hop_of(store, clock, draft, "default", "agent:scribe")
    run = await begin(store, clock, instance, spec_of(hop, draft))
    steps = RunSteps(run)
    call = {"id": "c1", "name": "search", "arguments": TOOL["arguments"]}
    usage = {"input_tokens": 400, "output_tokens": 20, "cached_tokens": 0}
    asks = {"text": "", "calls": [call], "stop": "tool_calls", "model": "scripted", "usage": usage}
    await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {"messages": 1}, giving(asks))
    found = {"ok": True, "text": "log.txt: fog until noon\x07"}
    await steps.perform(StepKind.TOOL_CALL, Effect.IDEMPOTENT_WRITE, TOOL, giving(found))
    says = {"text": ANSWER, "calls": [], "stop": "end", "model": "scripted", "usage": usage}
    await steps.perform(StepKind.MODEL_CALL, Effect.MODEL_CALL, {"messages": 3}, giving(says))
    answer = _answer(run.spec, draft, clock)
    await run.finish("done", "", answer)
    reply = await hop_of(store, clock, answer, "r-cli-reply", "surface:cli", accepted=False)
    body = {"hop": reply, "surface": "cli", "attempt": 1}
    await store.append(_control(clock, answer, "delivery", "delivery.sending", reply, body))
    end = {"hop": reply, "receipt": {"file": "main.jsonl"}}
    await store.append(_control(clock, answer, "delivery", "delivery.delivered", reply, end))
    return Story(instance, draft.trace_id, draft.id, run.spec.run_id)


async def _uncertain(store: JournalStore, clock: ManualClock, story: Story) -> Story:
    draft = asked(clock, "second", "count the files")
    hop = await hop_of(store, clock, draft, "default", "agent:scribe")
    run = await begin(store, clock, story.instance, spec_of(hop, draft))

    async def interrupted(_key: str) -> Mapping[str, Any]:
        raise Uncertain("the shell was interrupted.")

    request = {"tool": "shell", "arguments": {"command": "ls"}}
    try:
        await RunSteps(run).perform(StepKind.TOOL_CALL, Effect.NON_IDEMPOTENT, request, interrupted)
    except Suspended:
        return Story(story.instance, story.trace_id, story.message_id, story.run_id, run.spec.run_id)
    raise AssertionError("the run was not suspended")


async def hop_of(
    store: JournalStore, clock: ManualClock, draft: Draft, rule: str, to: str, *, accepted: bool = True
) -> str:
    seq = (await store.append(draft))[0].event.seq
    body = {"event": draft.id, "event_seq": seq, "rule": rule, "rules": "abcdef0123456789", "to": to}
    made = _control(clock, draft, "router", "hop.made", draft.id, body)
    await store.append(made)
    if accepted:
        body = {"hop": made.id, "detail": "", "session": "S1"}
        await store.append(_control(clock, draft, "router", "hop.acknowledged", made.id, body))
    return made.id


def _control(clock: ManualClock, about: Draft, part: str, kind: str, parent: str, body: Mapping[str, Any]) -> Draft:
    return control_event(
        tenant="local",
        part=part,
        kind=kind,
        key=parent,
        trace_id=about.trace_id,
        parent_id=parent,
        occurred_at=clock.now(),
        body=body,
    )


async def begin(store: JournalStore, clock: ManualClock, instance: Instance, spec: RunSpec) -> Run:
    """The run, made and taken over."""
    kernel = Kernel(store, clock, SystemEntropy(), Artifacts(instance.artifacts))
    await kernel.create(spec)
    return await kernel.open(spec)


def spec_of(hop: str, draft: Draft, **more: Any) -> RunSpec:
    """The run that this hop of this message causes."""
    return RunSpec(
        run_id=run_of_hop(hop), hop=hop, event=draft.id, session="S1", agent="scribe", model="scripted", tenant="local",
        trace_id=draft.trace_id, **more,
    )  # fmt: skip


def giving(result: Mapping[str, Any]) -> Callable[[str], Awaitable[Mapping[str, Any]]]:
    """An act with this result."""

    async def act(_key: str) -> Mapping[str, Any]:
        return result

    return act


def _answer(spec: RunSpec, question: Draft, clock: ManualClock) -> Draft:
    return Draft(
        id=caused(spec.run_id, "answer", "end"),
        tenant="local",
        source="agent",
        type="answer",
        principal="agent:scribe",
        trust=Trust.AGENT,
        trace_id=spec.trace_id,
        parent_id=spec.hop,
        addressed_to="group:cli:main",
        occurred_at=clock.now(),
        body={"text": ANSWER, "group": "main", "run": spec.run_id, "in_reply_to": question.id},
    )


def rucher(instance: Instance | Path, *words: str) -> Result:
    """What the command line answers when it is called on this instance."""
    folder = instance.root if isinstance(instance, Instance) else instance
    return CliRunner().invoke(cli, ["--dir", str(folder), *words])


def process(
    *words: str, folder: Path, stdout: int = subprocess.PIPE, stdin: int = subprocess.DEVNULL
) -> "subprocess.Popen[str]":
    """The command line as a process of its own, started in `folder`; nothing of the host's settings reaches it."""
    source = str(Path(rucher_package.__file__).parents[1])
    environment = {"PYTHONPATH": source, "HOME": str(folder), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    command = [sys.executable, "-c", "from rucher.cli.main import main; main()", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True
    )
