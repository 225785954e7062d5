"""How many decisions a second one core takes, and how long a rules file takes to read."""

import time
from dataclasses import dataclass

from rucher.protocol.events import Event, Trust, committed, message
from rucher.router.decide import decide
from rucher.router.parse import parse
from rucher.router.registry import Registry

_KINDS = 5


@dataclass(frozen=True, slots=True)
class RouterFigures:
    """What was measured: decisions a second, and milliseconds to read the file (the best of three)."""

    rules: int
    events: int
    decisions_per_s: float
    parse_ms: float


def measure(rules: int = 1000, events: int = 20_000) -> RouterFigures:
    """Decide `events` different events by a file of so many rules, in five kinds that real files have."""
    text = rules_text(rules)
    parse_ms = min(_parse_ms(text) for _ in range(3))
    file = parse(text, "rules.toml")
    stream = [_event(number, rules) for number in range(events)]
    registry = Registry()
    started = time.perf_counter()
    for event in stream:
        decide(event, file, registry)
    took = time.perf_counter() - started
    return RouterFigures(rules, events, events / took, parse_ms)


def rules_text(count: int) -> str:
    """A rules file with this many rules."""
    kinds = (
        'match = {{ subject = "ev.*.hook{0}.>" }}\nto = "agent:a{0}"\n',
        'match = {{ source = "cli", group = "room-{0}", text = "(?i)^note:" }}\nto = "agent:a{0}"\n',
        'match = {{ principal = "user:chat{0}:*", trust = "member" }}\nto = "agent:a{0}"\ncontinue = true\n',
        'match = {{ addressed_to = "agent:a{0}" }}\nto = "agent:a{0}"\n',
        'match = {{ addressed_to = "group:chat{0}:*" }}\nto = "surface:chat{0}"\n',
    )
    rules = (f'\n[[rule]]\nid = "r{number}"\n' + kinds[number % _KINDS].format(number) for number in range(count))
    return 'default = "agent:a0"\n' + "".join(rules)


def _event(number: int, rules: int) -> Event:
    rule = (number * 7919) % rules
    addresses = {3: f"agent:a{rule}", 4: f"group:chat{rule}:main"}
    said = message(
        tenant="home",
        source=f"hook{rule}" if rule % _KINDS == 0 else "cli",
        key=str(number),
        principal=f"user:chat{rule}:ana",
        trust=Trust.MEMBER,
        text="note: buy milk" if number % 2 else "hello",
        group=f"room-{rule}",
        occurred_at=number,
        addressed_to=addresses.get(rule % _KINDS),
    )
    return committed(said, number + 1, number)


def _parse_ms(text: str) -> float:
    started = time.perf_counter()
    parse(text, "rules.toml")
    return (time.perf_counter() - started) * 1000
