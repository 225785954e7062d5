"""`rucher rules explain` and `test`: what the rules make of an event that came, and of events that an owner made up."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from rucher.cli.reading import find_trace, read, spelled
from rucher.cli.rulehistory import taken_from
from rucher.cli.show import clean, document, toned
from rucher.control.steps import short
from rucher.daemon.registrystore import StoredRegistry
from rucher.daemon.settings import find_instance, load_settings
from rucher.instance.text import text_of
from rucher.journal.history import whole_trace
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.router.cases import Result, read_cases, try_cases
from rucher.router.explain import Checked, Explanation, outcome
from rucher.router.explain import explain as explained
from rucher.router.parse import parse
from rucher.router.proposals import versions
from rucher.router.records import rules_trace

_SHORT = 12
_DECIDED = ("hop.made", "route.dropped", "route.held")


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What the router recorded of the event: in words, and by which version of the rules."""

    version: str
    said: Sequence[str]


@click.command(name="explain")
@click.argument("event_id", metavar="EVENT")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def explain(context: click.Context, event_id: str, *, as_json: bool) -> None:
    """Say of each rule, condition by condition, why it did or did not take EVENT, and what was decided.

    EVENT is the id of an event, or the beginning of a trace's id, which stands for its first event. Tried are the rules in the
    instance's file; where the event was decided by others, those are tried too. Roles are those of today.
    """
    instance = find_instance(context.obj)
    rules = taken_from(instance, instance.rules)
    policy = load_settings(instance).instance.unknown_senders

    async def work(store: StoreReader) -> tuple[Event, _Recorded | None, list[Explanation]]:
        event, trace = await _event(store, event_id)
        recorded = _recorded(event, trace)
        registry = await StoredRegistry(store, policy).load()
        told = [explained(event, rules, registry)]
        if recorded and recorded.version != rules.version:
            past = await whole_trace(store, instance.archive, rules_trace(event.tenant))
            text = {one.version: one.text for one in versions(past)}.get(recorded.version)
            if text is not None:
                told.append(explained(event, parse(text, instance.rules), registry))
        return event, recorded, told

    event, recorded, told = read(context.obj, work)
    if as_json:
        document(_as_json(event, recorded, told))
        return
    for line in _lines(event, recorded, told, str(instance.rules)):
        click.echo(line)


@click.command(name="test")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--rules", "rules_file", type=click.Path(path_type=Path), help="Other rules than the instance's.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def test(context: click.Context, file: Path, rules_file: Path | None, *, as_json: bool) -> None:
    """Try the [[case]] tables of FILE: exit code 1 when an event goes elsewhere than its case expects."""
    instance = find_instance(context.obj)
    rules = taken_from(instance, rules_file or instance.rules)
    tenant = load_settings(instance).instance.tenant
    results = try_cases(read_cases(text_of(file, "write [[case]] tables there"), file, tenant), rules)
    failed = [result for result in results if not result.passed]
    if as_json:
        document([_result(result) for result in results])
    else:
        for result in results:
            _show(result)
        click.echo(f"{len(results) - len(failed)} of {len(results)} go where they should")
    context.exit(1 if failed else 0)


async def _event(store: StoreReader, given: str) -> tuple[Event, Sequence[Event]]:
    event = await store.event_anywhere(spelled(given))
    trace = await store.trace(event.trace_id if event else await find_trace(store, given))
    if event is None:
        event = next((one for one in trace if one.source != CONTROL_PLANE), None)
    if event is None or event.source == CONTROL_PLANE:
        raise BadInput(f"{given[:60]} is a record of the control plane, which is never routed; name what it is about")
    return event, trace


def _recorded(event: Event, trace: Sequence[Event]) -> _Recorded | None:
    made = [one for one in trace if one.type in _DECIDED and one.body.get("event") == event.id]
    if not made:
        return None
    return _Recorded(made[-1].body.get("rules", ""), [_said(one) for one in made])


def _said(made: Event) -> str:
    body = made.body
    if made.type != "hop.made":
        return f"{made.type.removeprefix('route.')}: {body['reason']}"
    return f"{body['to']}{' as context' if body.get('mode') == 'context' else ''} by rule {body['rule']}"


def _lines(event: Event, recorded: _Recorded | None, told: Sequence[Explanation], path: str) -> Iterator[str]:
    text = event.body.get("text")
    words = f"  {short(text)}" if isinstance(text, str) else ""
    yield clean(f"event {event.id}  {event.subject}  from {event.principal} ({event.trust.word}){words}")
    if recorded:
        yield clean(f"recorded, by version {recorded.version[:_SHORT]}: {'; '.join(recorded.said)}")
    else:
        yield "recorded: nothing yet"
    for number, one in enumerate(told):
        yield ""
        where = f"{path}, version" if number == 0 else "the version that decided,"
        yield clean(f"{where} {one.version[:_SHORT]}")
        yield from _explanation(one)


def _explanation(told: Explanation) -> Iterator[str]:
    if told.barred:
        yield clean(f"  no rule is asked: {told.barred}")
    width = max((len(rule.rule) for rule in told.rules), default=0)
    for rule in told.rules if not told.barred else ():
        head = clean(f"{rule.rule:<{width}}  line {rule.line:<4}  {rule.said}")
        yield f"  {toned(head, 'ok') if rule.fired else head}"
        yield from (clean(f"      {_condition(one)}") for one in rule.conditions)
    for said in outcome(told.decision):
        yield clean(f"  -> {said}")


def _condition(one: Checked) -> str:
    verdict = f"fault: {one.fault}" if one.fault else "yes" if one.holds else "no"
    return f"{verdict:<4} {one.key} = {one.wanted}   found: {one.found}"


def _as_json(event: Event, recorded: _Recorded | None, told: Sequence[Explanation]) -> dict[str, object]:
    return {
        "event": event.id,
        "recorded": asdict(recorded) if recorded else None,
        "explanations": [
            {
                "version": one.version,
                "barred": one.barred,
                "rules": [asdict(rule) for rule in one.rules],
                "decision": outcome(one.decision),
            }
            for one in told
        ],
    }


def _result(result: Result) -> dict[str, object]:
    return {
        "name": result.case.name, "passed": result.passed, "expected": result.expected, "found": result.found,
        "why": outcome(result.decision),
    }  # fmt: skip


def _show(result: Result) -> None:
    click.echo(clean(f"{'ok  ' if result.passed else 'FAIL'}  {result.case.name}"))
    if result.passed:
        return
    click.echo(clean(f"      expected  {', '.join(result.expected)}"))
    click.echo(clean(f"      found     {', '.join(result.found)}"))
    for said in outcome(result.decision):
        click.echo(clean(f"      because   {said}"))
