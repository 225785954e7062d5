"""The seams between packages: small Protocols, wired in `rucher.daemon`, checked by one conformance suite each."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from rucher.protocol.conversation import (
    Conversation,
    Effect,
    ModelEvent,
    ModelOptions,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from rucher.protocol.events import Draft, Event


class Clock(Protocol):
    """Time as an input."""

    def now(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once `seconds` have passed."""
        ...


class Entropy(Protocol):
    """Randomness as an input."""

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of one draft: the committed event, and whether this append was the first with its id."""

    event: Event
    first: bool


class Journal(Protocol):
    """The one append-only log, and the views that are folded from it."""

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts, in order, in one transaction, and only then return.

        Raises Fenced when a draft's run position is taken or belongs to another owner, Retryable when the store cannot
        write just now (disk full, locked), BadInput for a body too large. Nothing of the unit is kept when it raises.
        """
        ...

    async def read(self, after: int, limit: int, subject: str = "ev.>") -> Sequence[Event]:
        """Up to `limit` events with a `seq` above `after` whose subject matches the pattern, in order."""
        ...

    async def trace(self, trace_id: str) -> Sequence[Event]:
        """All events of a trace, in order."""
        ...

    async def event(self, event_id: str) -> Event | None:
        """The event with this id; a run's own events need not be found here."""
        ...

    async def grown(self, after: int) -> None:
        """Return once the journal holds an event with a `seq` above `after`."""
        ...


class Model(Protocol):
    """A language model behind one interface."""

    name: str

    def stream(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        """One answer as events, ending with Finished.

        Raises Retryable (overload, rate limit, broken stream, not started yet), Permanent (request refused, context too
        long, unknown model, bad key).
        """
        ...


class Proof(StrEnum):
    """An answer to "was this done already?"."""

    DONE = "done"
    NOT_DONE = "not_done"
    UNKNOWN = "unknown"
    REPEATABLE = "repeatable"
    """Nobody can tell, and doing it again under the same key does no harm: whoever receives it knows the key."""


class Tools(Protocol):
    """Executes tool calls of one session somewhere safe."""

    async def execute(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult:
        """Run the call, or return the result that `key` already has.

        A tool that fails is a result with ok=False. Raises Uncertain when a call that must not run twice was interrupted,
        Denied when the machine cannot sandbox it, Retryable when the place where tools run could not be started.
        """
        ...

    async def probe(self, key: str) -> Proof:
        """Whether the call under `key` ran; UNKNOWN unless there is a sure sign. Raises Corrupt or Retryable."""
        ...

    async def cancel(self, keys: Collection[str]) -> None:
        """Return once none of the calls under these keys goes on, with all that they started, nor can be begun any more.

        A task that is cancelled while it awaits `execute` ends no call; only this does. Raises Corrupt when the session's
        files are damaged (nothing goes on then either), Retryable when nobody can tell just now.
        """
        ...


class StepKind(StrEnum):
    """What a step of a run is."""

    MODEL_CALL = "model_call"
    TOOL_CALL = "tool_call"
    SPAWN = "spawn"
    JOIN = "join"
    WAIT_HUMAN = "wait_human"
    TIMER = "timer"
    COMPACTION = "compaction"
    CHECKPOINT = "checkpoint"
    VERDICT = "verdict"
    DELIVERY = "delivery"


class Steps(Protocol):
    """The journal of one run, as the engine sees it.

    Steps are numbered in the order in which they are asked for, so the same code with the same answers always asks for the
    same steps. Every method may raise Diverged when the recorded step was for another request, Fenced when the run was taken
    over, Suspended when it goes no further here (it waits, or its owner paused or cancelled it), and Retryable when the store
    cannot write.
    """

    async def perform(
        self,
        kind: StepKind,
        effect: Effect,
        request: Mapping[str, Any],
        act: Callable[[str], Awaitable[Mapping[str, Any]]],
        probe: Callable[[str], Awaitable[Proof]] | None = None,
        most: Mapping[str, int] | None = None,
    ) -> Mapping[str, Any]:
        """The result recorded for the next step of this run, or else of `act(key)`, which is then recorded.

        `probe(key)` is asked first when a step that must not run twice was intended before and has no result; without
        it, `act` must itself be safe to call again with the same key. `most` is what it may use, by measure (`tokens`,
        `nanodollars`, `wall_us`); raises Exhausted when a budget does not cover that or
        another measure than tool calls is used up, and what `act` raises.
        """
        ...

    async def told(self) -> Sequence[str]:
        """What the owner said to this run since it was last asked; recorded as a step when there is something."""
        ...

    async def ask(self, question: str, expires_in_s: float | None) -> Mapping[str, Any]:
        """The owner's answer (`text`), or `expired` once that many seconds went by; parked until then."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Go on after so many seconds; parked until then."""
        ...

    def branches(self, count: int) -> "Sequence[Steps]":
        """So many branches that may go on at the same time, each with steps of its own, numbered beneath the next step."""
        ...


class DeliveryState(StrEnum):
    """How far a delivery got."""

    PENDING = "pending"
    SENDING = "sending"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNCERTAIN = "uncertain"


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a message, as long as its surface shows in one: the number `number`, from 1, of its pieces.

    `format` is `markdown` or `plain`. `images` name what is shown with it, as the surface names images.
    """

    number: int
    text: str
    format: str = "plain"
    images: tuple[str, ...] = ()

    def of(self, event: Event) -> Event:
        """The event with this part in place of its text: what a deliverer is given."""
        body = {**event.body, "text": self.text, "format": self.format, "images": list(self.images)}
        return replace(event, body=body)

    def without(self, what: str) -> "Part | None":
        """This part without its `format`, or without one of its images; None when there is nothing to leave out."""
        if what == "format":
            return None if self.format == "plain" else replace(self, format="plain")
        rest = tuple(image for image in self.images if image != what)
        return None if rest == self.images else replace(self, images=rest)


class Deliverer(Protocol):
    """The outgoing half of a surface."""

    async def deliver(self, event: Event, key: str) -> dict[str, Any]:
        """Make the event's text visible to its group and return the surface's receipt.

        Raises Retryable, Permanent, TooRich when it may go in a plainer form, or Uncertain when it may have been sent.
        """
        ...

    async def probe(self, event: Event, key: str) -> Proof:
        """Whether the delivery under `key` was made."""
        ...


@runtime_checkable
class Splitting(Protocol):
    """What a deliverer is besides, when its surface shows long messages in parts, or formatted."""

    def parts(self, event: Event) -> Sequence[Part]:
        """The parts of the event's message, in order: always the same for the same event.

        `deliver` and `probe` are then called for each with `part.of(event)` and a key of its own. Raises Permanent.
        """
        ...
