"""The conditions of a rule on fields of an event's body: which values a dotted path finds, and what is asked of them. Pure.

Called by `rucher.router.parse`. A path is looked for in the body, and where it is absent there in the body's `payload`, which
is what a webhook brought. A list on the way or at its end stands for each of its items: one that fits is enough.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.protocol.positions import KeyPath
from rucher.protocol.tomltext import Kind, Reading
from rucher.router.conditions import BODY, Condition
from rucher.router.expressions import expression

Scalar = str | bool | int | float
Judge = Callable[[Any, int], bool]
"""Whether a value fits, one of so many that are tried."""
MOST_TRIED = 40
"""Items of a list that a test is tried on."""

TABLE = Kind(lambda value: isinstance(value, dict), 'a table, as in match = { source = "cli" }')
ABSENT, PRESENT = "is absent", "is there"


def body_conditions(table: object, at: KeyPath, reading: Reading) -> Iterator[Condition]:
    """The conditions that a table `body` of a match says; what is wrong with it goes to `reading`."""
    if not reading.holds(table, TABLE, at) or not isinstance(table, dict):
        return
    if not table:
        reading.complain(at, "body asks for nothing; leave the key out")
    yield from _inside(table, (), at, reading)


def values_at(event: Event, path: str) -> Sequence[Any]:
    """The values that a dotted path finds in an event; none where there is none. A JSON null is none."""
    return list(_items(_nodes(event.body, path.split("."))))


def _inside(table: Mapping[str, Any], above: tuple[str, ...], at: KeyPath, reading: Reading) -> Iterator[Condition]:
    for key, wanted in table.items():
        here = (*at, key)
        parts = (*above, *key.split("."))
        if not all(parts):
            reading.complain(here, f"{key!r} has an empty part; write names with single dots between them")
        elif isinstance(wanted, dict) and wanted and not wanted.keys() & _TESTS.keys():
            yield from _inside(wanted, parts, here, reading)
        else:
            yield from _condition(parts, wanted, here, reading)


def _condition(parts: tuple[str, ...], wanted: object, at: KeyPath, reading: Reading) -> Iterator[Condition]:
    key = f"{BODY}.{'.'.join(parts)}"
    try:
        if isinstance(wanted, dict):
            yield _tested(key, parts, wanted, at, reading)
        else:
            yield _equal(key, parts, wanted)
    except BadInput as error:
        reading.complain(at, str(error))


def _equal(key: str, parts: tuple[str, ...], wanted: object) -> Condition:
    choices = wanted if isinstance(wanted, list) else [wanted]
    if not choices or not all(_is_scalar(choice) for choice in choices):
        raise BadInput(f"{key} must be text, a number, true, false, a list of such, or a table as in {{ above = 3 }}")
    among = {(isinstance(choice, bool), choice) for choice in choices}

    def holds(event: Event) -> bool:
        found = _items(_nodes(event.body, parts))
        return any((isinstance(one, bool), one) in among for one in found if isinstance(one, Scalar))

    return Condition(key, json.dumps(wanted, ensure_ascii=False), holds)


def _tested(key: str, parts: tuple[str, ...], tests: Mapping[str, Any], at: KeyPath, reading: Reading) -> Condition:
    reading.only_keys(tests, _TESTS, at)
    if not tests:
        raise BadInput(f"{key} asks for nothing; leave it out, or write {{ exists = true }}")
    if "exists" in tests:
        return _existence(key, parts, tests)
    judges = [_TESTS[word](f"{key}.{word}", bound) for word, bound in tests.items() if word in _TESTS]

    def holds(event: Event) -> bool:
        found = list(islice(_items(_nodes(event.body, parts)), MOST_TRIED))
        return any(all(judge(one, len(found)) for judge in judges) for one in found)

    words = [f"{word.replace('_', ' ')} {json.dumps(bound, ensure_ascii=False)}" for word, bound in tests.items()]
    return Condition(key, " and ".join(words), holds)


def _existence(key: str, parts: tuple[str, ...], tests: Mapping[str, Any]) -> Condition:
    wanted = tests["exists"]
    if len(tests) > 1 or not isinstance(wanted, bool):
        raise BadInput(
            f"{key}: exists stands alone and is true or false; what another test asks of is there in any case"
        )
    return Condition(key, PRESENT if wanted else ABSENT, lambda event: bool(_nodes(event.body, parts)) is wanted)


def _bound(compare: Callable[[float, float], bool]) -> Callable[[str, Any], Judge]:
    def judge_for(key: str, bound: object) -> Judge:
        if not _is_number(bound) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise BadInput(f"{key} must be a number")
        return lambda found, _: _is_number(found) and compare(found, bound)

    return judge_for


def _matches(key: str, source: object) -> Judge:
    if not isinstance(source, str) or not source:
        raise BadInput(f"{key} must be a regular expression in quotes")
    wanted = expression(key, source)
    return lambda found, among: isinstance(found, str) and wanted.found_in(found, among)


def _never(key: str, _bound: object) -> Judge:
    raise BadInput(f"{key} stands alone")


_TESTS: Mapping[str, Callable[[str, Any], Judge]] = {
    "above": _bound(lambda found, bound: found > bound),
    "below": _bound(lambda found, bound: found < bound),
    "at_least": _bound(lambda found, bound: found >= bound),
    "at_most": _bound(lambda found, bound: found <= bound),
    "matches": _matches,
    "exists": _never,
}


def _nodes(body: Mapping[str, Any], parts: Sequence[str]) -> Sequence[Any]:
    return _walk(body, parts) or _walk(body.get("payload"), parts)


def _walk(start: object, parts: Sequence[str]) -> list[Any]:
    nodes: list[Any] = [start]
    for part in parts:
        nodes = [inner for node in _items(nodes) if isinstance(node, Mapping) and (inner := node.get(part)) is not None]
        if not nodes:
            break
    return nodes


def _items(nodes: Iterable[Any]) -> Iterator[Any]:
    """Each node, and for a list each of its items, however deep."""
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += reversed(node)
        elif node is not None:
            yield node


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
