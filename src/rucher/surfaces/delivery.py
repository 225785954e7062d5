"""Delivers hops to surfaces part by part, so that nothing is sent twice unseen: each attempt is recorded before it is made.

The dispatcher hands hops in, one after the other for a group. After a crash in mid-attempt the surface is asked for
proof; without one the part ends as uncertain and is never sent again but by the owner's word. A surface that is away is tried
again with growing pauses for a day, then the hop has failed.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from rucher.protocol.errors import BadInput, Corrupt, Denied, Permanent, Retryable, TooRich, Uncertain
from rucher.protocol.events import Event, control_event
from rucher.protocol.ports import Clock, Deliverer, DeliveryState, Journal, Part, Proof, Splitting
from rucher.protocol.replies import awaiting
from rucher.surfaces.ledger import Ledger, PartLedger, read_back
from rucher.surfaces.receipts import MOST_REASON, recordable

T = TypeVar("T")
_US = 1_000_000


class HopToDeliver(Protocol):
    """What delivery needs to know of a hop: the key of its deliveries, where to, and how far it got before."""

    @property
    def id(self) -> str:
        """The hop's id, the idempotency key of its deliveries."""
        ...

    @property
    def to(self) -> str:
        """`surface:NAME`."""
        ...

    @property
    def state(self) -> str:
        """The hop's state when this process met it."""
        ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long delivery waits, in seconds: for an answer to one attempt, between attempts, and in all before it gives up.

    A hop that is old when the daemon starts is tried for `at_least_s` before it is given up.
    """

    attempt_s: float = 120.0
    first_pause_s: float = 0.5
    longest_pause_s: float = 900.0
    total_s: float = 86_400.0
    at_least_s: float = 3600.0

    def pause(self, attempts: int) -> float:
        """Seconds to wait after so many attempts."""
        return min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempts - 1, 30))


@dataclass(slots=True)
class _Work:
    """A hop that is being delivered: `unrecorded` is an event that the journal could not take yet."""

    hop: HopToDeliver
    event: Event
    deliverer: Deliverer
    parts: Sequence[Part]
    cut: str
    ledger: Ledger
    since: int
    unrecorded: "tuple[str, Part, Mapping[str, Any]] | None" = None

    def key(self, part: Part) -> str:
        """The idempotency key of this part at its surface."""
        return self.hop.id if len(self.parts) == 1 else f"{self.hop.id}:{part.number}"

    def shown(self, part: Part) -> Event:
        """What the deliverer is to show."""
        return part.of(self.event) if isinstance(self.deliverer, Splitting) else self.event


class Delivery:
    """The destination of all hops to surfaces. `deliverers` gives the one at a surface's name; it is asked at each new hop."""

    def __init__(
        self, journal: Journal, clock: Clock, deliverers: Mapping[str, Deliverer], patience: Patience | None = None
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._deliverers = deliverers
        self._patience = patience or Patience()
        self._works: dict[str, _Work] = {}

    async def accept(self, hop: HopToDeliver, event: Event) -> None:
        """Bring the hop to its end and record it: delivered, failed or uncertain.

        Raises Retryable when it surely was not delivered but may be, when the surface cannot say just now, or when
        the journal cannot write; called again, it goes on where it was and never sends what was sent.
        """
        work = self._works.get(hop.id)
        if work is None:
            try:
                work = self._works[hop.id] = await self._begin(hop, event)
            except Permanent as error:
                await self._refuse(hop, event, str(error))
                return
        if work.unrecorded is not None:
            await self._end(work, *work.unrecorded)
        for part in work.parts:
            if not await self._deliver(work, part):
                break
        self._works.pop(hop.id, None)

    async def _begin(self, hop: HopToDeliver, event: Event) -> _Work:
        kind, _, name = hop.to.partition(":")
        deliverer = self._deliverers.get(name)
        if deliverer is None:
            raise Permanent(f"the {kind} {name} is not configured on this instance")
        if isinstance(deliverer, Splitting):
            parts = deliverer.parts(event)
            if not parts:
                raise Permanent(f"the {kind} {name} has nothing to show of this message")
        else:
            parts = [Part(1, str(event.body.get("text", "")))]
        ledger = Ledger() if hop.state == "made" else read_back(await self._journal.trace(event.trace_id), hop.id)
        cut = _cut(parts)
        if ledger.begun and ledger.cut != cut:
            raise Permanent(
                f"parts of it were delivered, and the {kind} {name} now cuts messages otherwise: say the rest in a new message"
            )
        return _Work(hop, event, deliverer, parts, cut, ledger, self._clock.now())

    async def _deliver(self, work: _Work, part: Part) -> bool:
        """Bring one part as far as it gets; whether the next one may follow."""
        ledger = work.ledger.part(part.number)
        if ledger.open:
            await self._prove(work, part, "stopped while sending")
        while not ledger.ended():
            if (early := ledger.not_before - self._clock.now()) > 0:
                raise Retryable(f"the surface wants no other attempt for {early // _US} s", early / _US)
            await self._attempt(work, part, ledger)
        return ledger.state is DeliveryState.DELIVERED

    async def _attempt(self, work: _Work, part: Part, ledger: PartLedger) -> None:
        number = ledger.attempts + 1
        body = {"surface": work.hop.to.partition(":")[2], "attempt": number} | ({"cut": work.cut} if work.cut else {})
        if not await self._record(work, "sending", part, body, number):
            work.ledger = read_back(await self._journal.trace(work.event.trace_id), work.hop.id)
            raise Retryable(f"attempt {number} was recorded before; the surface is asked what became of it")
        plainer = _without(part, ledger.without)
        try:
            receipt = await self._in_time(work.deliverer.deliver(work.shown(plainer), work.key(part)))
        except Retryable as error:
            await self._postpone(work, part, str(error), error.retry_after)
        except TooRich as error:
            await self._simplify(work, part, plainer, error)
        except (Permanent, Denied, BadInput, Corrupt) as error:
            await self._end(work, "failed", part, {"reason": str(error)})
        except Exception as error:  # noqa: BLE001 - whatever an adapter throws that is no clear no, it may have been sent
            await self._prove(work, part, _why(error), again=True)
        else:
            left_out = {"left_out": list(ledger.without)} if ledger.without else {}
            await self._end(work, "delivered", part, {"receipt": recordable(receipt), **left_out})

    async def _prove(self, work: _Work, part: Part, why: str, *, again: bool = False) -> None:
        """Settle an attempt that may have reached the surface; with `again`, raise Retryable when it did not."""
        plainer = _without(part, work.ledger.part(part.number).without)
        match await self._proof(work, plainer):
            case Proof.DONE:
                await self._end(work, "delivered", part, {"proof": f"the surface shows it, after: {why}"})
            case Proof.NOT_DONE if again:
                await self._postpone(work, part, f"the surface shows that it was not sent, after: {why}", None)
            case Proof.NOT_DONE:
                await self._defer(work, part, {"reason": f"the surface shows that it was not sent, after: {why}"})
            case Proof.REPEATABLE:
                reason = f"it goes again under the same key, which its receiver knows, after: {why}"
                if again:
                    await self._postpone(work, part, reason, None)
                else:
                    await self._defer(work, part, {"reason": reason})
            case Proof.UNKNOWN:
                reason = f"it may or may not have been sent, and the surface cannot tell: {why}"
                await self._end(work, "uncertain", part, {"reason": reason})

    async def _proof(self, work: _Work, part: Part) -> Proof:
        try:
            return await self._in_time(work.deliverer.probe(work.shown(part), work.key(part)))
        except (Retryable, TimeoutError) as error:
            raise Retryable(f"the surface cannot say whether it was sent: {_why(error)}", _after(error)) from error
        except Exception:  # noqa: BLE001 - a probe that fails for good proves nothing; the part then ends as uncertain
            return Proof.UNKNOWN

    async def _in_time(self, answer: Awaitable[T]) -> T:
        async with asyncio.timeout(self._patience.attempt_s):
            return await answer

    async def _simplify(self, work: _Work, part: Part, sent: Part, error: TooRich) -> None:
        if sent.without(error.without) is None:
            await self._end(work, "failed", part, {"reason": str(error)})
        else:
            await self._defer(work, part, {"reason": f"{error}; sent without", "without": error.without})

    async def _postpone(self, work: _Work, part: Part, reason: str, retry_after: float | None) -> None:
        """Record that it surely was not sent and raise Retryable, or give up when it was tried for too long."""
        ledger, patience, now = work.ledger.part(part.number), self._patience, self._clock.now()
        tried_s = (now - ledger.began_at) / _US
        if tried_s >= patience.total_s and (now - work.since) / _US >= patience.at_least_s:
            hours = round(tried_s / 3600)
            await self._end(work, "failed", part, {"reason": f"given up after {hours} hours: {reason}"})
            return
        if retry_after is None:
            await self._defer(work, part, {"reason": reason})
            raise Retryable(reason, patience.pause(ledger.attempts))
        wait = min(max(retry_after, patience.pause(ledger.attempts)), patience.total_s)
        await self._defer(work, part, {"reason": reason, "not_before": now + round(wait * _US)})
        raise Retryable(reason, wait)

    async def _defer(self, work: _Work, part: Part, body: Mapping[str, Any]) -> None:
        number = work.ledger.part(part.number).attempts
        work.ledger.part(part.number).open = False
        await self._record(work, "deferred", part, {"attempt": number, **body}, number)

    async def _end(self, work: _Work, what: str, part: Part, body: Mapping[str, Any]) -> None:
        work.unrecorded = (what, part, body)
        await self._record(work, what, part, body, work.ledger.part(part.number).attempts)
        work.unrecorded = None

    async def _refuse(self, hop: HopToDeliver, event: Event, reason: str) -> None:
        """Record that nothing can be sent at all, which is about no part."""
        words = read_back(await self._journal.trace(event.trace_id), hop.id).words
        await self._append(hop, event, "failed", f"{hop.id}:0:{words}", {"part": 0, "reason": reason})

    async def _record(self, work: _Work, what: str, part: Part, body: Mapping[str, Any], number: int) -> bool:
        whole = {"part": part.number, "parts": len(work.parts), **body}
        key = f"{work.hop.id}:{part.number}:{number}:{work.ledger.words}"
        first = await self._append(work.hop, work.event, what, key, whole)
        if first or what != "sending":
            work.ledger.take(f"delivery.{what}", whole, self._clock.now())
        return first

    async def _append(self, hop: HopToDeliver, event: Event, what: str, key: str, body: Mapping[str, Any]) -> bool:
        if what == "failed" and hop.to == event.addressed_to:
            body = {**body, **awaiting(event)}
        draft = control_event(
            tenant=event.tenant, part="delivery", kind=f"delivery.{what}", key=key, trace_id=event.trace_id,
            parent_id=hop.id, occurred_at=self._clock.now(), body={"hop": hop.id, **body},
        )  # fmt: skip
        (appended,) = await self._journal.append(draft)
        return appended.first


def _without(part: Part, left_out: Sequence[str]) -> Part:
    for what in left_out:
        part = part.without(what) or part
    return part


def _cut(parts: Sequence[Part]) -> str:
    """A mark of where the message was cut; empty for one that is whole."""
    places = ",".join(str(len(part.text)) for part in parts)
    return hashlib.sha256(places.encode()).hexdigest()[:16] if len(parts) > 1 else ""


def _why(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return str(error) if isinstance(error, Uncertain | Retryable) else f"{type(error).__name__}: {error}"[:MOST_REASON]


def _after(error: Exception) -> float | None:
    return error.retry_after if isinstance(error, Retryable) else None
