"""Follows the journal and tells an OpenTelemetry receiver of each trace as spans. Off unless rucher.toml names a receiver.

Wired by `rucher.daemon.daemon`. It only reads: whatever becomes of the receiver, nothing else waits or fails. The journal is
its queue: while the receiver is away nothing is kept in memory, and its own place in the journal, a file, moves only when spans
were taken, so that the next start goes on there.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog

from rucher.daemon import genai
from rucher.daemon.settings import Settings, otel_headers
from rucher.daemon.spans import (
    ENDS_OF_DELIVERY,
    RunSoFar,
    Span,
    Telling,
    is_failure,
    of_delivery,
    of_failure,
    of_hop,
    of_message,
    of_run,
    of_step,
)
from rucher.instance.layout import Instance
from rucher.journal.artifacts import durable_file
from rucher.journal.store import JournalStore, StoreReader
from rucher.protocol.backoff import surely, waits
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.protocol.ids import is_id
from rucher.protocol.ports import Clock

BATCH = 100
"""The most events that become spans together; with the cut of texts this bounds the memory."""
LINGER_S = 1.0
"""How long spans wait for others to be sent with."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
REMEMBERED = 256
"""Runs and deliveries that are remembered from their beginning to their end; of others the journal is asked."""

log = structlog.get_logger()
K = TypeVar("K")
V = TypeVar("V")


class Receiving(Protocol):
    """What takes spans; see `rucher.daemon.otlp`."""

    async def send(self, spans: Sequence[Span]) -> str:
        """Hand the spans over; returns a complaint. Raises Retryable or Permanent."""
        ...


class Place:
    """How far the journal was told, in a file of its own: it is about the receiver, so it is no event."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, head: int) -> int:
        """The last event that was told; `head` where nothing was told yet: what was before is not sent afterwards."""
        with suppress(OSError, ValueError):
            told = int(self._path.read_text("ascii"))
            if 0 <= told <= head:
                return told
        return head

    def write(self, seq: int) -> None:
        """Keep it; when the disk does not take it, the next start sends some spans a second time under the same ids."""
        try:
            with durable_file(self._path) as file:
                file.write(f"{seq}\n".encode())
        except OSError as error:
            log.warning("the place of the telemetry cannot be written", path=str(self._path), reason=str(error))


class Telemetry:
    """Of one instance. `telling` is what spans may say."""

    def __init__(self, store: JournalStore, clock: Clock, receiver: Receiving, place: Place, telling: Telling) -> None:
        self._store = store
        self._clock = clock
        self._receiver = receiver
        self._place = place
        self._spans = SpanMaker(store, telling)
        self._fault = ""

    async def run(self) -> None:
        """Tell until cancelled."""
        cursor = self._place.read(self._store.head)
        self._place.write(cursor)
        while True:
            await self._store.grown(cursor)
            await self._clock.sleep(LINGER_S)
            while events := await surely(self._clock, lambda: self._store.read(cursor, BATCH)):  # noqa: B023 - awaited here
                spans = await self._made(events)
                if spans:
                    await self._send(spans)
                cursor = events[-1].seq
                await asyncio.to_thread(self._place.write, cursor)

    async def _made(self, events: Sequence[Event]) -> list[Span]:
        spans: list[Span] = []
        for event in events:
            try:
                span = await surely(self._clock, lambda: self._spans.span(event))  # noqa: B023 - awaited here
            except Exception as error:  # noqa: BLE001 - one odd event must not end the telling of all others; it is logged
                log.warning(
                    "an event became no span", seq=event.seq, type=event.type, reason=f"{type(error).__name__}: {error}"
                )
            else:
                spans += [span] if span else []
        return spans

    async def _send(self, spans: Sequence[Span]) -> None:
        for wait in waits(FIRST_WAIT_S, LONGEST_WAIT_S):
            try:
                complaint = await self._receiver.send(spans)
            except Retryable as error:
                self._say(f"{error}; it is tried again")
                await self._clock.sleep(wait if error.retry_after is None else max(wait, error.retry_after))
            except Permanent as error:
                self._say(f"{error}; {len(spans)} spans were given up")
                return
            else:
                self._say(complaint)
                return

    def _say(self, fault: str) -> None:
        """What is wrong with the receiver, once as long as it is the same."""
        if fault != self._fault:
            self._fault = fault
            log.warning("telemetry", fault=fault) if fault else log.info("telemetry is taken again")


class SpanMaker:
    """Makes spans of the journal's events, handed in in order. What ends later is remembered, or else read back."""

    def __init__(self, store: StoreReader, telling: Telling) -> None:
        self._store = store
        self._telling = telling
        self._runs: OrderedDict[str, RunSoFar] = OrderedDict()
        self._sending: OrderedDict[str, Event] = OrderedDict()

    async def span(self, event: Event) -> Span | None:
        """The span that this event ends; None for most events. Raises Retryable while the store is away."""
        if not is_id(event.trace_id):
            return None
        if event.run is not None:
            return await self._of_run(event)
        if event.source != CONTROL_PLANE:
            return of_message(event, self._telling)
        return of_failure(event, self._telling) if is_failure(event) else await self._of_routing(event)

    async def _of_routing(self, event: Event) -> Span | None:
        if event.type == "hop.made":
            return of_hop(event, await self._store.event(str(event.body["event"])))
        if event.type in ENDS_OF_DELIVERY:
            return of_delivery(event, await self._began(event), self._telling)
        if event.type == "delivery.sending":
            _remember(self._sending, _part(event), event)
        return None

    async def _of_run(self, event: Event) -> Span | None:
        run = await self._run(event)
        span: Span | None = None
        if event.type == "step.recorded":
            span = of_step(event, run, self._telling)
        elif event.type == "run.finished":
            asked = await self._store.event(run.fact("event")) if self._telling.content else None
            span = of_run(event, run, asked, self._telling)
            self._runs.pop(event.body["run"], None)
        run.learn(event)
        return span

    async def _run(self, event: Event) -> RunSoFar:
        at = event.run
        assert at is not None  # noqa: S101 - only runs' events come here
        found = self._runs.get(at.run_id)
        if found is None:
            found = RunSoFar()
            if at.seq:
                for past in await self._store.run_log(at.run_id):
                    if past.seq < event.seq:
                        found.learn(past)
            _remember(self._runs, at.run_id, found)
        self._runs.move_to_end(at.run_id)
        return found

    async def _began(self, event: Event) -> Event | None:
        part = _part(event)
        if part in self._sending:
            return self._sending.pop(part)
        past = [
            one for one in await self._store.trace(event.trace_id)
            if one.type == "delivery.sending" and one.seq < event.seq and _part(one) == part
        ]  # fmt: skip
        return past[-1] if past else None


def telemetry(
    instance: Instance, settings: Settings, store: JournalStore, clock: Clock
) -> list[Coroutine[Any, Any, None]]:
    """The work to do, none when it is off. Nothing of OpenTelemetry is imported then."""
    if not settings.otel.endpoint:
        return []
    return [_telling(instance, settings, store, clock)]


async def _telling(instance: Instance, settings: Settings, store: JournalStore, clock: Clock) -> None:
    from rucher.daemon.otlp import Receiver, open_client  # noqa: PLC0415 - not imported where it is off

    otel = settings.otel
    telling = Telling(otel.content, genai.PROVIDERS.get(settings.model.kind, settings.model.kind))
    async with open_client() as client:
        receiver = Receiver(otel.endpoint, otel_headers(otel), settings.instance.name, client)
        try:
            await Telemetry(store, clock, receiver, Place(instance.state / "otel.place"), telling).run()
        except Exception:
            # Whoever watches must not be able to stop what is watched.
            log.exception("telemetry ended; it goes on at the next start")


def _part(event: Event) -> str:
    return f"{event.body['hop']} {event.body.get('part', '')}"


def _remember(kept: "OrderedDict[K, V]", key: K, value: V) -> None:
    kept[key] = value
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)
