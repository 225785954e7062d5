"""`rucher send`: a message into the instance, and its answer if one waits for it."""

import sys
from collections.abc import Mapping
from typing import Any

import click

from rucher.cli.client import Daemon
from rucher.cli.show import clean, document, plain
from rucher.daemon.settings import find_instance

EXIT = {
    "answered": 0,
    "accepted": 0,
    "failed": 1,
    "waiting": 1,
    "undelivered": 1,
    "dropped": 1,
    "pending": 1,
    "stopped": 2,
}


@click.command(name="send")
@click.argument("text")
@click.option("--agent", help="Address this agent, instead of whom the rules choose.")
@click.option("--group", default="main", show_default=True, help="The room it is said in.")
@click.option("--thread", default="", help="A thread of that room, with a memory of its own.")
@click.option("--key", help="An idempotency key: the same key again is the same message.")
@click.option("--wait", is_flag=True, help="Wait for the answer and print it.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def send(  # noqa: PLR0913 - one parameter an option
    context: click.Context, text: str, agent: str | None, group: str, thread: str, key: str | None, *, wait: bool,
    timeout: float, as_json: bool,
) -> None:  # fmt: skip
    """Send TEXT (or - for standard input) to the instance's agents."""
    daemon = Daemon(find_instance(context.obj))
    message = {
        "text": sys.stdin.read() if text == "-" else text,
        "agent": agent,
        "group": group,
        "thread": thread,
        "key": key,
    }
    accepted = daemon.call("POST", "/messages", json=message)
    result = {"event_id": accepted["event_id"], "trace_id": accepted["trace_id"], "answer": None, "status": "accepted"}
    if wait:
        result |= daemon.outcome(accepted["event_id"], timeout)
    if as_json:
        document(result)
    else:
        _tell(result)
    context.exit(EXIT[str(result["status"])])


def _tell(result: Mapping[str, Any]) -> None:
    match result["status"]:
        case "accepted":
            click.echo(f"accepted as {result['event_id']}; follow it with: rucher trace {result['trace_id']}")
        case "answered":
            plain(str(result["answer"]))
        case "pending":
            click.echo(f"no answer yet; it goes on, look with: rucher trace {result['trace_id']}", err=True)
        case "failed" | "waiting" as status:
            plain(str(result["answer"]))
            click.echo(f"({status}; see: rucher trace {result['trace_id']})", err=True)
        case status:
            why = clean(str(result["answer"]))
            click.echo(f"rucher: {status}: {why}; it is kept, see: rucher trace {result['trace_id']}", err=True)
