"""`rucher send`: a message into the instance, and its answer if one waits for it."""

import math
import sys
from collections.abc import Mapping
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.show import clean, document, plain
from rucher.daemon.settings import find_instance
from rucher.protocol.errors import BadInput, Retryable, RucherError
from rucher.protocol.events import DEFAULT_GROUP
from rucher.surfaces.ingress import MOST_TEXT_BYTES

EXIT = {
    "answered": 0,
    "accepted": 0,
    "silent": 0,
    "failed": 1,
    "waiting": 1,
    "undelivered": 1,
    "dropped": 1,
    "pending": 1,
    "stopped": 2,
}

LONGEST_WAIT_S = 7 * 86_400.0


def _span(_context: click.Context, _option: click.Parameter, value: float) -> float:
    if not (math.isfinite(value) and 0 <= value <= LONGEST_WAIT_S):
        raise BadInput(f"--timeout {value} is no time to wait; give seconds from 0 to {LONGEST_WAIT_S:.0f}")
    return value


@click.command(name="send")
@click.argument("text")
@click.option("--agent", help="Address this agent, instead of whom the rules choose.")
@click.option("--group", default=DEFAULT_GROUP, show_default=True, help="The room it is said in.")
@click.option("--thread", default="", help="A thread of that room, with a memory of its own.")
@click.option("--key", help="An idempotency key: the same key again is the same message.")
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@click.option("--timeout", default=600.0, show_default=True, callback=_span, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def send(  # noqa: PLR0913 - one parameter an option
    context: click.Context, text: str, agent: str | None, group: str, thread: str, key: str | None, *, wait: bool,
    timeout: float, as_json: bool,
) -> None:  # fmt: skip
    """Send TEXT (or - for standard input) to the instance's agents."""
    message = {"text": _text(text), "agent": agent, "group": group, "thread": thread, "key": key}
    with Daemon(find_instance(context.obj)) as daemon:
        event_id, trace_id = daemon.accept(message)
        result = {"event_id": event_id, "trace_id": trace_id, "answer": None, "status": "accepted"}
        if wait:
            result |= _awaited(daemon, event_id, timeout)
    if as_json:
        document(result)
    else:
        _tell(result)
    context.exit(EXIT.get(str(result["status"]), 1))


def _text(given: str) -> str:
    if given != "-":
        return given
    if sys.stdin is None:
        raise BadInput("standard input is closed; give the text as an argument")
    raw = sys.stdin.buffer.read(MOST_TEXT_BYTES + 1)
    if len(raw) > MOST_TEXT_BYTES:
        raise BadInput(f"standard input has more than {MOST_TEXT_BYTES} bytes; put the rest in a file")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"standard input is not UTF-8 text at byte {error.start}; send it as UTF-8") from error


def _awaited(daemon: Daemon, event_id: str, timeout_s: float) -> Mapping[str, Any]:
    try:
        return daemon.outcome(event_id, timeout_s)
    except RucherError as error:
        raise Retryable(f"accepted as {event_id} and kept, but its answer cannot be waited for: {error}") from error


def _tell(result: Mapping[str, Any]) -> None:
    trace_id, why = result["trace_id"], clean(str(result["answer"]))
    match result["status"]:
        case "accepted":
            click.echo(f"accepted as {result['event_id']}; follow it with: rucher trace {trace_id}")
        case "answered":
            plain(str(result["answer"]))
        case "silent":
            click.echo(f"{why}; see: rucher trace {trace_id}", err=True)
        case "pending":
            click.echo(f"no answer yet; it goes on, look with: rucher trace {trace_id}", err=True)
        case "failed" | "waiting" as status:
            plain(str(result["answer"]))
            click.echo(f"({status}; see: rucher trace {trace_id})", err=True)
        case "stopped":
            kept = "the message is kept and answered once that is mended"
            click.echo(f"rucher: stopped: {why}; {kept}, see: rucher trace {trace_id}", err=True)
        case status:
            click.echo(f"rucher: {clean(str(status))}: {why}; see: rucher trace {trace_id}", err=True)
