"""Delivers hops to surfaces so that nothing is sent twice unseen: each attempt is recorded before it is made.

The dispatcher hands hops in, one after the other for a group. After a crash in mid-attempt the surface is asked for
proof; without one the hop ends as uncertain and is never sent again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rucher.protocol.errors import BadInput, Corrupt, Denied, Permanent, Retryable, Uncertain
from rucher.protocol.events import CONTROL_PLANE, Event, control_event
from rucher.protocol.ports import Clock, Deliverer, DeliveryState, Journal, Proof

MOST_RECEIPT_BYTES = 4096
"""The largest receipt that is recorded as the surface gave it."""

MOST_REASON = 500


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
class _Attempts:
    """`made` attempts so far; `open` when the last one may have reached the surface."""

    made: int
    open: bool


class Delivery:
    """The destination of all hops to surfaces. `deliverers` by the surface's name."""

    def __init__(self, journal: Journal, clock: Clock, deliverers: Mapping[str, Deliverer]) -> None:
        self._journal = journal
        self._clock = clock
        self._deliverers = deliverers
        self._attempts: dict[str, _Attempts] = {}
        self._ends: dict[str, tuple[DeliveryState, Mapping[str, Any]]] = {}

    async def accept(self, hop: HopToDeliver, event: Event) -> None:
        """Bring the hop to its end and record it: delivered, failed or uncertain.

        Raises Retryable when it surely was not delivered but may be, when the surface cannot say just now, or when
        the journal cannot write; called again, it goes on where it was and never sends what was sent.
        """
        if hop.id in self._ends:
            await self._end(hop, event, *self._ends[hop.id])
            return
        kind, _, name = hop.to.partition(":")
        deliverer = self._deliverers.get(name)
        if deliverer is None:
            reason = f"the {kind} {name} is not configured on this instance"
            await self._end(hop, event, DeliveryState.FAILED, {"reason": reason})
            return
        if hop.id not in self._attempts:
            fresh = hop.state != DeliveryState.SENDING
            self._attempts[hop.id] = _Attempts(0, open=False) if fresh else await self._recorded_attempts(hop, event)
        if self._attempts[hop.id].open and await self._settled_by_proof(hop, event, deliverer):
            return
        await self._attempt(hop, event, deliverer)

    async def _attempt(self, hop: HopToDeliver, event: Event, deliverer: Deliverer) -> None:
        number = self._attempts[hop.id].made + 1
        surface = hop.to.partition(":")[2]
        body = {"surface": surface, "attempt": number}
        if not await self._record("sending", f"{hop.id}:{number}", hop, event, body):
            self._attempts[hop.id] = await self._recorded_attempts(hop, event)
            raise Retryable(f"attempt {number} was recorded before; the surface is asked what became of it")
        self._attempts[hop.id] = _Attempts(number, open=True)
        try:
            receipt = await deliverer.deliver(event, hop.id)
        except Retryable as error:
            await self._postpone(hop, event, str(error))
            raise
        except (Permanent, Denied, BadInput, Corrupt) as error:
            await self._end(hop, event, DeliveryState.FAILED, {"reason": str(error)})
        except Exception as error:
            # Whatever an adapter throws that is not a clear no, the message may have been sent.
            why = str(error) if isinstance(error, Uncertain) else f"{type(error).__name__}: {error}"[:MOST_REASON]
            if not await self._settled_by_proof(hop, event, deliverer, why):
                raise Retryable(f"not delivered yet: {why}") from error
        else:
            await self._end(hop, event, DeliveryState.DELIVERED, {"receipt": _recordable(receipt)})

    async def _settled_by_proof(
        self, hop: HopToDeliver, event: Event, deliverer: Deliverer, why: str = "stopped while sending"
    ) -> bool:
        match await _proof(deliverer, event, hop.id):
            case Proof.DONE:
                await self._end(hop, event, DeliveryState.DELIVERED, {"proof": f"the surface shows it, after: {why}"})
                return True
            case Proof.NOT_DONE:
                await self._postpone(hop, event, f"the surface shows that it was not sent, after: {why}")
                return False
            case Proof.REPEATABLE:
                await self._postpone(
                    hop, event, f"it goes again under the same key, which its receiver knows, after: {why}"
                )
                return False
            case Proof.UNKNOWN:
                reason = f"it may or may not have been sent, and the surface cannot tell: {why}"
                await self._end(hop, event, DeliveryState.UNCERTAIN, {"reason": reason})
                return True

    async def _postpone(self, hop: HopToDeliver, event: Event, reason: str) -> None:
        number = self._attempts[hop.id].made
        self._attempts[hop.id] = _Attempts(number, open=False)
        await self._record("deferred", f"{hop.id}:{number}", hop, event, {"attempt": number, "reason": reason})

    async def _recorded_attempts(self, hop: HopToDeliver, event: Event) -> _Attempts:
        made, deferred = 0, 0
        for past in await self._journal.trace(event.trace_id):
            if past.source == CONTROL_PLANE and past.body.get("hop") == hop.id:
                attempt = past.body.get("attempt", 0)
                made = max(made, attempt if past.type == "delivery.sending" else 0)
                deferred = max(deferred, attempt if past.type == "delivery.deferred" else 0)
        return _Attempts(made, open=made > deferred)

    async def _end(self, hop: HopToDeliver, event: Event, state: DeliveryState, body: Mapping[str, Any]) -> None:
        self._ends[hop.id] = (state, body)
        await self._record(state.value, hop.id, hop, event, body)
        del self._ends[hop.id]
        self._attempts.pop(hop.id, None)

    async def _record(self, what: str, key: str, hop: HopToDeliver, event: Event, body: Mapping[str, Any]) -> bool:
        draft = control_event(
            tenant=event.tenant,
            part="delivery",
            kind=f"delivery.{what}",
            key=key,
            trace_id=event.trace_id,
            parent_id=hop.id,
            occurred_at=self._clock.now(),
            body={"hop": hop.id, **body},
        )
        (appended,) = await self._journal.append(draft)
        return appended.first


async def _proof(deliverer: Deliverer, event: Event, key: str) -> Proof:
    try:
        return await deliverer.probe(event, key)
    except Retryable:
        raise
    except Exception:  # noqa: BLE001 - a probe that fails for good proves nothing; the hop then ends as uncertain
        return Proof.UNKNOWN


def _recordable(receipt: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        size = len(json.dumps(receipt, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        return {"left_out": f"not JSON: {error}"[:MOST_REASON]}
    return receipt if size <= MOST_RECEIPT_BYTES else {"left_out": f"{size} bytes"}
