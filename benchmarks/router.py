"""How many decisions a second one core takes, how many events a second are routed on SQLite, how long a reload takes.

What one core does is measured in its own time; what is written to a disk, by the clock on the wall.

`python -m benchmarks.router` measures the bars at full size, which takes a minute; `make bench` measures the first one only.
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rucher.daemon.registrystore import StoredRegistry
from rucher.journal.selection import Wanted, newest
from rucher.journal.store import JournalStore, open_store
from rucher.protocol.clock import SystemClock
from rucher.protocol.events import Draft, Event, Trust, committed, message
from rucher.protocol.livefile import Reloaded
from rucher.router.decide import decide
from rucher.router.parse import parse
from rucher.router.registry import Registry
from rucher.router.reload import RulesFile
from rucher.router.router import Router

_KINDS = 5
_CHUNK = 10_000
_SENDERS = 64
DECISIONS_PER_S = 20_000
ROUTED_PER_S = 3_000
RELOAD_MS = 100
MOST_GROWTH_KB = 4 * 1024
"""What the memory of a million decisions may grow by after the first tenth of them."""


@dataclass(frozen=True, slots=True)
class RouterFigures:
    """What was measured: decisions a second, milliseconds to read the file (the best of three), and growth of memory."""

    rules: int
    events: int
    decisions_per_s: float
    parse_ms: float
    growth_kb: int


def measure(rules: int = 1000, events: int = 20_000) -> RouterFigures:
    """Decide `events` different events by a file of so many rules, in five kinds that real files have."""
    text = rules_text(rules)
    parse_ms = min(_parse_ms(text) for _ in range(3))
    file, registry = parse(text, "rules.toml"), Registry()
    took, after_a_tenth = 0.0, 0
    for begin in range(0, events, _CHUNK):
        stream = [_event(number, rules) for number in range(begin, min(begin + _CHUNK, events))]
        started = time.process_time()
        for event in stream:
            decide(event, file, registry)
        took += time.process_time() - started
        if begin <= events // 10:
            after_a_tenth = _memory_kb()
    return RouterFigures(rules, events, events / took, parse_ms, _memory_kb() - after_a_tenth)


def reload_ms(rules: int = 1000) -> float:
    """Milliseconds from a changed file to the new rules in force, every expression of it new (the best of three)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.toml"
        path.write_text(rules_text(rules))
        file = RulesFile(path, lambda: _destinations(rules))
        return min(_reload_ms(path, file, rules_text(rules, f"time{number}")) for number in range(3))


async def routed_per_s(events: int = 30_000, rules: int = 1000) -> tuple[float, float]:
    """Events a second that are appended, decided and whose hops are committed, on a SQLite store, while they arrive.

    And microseconds of processor time that each of them took.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.toml"
        path.write_text(rules_text(rules))
        clock = SystemClock()
        async with open_store(Path(folder) / "rucher.db", clock) as store:
            file = RulesFile(path, lambda: _destinations(rules))
            router = Router(store, clock, file, StoredRegistry(store, "public"), "home", 0)
            drafts = (_message(number, rules) for number in range(events))
            started, used = time.perf_counter(), time.process_time()
            async with asyncio.TaskGroup() as group:
                running = group.create_task(router.run())
                async with asyncio.TaskGroup() as senders:
                    for _ in range(_SENDERS):
                        senders.create_task(_send(store, drafts))
                last = await _last_message(store)
                seen = 0
                while await store.cursor("router") < last:
                    seen = await store.refolded(seen)
                took, used = time.perf_counter() - started, time.process_time() - used
                running.cancel()
            return events / took, used / events * 1e6


def main() -> int:
    """Measure all bars, print, judge."""
    decided = measure(events=1_000_000)
    reloaded = reload_ms()
    routed, used_us = asyncio.run(routed_per_s())
    print(f"decisions: {decided.decisions_per_s:,.0f}/s over {decided.events:,} events and {decided.rules} rules")
    print(f"memory: grew {decided.growth_kb} KB after the first tenth of them")
    print(
        f"reload of {decided.rules} rules: {reloaded:.0f} ms (parsing alone, same file again: {decided.parse_ms:.0f} ms)"
    )
    print(f"append, decide and hop on SQLite: {routed:,.0f} events/s, {used_us:.0f} us of processor time each")
    missed = [
        bar
        for bar, ok in (
            (f"{DECISIONS_PER_S} decisions/s", decided.decisions_per_s >= DECISIONS_PER_S),
            (f"memory grows less than {MOST_GROWTH_KB} KB", decided.growth_kb < MOST_GROWTH_KB),
            (f"reload in less than {RELOAD_MS} ms", reloaded < RELOAD_MS),
            (f"{ROUTED_PER_S} events/s routed", routed >= ROUTED_PER_S),
        )
        if not ok
    ]
    for bar in missed:
        print(f"MISSED: {bar}", file=sys.stderr)
    return 1 if missed else 0


def rules_text(count: int, word: str = "note") -> str:
    """A rules file with this many rules, each expression in it another one."""
    kinds = (
        'match = {{ subject = "ev.*.hook{0}.>" }}\nto = "agent:a{0}"\n',
        'match = {{ source = "cli", group = "room-{0}", text = "(?i)^{1}{0}:" }}\nto = "agent:a{0}"\n',
        'match = {{ principal = "user:chat{0}:*", trust = "member" }}\nto = "agent:a{0}"\ncontinue = true\n',
        'match = {{ addressed_to = "agent:a{0}" }}\nto = "agent:a{0}"\n',
        'match = {{ addressed_to = "group:chat{0}:*" }}\nto = "surface:chat{0}"\n',
    )
    rules = (f'\n[[rule]]\nid = "r{number}"\n' + kinds[number % _KINDS].format(number, word) for number in range(count))
    return 'default = "agent:a0"\n' + "".join(rules)


def _event(number: int, rules: int) -> Event:
    return committed(_message(number, rules), number + 1, number)


def _message(number: int, rules: int) -> Draft:
    rule = (number * 7919) % rules
    addresses = {3: f"agent:a{rule}", 4: f"group:chat{rule}:main"}
    return message(
        tenant="home",
        source=f"hook{rule}" if rule % _KINDS == 0 else "cli",
        key=str(number),
        principal=f"user:chat{rule}:ana",
        trust=Trust.MEMBER,
        text=f"note{rule}: buy milk" if number % 2 else "hello",
        group=f"room-{rule}",
        occurred_at=number,
        addressed_to=addresses.get(rule % _KINDS),
    )


async def _send(store: JournalStore, drafts: Iterator[Draft]) -> None:
    """Append messages one commit after the other, as one of many senders does."""
    for draft in drafts:
        await store.append(draft)


async def _last_message(store: JournalStore) -> int:
    (last,) = await newest(store, Path(), 1, Wanted("ev.home.*.message"))
    return last.seq


def _destinations(rules: int) -> frozenset[str]:
    return frozenset(f"{kind}{number}" for kind in ("agent:a", "surface:chat") for number in range(rules))


def _reload_ms(path: Path, file: RulesFile, text: str) -> float:
    path.write_text(text)
    started = time.process_time()
    taken = file.check()
    took = (time.process_time() - started) * 1000
    if isinstance(taken, Reloaded):
        return took
    raise AssertionError(f"the file was not taken: {taken}")


def _memory_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _parse_ms(text: str) -> float:
    started = time.process_time()
    parse(text, "rules.toml")
    return (time.process_time() - started) * 1000


if __name__ == "__main__":
    sys.exit(main())
