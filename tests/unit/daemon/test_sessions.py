"""Laws of sessions: a reply wakes the run that asked and no other, and what is only to be known wakes nobody."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rucher.daemon.emissions import ending, message_of
from rucher.daemon.sessions import Sessions
from rucher.daemon.speaking import Speaker, speak
from rucher.engine.loop import Outcome
from rucher.instance.agents import AgentFile
from rucher.kernel.run import Emitted, Run
from rucher.kernel.spec import RunSpec, Versions, run_of_hop
from rucher.kernel.steps import RunSteps
from rucher.protocol.errors import Permanent
from rucher.protocol.events import Draft, Event, control_event
from rucher.protocol.rooms import room_of
from rucher.router.dispatch import Hop
from tests.fakes.drafts import NOW, said
from tests.fakes.kernel import Scene, parks, tell

AGENTS = {name: AgentFile(name=name, description="one") for name in ("ada", "bea")}
ASK = {"tool": "ask_agent", "arguments": {"agent": "bea", "text": "how much?"}}
HOUR = 3600


def sessions_of(scene: Scene) -> Sessions:
    return Sessions(scene.kernel(), scene.store, scene.clock, AGENTS, "m", lambda _agent: Versions(), {})


async def committed(scene: Scene, draft: Draft) -> Event:
    (appended,) = await scene.store.append(draft)
    return appended.event


async def brought(scene: Scene, event: Event, to: str, mode: str = "wake", sessions: Sessions | None = None) -> Hop:
    """The hop of this event to that agent, accepted; its record is the dispatcher's."""
    made = control_event(
        tenant=event.tenant, part="router", kind="hop.made", key=f"{event.id}:{to}:{mode}", trace_id=event.trace_id,
        parent_id=event.id, occurred_at=NOW,
        body={"event": event.id, "event_seq": event.seq, "rule": "r-1", "rules": "v", "to": to, "mode": mode},
    )  # fmt: skip
    seq = (await committed(scene, made)).seq
    hop = Hop(made.id, seq, event.id, "r-1", to, mode=mode)
    await (sessions or sessions_of(scene)).accept(hop, event)
    return hop


async def opened(scene: Scene, hop: Hop, event: Event) -> Run:
    """The run of a hop, able to speak."""
    run = await scene.open(await scene.spec(run_of_hop(hop.id)))

    def emits(step: str, request: Mapping[str, Any]) -> Emitted:
        return speak(Speaker(run.spec, message_of(event), AGENTS), step, request, NOW, lambda _what: "")

    run.emits = emits
    return run


async def asked(scene: Scene, key: str = "a") -> tuple[RunSpec, Event]:
    """A run of ada that waits for bea, and its question."""
    event = await committed(scene, said(key))
    run = await opened(scene, await brought(scene, event, "agent:ada"), event)
    await parks(RunSteps(run).consult(ASK, HOUR))
    (ask,) = [each for each in await scene.store.trace(event.trace_id) if each.type == "ask"]
    return run.spec, ask


async def answered(scene: Scene, ask: Event, outcome: Outcome) -> Event:
    """What bea replies to a question."""
    run = await opened(scene, await brought(scene, ask, "agent:bea"), ask)
    return await committed(scene, ending(run.spec, message_of(ask), outcome, NOW))


async def notes(scene: Scene, spec: RunSpec) -> Sequence[str]:
    return [row["event_id"] for row in await scene.store.rows("session.notes", spec.session, 99)]


async def hop_row(scene: Scene, event: Event) -> tuple[str, str]:
    """State and detail of the one hop of this event."""
    (ack,) = [each for each in await scene.store.trace(event.trace_id) if each.type == "hop.acknowledged"
              and each.parent_id in await _hops(scene, event)]  # fmt: skip
    still_open = {row["hop_id"] for row in await scene.store.rows("hops.open", 0)}
    return "open" if ack.body["hop"] in still_open else "done", str(ack.body["detail"])


async def _hops(scene: Scene, event: Event) -> Sequence[str]:
    trace = await scene.store.trace(event.trace_id)
    return [each.id for each in trace if each.type == "hop.made" and each.body["event"] == event.id]


def test_a_reply_wakes_the_run_that_asked_and_makes_no_other(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        first, ask = await asked(scene, "a")
        second, _ = await asked(scene, "b")
        reply = await answered(scene, ask, Outcome("done", "much"))
        assert (reply.addressed_to, reply.body["answers"]) == ("agent:ada", ask.id)
        await brought(scene, reply, "agent:ada")
        assert await scene.state(first, second) == ["ready", "waiting"]
        assert [event.body["agent"] for event in await scene.store.read(0, 999, "ev.*.*.run.created")] == [
            "ada", "ada", "bea",
        ]  # fmt: skip
        steps = RunSteps(await scene.open(first))
        assert await steps.consult(ASK, HOUR) == {"ok": True, "from": "agent:bea", "text": "much"}
        assert await notes(scene, first) == []
        assert await hop_row(scene, reply) == ("done", "")

    tell(tmp_path, story)


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        (Outcome("failed", "I could not", "why"), "I could not"),
        (Outcome("cancelled", "I stopped: enough.", "enough"), "I stopped: enough."),
        (Outcome("done", "not mine", silent=True), "agent:bea gives no answer: not mine"),
    ],
)
def test_whoever_was_asked_and_does_not_answer_wakes_the_asker_too(tmp_path: Path, outcome: Outcome, told: str) -> None:
    async def story(scene: Scene) -> None:
        spec, ask = await asked(scene)
        await brought(scene, await answered(scene, ask, outcome), "agent:ada")
        steps = RunSteps(await scene.open(spec))
        assert await steps.consult(ASK, HOUR) == {"ok": False, "from": "agent:bea", "text": told}

    tell(tmp_path, story)


def test_a_reply_and_its_acknowledgement_are_one_commit(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        _, ask = await asked(scene)
        reply = await answered(scene, ask, Outcome("done", "much"))
        hop = await brought(scene, reply, "agent:ada")
        signal, ack = (await scene.store.read(0, 999))[-2:]
        assert (signal.type, ack.type, ack.parent_id) == ("signal.sent", "hop.acknowledged", hop.id)
        assert signal.principal == "agent:bea"

    tell(tmp_path, story)


def test_a_reply_that_nobody_waits_for_any_more_is_kept_for_the_next_turn(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec, ask = await asked(scene)
        scene.clock.advance(HOUR)
        await scene.timers.fire_due()
        reply = await answered(scene, ask, Outcome("done", "much"))
        await brought(scene, reply, "agent:ada")
        assert await notes(scene, spec) == [reply.id]
        assert (await hop_row(scene, reply))[1] == (
            f"run {spec.run_id} waits for this no more; its session reads it in its next turn"
        )
        assert await RunSteps(await scene.open(spec)).consult(ASK, HOUR) == {"expired": True}

    tell(tmp_path, story)


def test_a_reply_to_a_run_that_is_over_is_kept_for_the_next_turn(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec, ask = await asked(scene)
        await (await scene.open(spec, to_end=True)).finish("cancelled", "enough")
        reply = await answered(scene, ask, Outcome("done", "much"))
        await brought(scene, reply, "agent:ada")
        assert await notes(scene, spec) == [reply.id]
        assert await scene.state(spec) == ["cancelled"]

    tell(tmp_path, story)


def test_of_two_replies_the_first_counts_and_the_second_is_kept(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec, ask = await asked(scene)
        first = await answered(scene, ask, Outcome("done", "much"))
        await brought(scene, first, "agent:ada")
        other = ending(await scene.spec(spec.run_id), message_of(ask), Outcome("done", "little"), NOW)
        second = await committed(scene, other)
        await brought(scene, second, "agent:ada")
        assert await notes(scene, spec) == [second.id]
        steps = RunSteps(await scene.open(spec))
        assert (await steps.consult(ASK, HOUR))["text"] == "much"

    tell(tmp_path, story)


def test_context_makes_no_run_and_is_kept_once(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        event = await committed(scene, said("a"))
        sessions = sessions_of(scene)
        for _ in range(2):
            await brought(scene, event, "agent:ada", "context", sessions)
        rows = await scene.store.rows("sessions.all")
        assert [(row["agent"], row["room"]) for row in rows] == [("ada", "cli:main")]
        assert len(await scene.store.rows("session.notes", rows[0]["session_id"], 9)) == 1
        assert await scene.store.read(0, 999, "ev.*.*.run.created") == []

    tell(tmp_path, story)


def test_a_question_that_a_rule_keeps_as_context_does_not_let_the_asker_wait(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        spec, ask = await asked(scene)
        await brought(scene, ask, "agent:bea", "context")
        told = await RunSteps(await scene.open(spec)).consult(ASK, HOUR)
        assert (told["ok"], "context only" in told["text"]) == (False, True)

    tell(tmp_path, story)


def test_an_agent_that_is_no_more_is_a_permanent_failure(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        with pytest.raises(Permanent, match="there is no agent 'cyd'"):
            await brought(scene, await committed(scene, said("a")), "agent:cyd")

    tell(tmp_path, story)


def test_what_two_agents_say_about_a_room_belongs_to_their_sessions_in_that_room(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        _, ask = await asked(scene)
        assert room_of(ask) == "cli:main"
        await brought(scene, ask, "agent:bea")
        assert {(row["agent"], row["room"]) for row in await scene.store.rows("sessions.all")} == {
            ("ada", "cli:main"), ("bea", "cli:main"),
        }  # fmt: skip

    tell(tmp_path, story)
