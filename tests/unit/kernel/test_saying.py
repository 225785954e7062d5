"""Laws of what a run says with a step: said in the step's own commit, once, and never again when the run is replayed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rucher.journal.rows import RunWrite
from rucher.kernel.run import Emitted
from rucher.kernel.steps import RunSteps
from rucher.protocol.errors import Denied
from rucher.protocol.events import Event
from rucher.protocol.ports import StepKind
from rucher.protocol.replies import reply_topic
from tests.fakes.drafts import run_spec, said
from tests.fakes.kernel import Killed, Scene, Through, parks, tell

SPEC = run_spec()
HOUR = 3600
ASK = {"tool": "ask_agent", "arguments": {"agent": "bea", "text": "how much?"}}


def says(step: str, _request: Mapping[str, Any]) -> Emitted:
    """What a step says: something with an id of its own."""
    return Emitted([said(f"of step {step}")], "for bea")


def refuses(_step: str, _request: Mapping[str, Any]) -> Emitted:
    raise Denied("not to that one")


async def speaking(scene: Scene, emits: Any = says, store: Through | None = None) -> RunSteps:
    """The run's steps, from the first, taken over anew as after a kill."""
    run = await scene.open(SPEC, store=store)
    run.emits = emits
    return RunSteps(run)


async def heard(scene: Scene) -> Sequence[Event]:
    """What was said, in order."""
    return await scene.store.read(0, 100, "ev.*.cli.message")


def test_what_a_step_says_and_the_step_are_one_commit(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        store = Through(scene.store)

        async def refuse(write: RunWrite) -> None:
            if write.beside:
                raise Killed

        store.before = refuse
        with pytest.raises(Killed):
            await (await speaking(scene, store=store)).emit(ASK)
        assert await heard(scene) == []
        assert "step.recorded" not in await scene.types(SPEC)
        told = await (await speaking(scene)).emit(ASK)
        (event,) = await heard(scene)
        assert told == {"ok": True, "text": "for bea", "event": event.id}

    tell(tmp_path, story)


def test_a_replay_says_nothing_again_and_a_refusal_stays_one(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first = await speaking(scene, refuses)
        refused = {"ok": False, "text": "not to that one"}
        assert await first.emit(ASK) == refused
        assert await first.consult(ASK, HOUR) == refused
        again = await speaking(scene, says)
        assert await again.emit(ASK) == refused
        assert await again.consult(ASK, HOUR) == refused
        assert await heard(scene) == []
        third = await again.emit(ASK)
        last = await speaking(scene, refuses)
        assert [await last.emit(ASK), await last.consult(ASK, HOUR), await last.emit(ASK)] == [refused, refused, third]
        assert len(await heard(scene)) == 1

    tell(tmp_path, story)


def test_a_question_and_the_wait_for_its_reply_are_one_commit(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        store = Through(scene.store)
        await parks((await speaking(scene, store=store)).consult(ASK, HOUR))
        assert store.writes[-1] == ["run.waiting"]
        (event,) = await heard(scene)
        (wait,) = await scene.store.rows("run.waits", SPEC.run_id)
        assert (wait["kind"], wait["topic"]) == ("event", reply_topic(event.id))
        assert await scene.state(SPEC) == ["waiting"]

    tell(tmp_path, story)


def test_the_reply_wakes_the_run_that_asked_and_is_recorded(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks((await speaking(scene)).consult(ASK, HOUR))
        (event,) = await heard(scene)
        await scene.signal(reply_topic(event.id), {"ok": True, "text": "much"})
        assert await scene.state(SPEC) == ["ready"]
        for emits in (says, refuses, refuses):
            steps = await speaking(scene, emits)
            assert await steps.consult(ASK, HOUR) == {"ok": True, "text": "much"}
            await steps.note(StepKind.CHECKPOINT, {"after": "it"}, {})
        assert len(await heard(scene)) == 1
        assert await scene.state(SPEC) == ["running"]

    tell(tmp_path, story)


def test_nobody_waits_for_ever(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        await parks((await speaking(scene)).consult(ASK, HOUR))
        scene.clock.advance(HOUR - 1)
        assert await scene.timers.fire_due() == 0
        scene.clock.advance(1)
        assert await scene.timers.fire_due() == 1
        assert await (await speaking(scene)).consult(ASK, HOUR) == {"expired": True}

    tell(tmp_path, story)


@pytest.mark.parametrize("kind", ["route.dropped", "hop.failed"])
def test_what_reaches_nobody_wakes_whoever_waits_for_a_reply(tmp_path: Path, kind: str) -> None:
    async def story(scene: Scene) -> None:
        await parks((await speaking(scene)).consult(ASK, HOUR))
        (event,) = await heard(scene)
        body = {"event": event.id, "event_seq": event.seq, "hop": "h", "reason": "no rule"}
        await scene.record(kind, body)
        assert await scene.state(SPEC) == ["waiting"]
        await scene.record(kind, {**body, "reply_topic": reply_topic(event.id)})
        assert await (await speaking(scene)).consult(ASK, HOUR) == {"ok": False, "text": "no rule"}

    tell(tmp_path, story)
