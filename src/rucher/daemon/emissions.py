"""What agents emit, as events: pure. Each has an id derived from its run, so it exists once, and is made by one function.

An emission says by which agents it came about (`via`, oldest first) and how many turns lie before it (`depth`), so that the
router can end a conversation that goes in circles. Among agents only an `ask` is answered: whatever else one says to another
wakes it, and its answer is recorded and sent to nobody. So two agents cannot keep each other awake by being polite.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rucher.engine.loop import EMPTY, Outcome
from rucher.kernel.run import Parking
from rucher.kernel.spec import RunSpec
from rucher.protocol.events import DEFAULT_GROUP, Draft, Event, Trust
from rucher.protocol.ids import caused
from rucher.protocol.replies import AGENT, emitted, reply_topic
from rucher.protocol.rooms import room_of

OWNER_ROOM = f"cli:{DEFAULT_GROUP}"
"""Where an agent reaches the owner who has not spoken to it."""


@dataclass(frozen=True, slots=True)
class Message:
    """What a run is about: the message that caused it, in the words of its session.

    `kind` is its type, `asker` the agent that waits for the answer, `reply_to_run` that one's run and `reply_topic` what it
    waits on (empty when none does). `unawaited` says why nobody is told the answer; empty when somebody is.
    """

    event: str
    trace: str
    principal: str
    trust: str
    text: str
    room: str
    thread: str
    kind: str = "message"
    via: tuple[str, ...] = ()
    depth: int = 0
    asker: str = ""
    reply_to_run: str = ""
    reply_topic: str = ""
    automatic: bool = False
    unawaited: str = ""

    @property
    def row(self) -> Mapping[str, Any]:
        """The message as it stands in the mailbox."""
        return {
            "event": self.event, "trace": self.trace, "from": self.principal, "trust": self.trust, "text": self.text,
            "room": self.room, "thread": self.thread,
        }  # fmt: skip

    @property
    def request(self) -> str:
        """What the agent is told: the text, and of one that no person sent, what becomes of its answer."""
        if self.asker:
            return f"{self.principal} asks you; your answer goes back to it and to nobody else.\n\n{self.text}"
        if self.unawaited:
            return f"From {self.principal}; {self.unawaited}, so your answer is recorded and sent to nobody.\n\n{self.text}"
        return self.text


def message_of(event: Event) -> Message:
    """The message that this event is for a run."""
    body, ours = event.body, emitted(event)
    asked = ours and event.type == "ask"
    automatic = bool(body.get("automatic"))
    unawaited = "it waits for no answer" if ours and not asked else "it was sent by a machine" if automatic else ""
    return Message(
        event=event.id, trace=event.trace_id, principal=event.principal, trust=event.trust.word,
        text=str(body.get("text", "")), room=room_of(event), thread=str(body.get("thread", "")), kind=event.type,
        # Also where another instance says so, whose door has checked it: a chain that was longer only ends sooner.
        via=tuple(map(str, body.get("via", ()))), depth=int(body.get("depth", 0)),
        asker=event.principal if asked else "", reply_to_run=str(body.get("reply_to_run", "")) if asked else "",
        reply_topic=str(body.get("reply_topic", "")) if asked else "", automatic=automatic, unawaited=unawaited,
    )  # fmt: skip


def settled(message: Message, outcome: Outcome) -> Outcome:
    """The outcome of a turn. A model that says nothing has failed whoever waits for its answer, and nobody else."""
    if outcome.reason == EMPTY and message.unawaited:
        return Outcome("done", "it had nothing to say", silent=True)
    return outcome


def ending(spec: RunSpec, message: Message, outcome: Outcome, now: int) -> Draft:
    """The answer, or the visible failure, that ends a run. An answer that nobody gets is one all the same: `silent`."""
    kind = "answer" if outcome.state in ("done", "partial") else "failure"
    more: dict[str, Any] = {"automatic": True} if message.automatic else {}
    text = outcome.text
    if message.asker:
        more |= {"answers": message.event, "reply_to_run": message.reply_to_run, "reply_topic": message.reply_topic}
    if outcome.silent:
        more |= {"silent": True, "why": f"agent:{spec.agent} gives no answer: {text}"}
        text = ""
    elif message.unawaited:
        more |= {"silent": True, "why": f"{message.principal} is not told: {message.unawaited}"}
    to = message.asker or (None if more.get("silent") else f"group:{message.room}")
    return emission(spec, message, kind, key="end", to=to, text=text, now=now, more=more)


def questions(spec: RunSpec, message: Message, wait: Parking, now: int) -> list[Draft]:
    """What the owner is asked when a run waits for him; a timer or a child asks nobody."""
    match wait.kind:
        case "uncertain":
            text = (
                f"I was interrupted in step {wait.step} and cannot tell whether it happened: {wait.reason} Look, then say what "
                f"is true: rucher run resolve {spec.run_id} {wait.step} ran | not-run | failed"
            )
        case "migration":
            text = f"I wait: {wait.reason}: rucher run migrate {spec.run_id}"
        case "wait_human":
            text = f"{wait.reason} (rucher run answer {spec.run_id} {wait.step} TEXT)"
        case _:
            return []
    to = f"group:{message.room}"
    return [emission(spec, message, "question", key=f"{wait.step}:{wait.place}", to=to, text=text, now=now)]


def emission(  # noqa: PLR0913 - what an emission consists of
    spec: RunSpec, message: Message, kind: str, *, key: str, to: str | None, text: str, now: int,
    more: Mapping[str, Any] | None = None,
) -> Draft:  # fmt: skip
    """One emission of a run: the only place where they are made. `key` is unique among the run's of this kind.

    `to` is an address; an `ask` also says who waits for its reply.
    """
    draft = Draft(
        id=caused(spec.run_id, kind, key), tenant=spec.tenant, source=AGENT, type=kind,
        principal=f"agent:{spec.agent}", trust=Trust.AGENT, trace_id=spec.trace_id, parent_id=spec.hop or None,
        addressed_to=to, occurred_at=now,
        body={
            "text": text, "group": message.room.partition(":")[2], "thread": message.thread, "room": message.room,
            "run": spec.run_id, "session": spec.session, "in_reply_to": message.event,
            "via": [*message.via, f"agent:{spec.agent}"], "depth": message.depth + 1, **(more or {}),
        },
    )  # fmt: skip
    if kind != "ask":
        return draft
    waiting = {"reply_to_run": spec.run_id, "reply_topic": reply_topic(draft.id)}
    return replace(draft, body={**draft.body, **waiting})


def brought_by(event: Event) -> Mapping[str, Any]:
    """What the run that asked is told by this reply."""
    body = event.body
    if body.get("silent"):
        return {"ok": False, "from": event.principal, "text": str(body.get("why", ""))}
    return {"ok": event.type == "answer", "from": event.principal, "text": str(body.get("text", ""))}
