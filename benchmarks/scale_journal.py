"""A journal of very many events: how fast it is still appended to, how soon a trace is read, how soon its daemon is up.

Called by `benchmarks.scale`. The journal is that of a real instance and is filled through its store, sealed as it grows, with
the events that a message and its answer leave behind; nothing in it is left to be routed, delivered, worked on or sealed.
"""

import asyncio
import contextlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.ours import at_once
from benchmarks.progress import Progress
from rucher.daemon.emissions import Message, ending
from rucher.engine.loop import Outcome
from rucher.instance.secrets import node_key
from rucher.journal.rows import RunWrite
from rucher.journal.seals import SEAL_EVERY_S, Sealer
from rucher.journal.store import JournalStore, Place, open_store
from rucher.kernel.records import Record, asked, intended, record, recorded, spent, unintended
from rucher.kernel.spec import RunSpec, run_of_hop
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.conversation import Effect
from rucher.protocol.events import Draft, Trust, control_event, message
from rucher.protocol.ids import begun, caused, derived
from rucher.protocol.ports import StepKind
from tests.fakes.hive import Hive, resting

WRITERS = 400
APPENDERS = 16
TURNS = 8
TURN = {"traces": 40, "messages": 160, "steps": 16}
"""Of each, how many are written in one turn of a measure of the append rate."""
STEPS = 20
TRACES_READ = 20
SESSIONS = 1000
EVENTS_A_TRACE = 14
PERSONA = "You are Scribe, a careful assistant with a workspace folder of files. " * 8
ANSWER = "It stands in the second file: the meeting was moved to Thursday, and Ana brings the figures. " * 4
PATIENCE_S = 60.0

Figures = dict[str, Any]
NewPlace = Callable[[], AbstractContextManager[tuple[Path, str]]]
CLOCK = SystemClock()


class Talk:
    """Messages and answers, as a daemon leaves them in its journal; `name` keeps those of several talks apart."""

    def __init__(self, store: JournalStore, name: str) -> None:
        self.store = store
        self._name = name
        self.ways: Mapping[str, Callable[[int], Awaitable[object]]] = {
            "traces": self.whole, "messages": self.message, "steps": self.steps,
        }  # fmt: skip

    async def message(self, number: int) -> Draft:
        """A message, of which nothing came yet."""
        return (await self._message(number))[0]

    async def whole(self, number: int) -> str:
        """A message, the run that it caused, and its answer delivered; returns the trace."""
        said, seq = await self._message(number)
        hop = _hop(said, seq, "agent:scribe")
        await self.store.append(hop)
        spec = RunSpec(
            run_id=run_of_hop(hop.id), tenant=said.tenant, agent="scribe", model="scripted", trace_id=said.trace_id,
            session=derived("session", said.body["group"]), hop=hop.id, event=said.id,
        )  # fmt: skip
        acknowledged = _control("hop.acknowledged", hop, {"hop": hop.id, "detail": "", "session": spec.session})
        worked = RunWrite(spec.head, 1, 1, CLOCK.now(), _work(spec))
        born = [record("run.created", spec.created())]
        await self.store.write(RunWrite(spec.head, 0, 0, CLOCK.now(), born, [acknowledged, worked]))
        about = Message(said.id, said.trace_id, said.principal, "owner", said.body["text"], "cli:main", "")
        (told,) = await self.store.append(ending(spec, about, Outcome("done", ANSWER), CLOCK.now()))
        out = _hop(told.event, told.event.seq, "surface:cli")
        sending = _control("delivery.sending", out, {"hop": out.id, "surface": "cli", "attempt": 1})
        delivered = _control("delivery.delivered", out, {"hop": out.id, "receipt": {"file": "main.jsonl"}})
        await self.store.append(out, sending, delivered)
        return said.trace_id

    async def steps(self, number: int) -> None:
        """A run of plain steps: the result of each is written with the intention of the next."""
        trace = begun(CLOCK.now(), self._name, str(number))
        spec = RunSpec(
            run_id=caused(trace, "run"), tenant="local", agent="scribe", model="scripted", trace_id=trace, session=trace,
        )  # fmt: skip
        body, hashed = asked(StepKind.TOOL_CALL, {"tool": "search"})
        await self.store.write(RunWrite(spec.head, 0, 0, CLOCK.now(), [record("run.created", spec.created())]))
        held = record("run.acquired", {"run": spec.run_id, "worker": derived("worker")})
        for step in range(1, STEPS + 1):
            intention = intended(
                run=spec.run_id, step=str(step), kind=StepKind.TOOL_CALL, effect=Effect.IDEMPOTENT_WRITE, attempt=1,
                hashed=hashed, request=body,
            )  # fmt: skip
            await self.store.write(RunWrite(spec.head, 2 * step - 1, 1, CLOCK.now(), [held, intention]))
            held = recorded(spec.run_id, str(step), StepKind.TOOL_CALL, 1, '{"ok":true,"text":"found"}')

    async def _message(self, number: int) -> tuple[Draft, int]:
        said = message(
            tenant="local", source="cli", key=f"{self._name}:{number}", principal="owner:owner", trust=Trust.OWNER,
            text=f"What do my files say about the meeting of number {number}, and who brings the figures?",
            group=f"room-{number % SESSIONS}", occurred_at=CLOCK.now(),
        )  # fmt: skip
        (accepted,) = await self.store.append(said)
        return said, accepted.event.seq


def _control(kind: str, cause: Draft, body: dict[str, Any]) -> Draft:
    return control_event(
        tenant=cause.tenant, part=kind.partition(".")[0], kind=kind, key=cause.id, trace_id=cause.trace_id,
        parent_id=cause.id, occurred_at=CLOCK.now(), body=body,
    )  # fmt: skip


def _hop(cause: Draft, seq: int, to: str) -> Draft:
    body = {"event": cause.id, "event_seq": seq, "rule": "default", "rules": "0" * 63, "to": to}
    return _control("hop.made", cause, body)


def _work(spec: RunSpec) -> list[Record]:
    """What a run of two steps writes, from its acquisition to its end."""
    run = spec.run_id
    read, read_hash = asked(StepKind.CHECKPOINT, {"read": "context"})
    call, call_hash = asked(StepKind.MODEL_CALL, {"messages": 1, "digest": run})
    used = {"turns": 1, "input_tokens": 200, "output_tokens": 60, "tokens": 260, "unpriced": 1}
    persona = f'{{"persona":"{PERSONA}","earlier":[]}}'
    answer = f'{{"text":"{ANSWER}","calls":[],"stop":"end","model":"scripted","usage":{{"output_tokens":60}}}}'
    end = {"run": run, "state": "done", "reason": "", "hop": spec.hop, "parent": "", "result": {"text": ANSWER}}
    return [
        record("run.acquired", {"run": run, "worker": derived("worker")}),
        recorded(run, "1", StepKind.CHECKPOINT, 1, persona, unintended(read_hash, read)),
        intended(
            run=run, step="2", kind=StepKind.MODEL_CALL, effect=Effect.MODEL_CALL, attempt=1, hashed=call_hash, request=call
        ),
        recorded(run, "2", StepKind.MODEL_CALL, 1, answer),
        spent(run, "2", (), used, {}),
        record("run.finished", end | {"waited": False}),
    ]  # fmt: skip


def measure(new_place: NewPlace, events: int, rounds: int) -> Figures:
    """All figures of one store."""
    with new_place() as place, new_place() as other, _instance(place) as full, _instance(other) as empty:
        figures = asyncio.run(_in_the_store(new_place, full, place[1], events, rounds))
        starts = [(_start_s(full), _start_s(empty)) for _ in range(rounds)]
    return {
        **figures,
        "start_s": statistics.median(each for each, _ in starts),
        "start_most_s": max(each for each, _ in starts),
        "start_empty_s": statistics.median(each for _, each in starts),
    }


@contextmanager
def _instance(place: tuple[Path, str]) -> Iterator[Hive]:
    """An instance that was started once, so that it has all that a start makes."""
    folder, url = place
    with resting(folder) as hive:
        if url:
            with (hive.root / "rucher.toml").open("a", encoding="utf-8") as config:
                config.write(f'\n[store]\nurl = "{url}"\n')
        _start_s(hive)
        yield hive


async def _in_the_store(new_place: NewPlace, hive: Hive, url: str, events: int, rounds: int) -> Figures:
    place: Place = url or hive.instance.journal
    async with open_store(place, CLOCK, hive.instance.archive) as store:
        sealer = Sealer(store, node_key(hive.instance.node_key, SystemEntropy()), hive.instance.seal_head, CLOCK)
        traces, filled_s = await _filled(store, sealer, events)
        head = store.head
        rates = [await _rates(new_place, store, number) for number in range(rounds)]
        await Talk(store, "last").whole(0)  # what the measures left unrouted is behind the router now
        await sealer.seal()
        trace_ms = [await _read_ms(store, trace) for trace in random.Random(1).sample(traces, TRACES_READ)]  # noqa: S311 - the same traces each time
    return {
        "events": head, "filled_per_s": head / filled_s, "rates": rates,
        "append_fall_percent": _fall_percent(rates, "traces"), "message_fall_percent": _fall_percent(rates, "messages"),
        "step_fall_percent": _fall_percent(rates, "steps"),
        "trace_ms": statistics.median(trace_ms), "trace_most_ms": max(trace_ms),
    }  # fmt: skip


async def _filled(store: JournalStore, sealer: Sealer, events: int) -> tuple[list[str], float]:
    """Bring the journal to so many events, sealed by the way as a daemon does; returns the traces and the seconds it took."""
    talk, count = Talk(store, "fill"), (events - store.head) // EVENTS_A_TRACE
    traces: list[str] = []

    async def one(number: int) -> None:
        traces.append(await talk.whole(number))

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        written = asyncio.Event()
        group.create_task(_seal_until(written, sealer))
        await at_once(WRITERS, Progress("traces written", count).over(one(number) for number in range(count)))
        written.set()
    await sealer.seal()
    return traces, time.perf_counter() - started


async def _seal_until(written: asyncio.Event, sealer: Sealer) -> None:
    while not written.is_set():
        await sealer.seal()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEAL_EVERY_S):
                await written.wait()


async def _rates(new_place: NewPlace, full: JournalStore, number: int) -> Figures:
    """Events a second in the full journal and in a new one, of whole traces, of lone messages and of plain steps."""
    with new_place() as (folder, url):
        async with open_store(url or folder / "rucher.db", CLOCK) as empty:
            await Talk(empty, "warm").whole(0)
            stores = {"full": full, "empty": empty}
            rates: Figures = {}
            for kind in TURN:
                talks = {name: Talk(store, f"{kind} {number}") for name, store in stores.items()}
                for name, rate in (await _in_turns(kind, talks)).items():
                    rates[f"{kind}_{name}"] = rate
            return rates


async def _in_turns(kind: str, talks: Mapping[str, Talk]) -> Mapping[str, float]:
    """Turns are short and many, because what else happens on the machine changes within seconds."""
    size = TURN[kind]
    seconds, events = dict.fromkeys(talks, 0.0), dict.fromkeys(talks, 0)
    for turn in range(TURNS):
        for name, talk in list(talks.items())[:: 1 if turn % 2 else -1]:
            head, started = talk.store.head, time.perf_counter()
            await at_once(APPENDERS, (talk.ways[kind](turn * size + each) for each in range(size)))
            seconds[name] += time.perf_counter() - started
            events[name] += talk.store.head - head
    return {name: events[name] / seconds[name] for name in talks}


def _fall_percent(rates: list[Figures], kind: str) -> float:
    falls: list[float] = [100 * (1 - each[f"{kind}_full"] / each[f"{kind}_empty"]) for each in rates]
    return statistics.median(falls)


async def _read_ms(store: JournalStore, trace: str) -> float:
    started = time.perf_counter()
    events = await store.trace(trace)
    took = (time.perf_counter() - started) * 1000
    if len(events) != EVENTS_A_TRACE:
        raise SystemExit(f"trace {trace} has {len(events)} events")
    return took


def _start_s(hive: Hive) -> float:
    """From the start of `rucher up` to its word that it is up; it is stopped again."""
    command = [sys.executable, "-m", "rucher.cli", "--dir", str(hive.root), "up"]
    started = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            said = process.stdout.readline() if process.stdout else ""
            took = time.monotonic() - started
            process.terminate()
            process.wait(PATIENCE_S)
        finally:
            process.kill()
    if "is up on" not in said or process.returncode:
        raise SystemExit(f"the daemon in {hive.root} did not start, or ended badly; its error is above")
    return took
