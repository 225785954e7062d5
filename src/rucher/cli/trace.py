"""`rucher trace`: all that one message caused, as a tree of hops with times, as a graph, or with the reasons of each hop."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from rucher.cli.drawing import as_json, drawn, reason_row, reasons
from rucher.cli.reading import LAST_SEQ, read, trace_of
from rucher.cli.show import clean, document
from rucher.control.dot import dot
from rucher.control.outline import WHOLE, subtree
from rucher.control.trees import tree
from rucher.control.why import RulesText, versions_in, why
from rucher.daemon.settings import find_instance
from rucher.instance.layout import Instance
from rucher.journal.history import whole_trace
from rucher.journal.selection import Wanted, newest
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event
from rucher.protocol.tomltext import decode
from rucher.router.parse import parse

_APPLIED = Wanted(subject="ev.*.rucher.rules.applied")
_VERSIONS_AT_ONCE = 20
Texts = Mapping[str, RulesText]


@click.command(name="trace")
@click.argument("trace_id", metavar="TRACE_ID")
@click.option(
    "--json", "as_document", is_flag=True, help="Print one JSON object: the nodes, and the events they tell of."
)
@click.option("--dot", "as_dot", is_flag=True, help="Print a graph for Graphviz: events, hops, runs and deliveries.")
@click.option("--why", "with_reasons", is_flag=True, help="Say which rule decided each hop, and where it stands.")
@click.option(
    "--under", type=click.IntRange(1, LAST_SEQ), metavar="SEQ", help="Only what this event is part of and caused."
)
@click.option("--all", "whole", is_flag=True, help="Draw a large trace whole.")
@click.pass_context
def trace(  # noqa: PLR0913 - the options of a command
    context: click.Context, trace_id: str, *, as_document: bool, as_dot: bool, with_reasons: bool, under: int | None,
    whole: bool,
) -> None:  # fmt: skip
    """Draw all that one message caused: rules, runs, steps, answers and deliveries, with times.

    TRACE_ID may be the beginning of a trace's id, or the whole id of an event in it.
    """
    if as_dot and (as_document or with_reasons):
        raise BadInput("--dot is a form of its own; leave --json or --why out")
    if with_reasons and under:
        raise BadInput("--why tells of the whole trace; leave --under out")
    instance = find_instance(context.obj)

    async def work(store: StoreReader) -> tuple[Sequence[Event], Texts]:
        events = await whole_trace(store, instance.archive, await trace_of(store, instance.archive, trace_id))
        return events, await _texts(store, instance, versions_in(events)) if with_reasons else {}

    events, texts = read(context.obj, work)
    if with_reasons:
        told = list(why(events, texts))
        if as_document:
            document({"trace_id": events[0].trace_id, "decisions": [reason_row(one) for one in told]})
            return
        lines = reasons(told)
    elif as_document:
        document(as_json(events, under or 0))
        return
    elif as_dot:
        roots = tree(events)
        lines = dot(events[0].trace_id, subtree(roots, under) if under else roots, clean)
    else:
        lines = drawn(events, colours=True, cut=WHOLE if whole else None, under=under or 0)
    for text in lines:
        click.echo(text)


async def _texts(store: StoreReader, instance: Instance, versions: set[str]) -> Texts:
    """The rules files of these versions: as the journal kept them, else as the file is now where that is the same one."""
    texts: dict[str, RulesText] = {}
    up_to = LAST_SEQ - 1
    while versions - texts.keys() and (
        applied := await newest(store, instance.archive, _VERSIONS_AT_ONCE, _APPLIED, up_to)
    ):
        for event in applied:
            body = event.body
            if body["version"] in versions and "text" in body:
                texts[body["version"]] = RulesText(str(body.get("path", instance.rules.name)), body["text"])
        up_to = applied[0].seq - 1
    if versions - texts.keys() and (now := _rules_of_now(instance.rules)):
        version, text = now
        texts.setdefault(version, text)
    return texts


def _rules_of_now(path: Path) -> tuple[str, RulesText] | None:
    """None when there is no rules file that can be read: then its versions are simply not known."""
    try:
        text = decode(path.read_bytes(), path)
        return parse(text, path).version, RulesText(path.name, text)
    except (OSError, BadInput):
        return None
