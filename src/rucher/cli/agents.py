"""`rucher agents`: who works here: files, tools, the rules that lead to each, their sessions and last runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from rucher.cli.reading import read
from rucher.cli.show import document, iso, plain, short_id, table
from rucher.control.runstates import shown
from rucher.daemon.offers import offered
from rucher.daemon.settings import find_instance, load_settings, store_place
from rucher.instance.agents import AgentFile, agent_files, load_agents
from rucher.instance.layout import Instance
from rucher.instance.text import text_of
from rucher.journal.store import StoreReader
from rucher.protocol.errors import BadInput
from rucher.router.parse import parse
from rucher.router.rules import DEFAULT_RULE

COLUMNS = ("AGENT", "DESCRIPTION", "TOOLS", "RULES", "SESSIONS", "LAST RUN")
_MOST_SESSIONS = 1000
_IDLE: Mapping[str, Any] = {"sessions": [], "last_run": None}
"""What an agent does in an instance that was never started."""
Row = Mapping[str, Any]


@click.group(name="agents")
def agents() -> None:
    """List the agents of this instance."""


@agents.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
@click.pass_context
def listed(context: click.Context, *, as_json: bool) -> None:
    """List the agents, with the rules that lead to each."""
    found = _gathered(context.obj, "")
    if as_json:
        document(found)
        return
    table(COLUMNS, [_cells(agent) for agent in found])


@agents.command(name="show")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def show(context: click.Context, name: str, *, as_json: bool) -> None:
    """Show all about the agent NAME."""
    (agent,) = _gathered(context.obj, name)
    if as_json:
        document(agent)
        return
    plain(f"agent {agent['name']}: {agent['description']}")
    plain(f"  file: {agent['file']}")
    plain(
        f"  tools: {', '.join(agent['tools']) or 'none'}; sandbox level {agent['sandbox']}; priority {agent['priority']}"
    )
    plain(f"  rules that lead to it: {', '.join(agent['rules']) or 'none'}")
    for session in agent["sessions"]:
        where = f"group {session['room'] or 'all'}, thread {session['thread'] or '-'}"
        plain(f"  session {session['session_id']}  {where}  {session['state']}")
    if last := agent["last_run"]:
        plain(f"  last run {last['run_id']}  {last['state']}  {last['created_at']}")


def _gathered(given: Path | None, name: str) -> list[dict[str, Any]]:
    """All about the agent of this name, or about every one where that is empty."""
    instance = find_instance(given)
    known = load_agents(instance.agents)
    if name and name not in known:
        raise BadInput(f"there is no agent {name[:60]!r}; see `rucher agents list`")
    files, rules = agent_files(instance.agents), _rules_to(instance)
    chosen = [known[name]] if name else [known[each] for each in sorted(known)]

    async def work(store: StoreReader) -> list[dict[str, Any]]:
        return [await _activity(store, agent.name) for agent in chosen]

    place = store_place(instance, load_settings(instance))
    unused = isinstance(place, Path) and not place.exists()
    activities = [_IDLE for _ in chosen] if unused else read(given, work)
    return [
        _facts(agent, files[agent.name], rules.get(f"agent:{agent.name}", [])) | dict(activity)
        for agent, activity in zip(chosen, activities, strict=True)
    ]


def _rules_to(instance: Instance) -> Mapping[str, list[str]]:
    """The ids of the rules in the file that lead to each destination, in order."""
    rules = parse(text_of(instance.rules, "put a backup of the file in its place"), instance.rules)
    found: dict[str, list[str]] = {}
    for rule in rules.rules:
        for to in rule.to:
            found.setdefault(to, []).append(rule.id)
    found.setdefault(rules.default, []).append(DEFAULT_RULE)
    return found


async def _activity(store: StoreReader, agent: str) -> dict[str, Any]:
    sessions = await store.rows("sessions.at_work", agent, "", _MOST_SESSIONS)
    last = await store.rows("run.at_seq", sessions[0]["last_run_seq"]) if sessions else []
    names = ("session_id", "room", "thread", "state", "reason", "runs")
    return {"sessions": [{name: row[name] for name in names} for row in sessions], "last_run": _run(last)}


def _run(rows: Sequence[Row]) -> dict[str, Any] | None:
    if not rows:
        return None
    return {"run_id": rows[0]["run_id"], "state": shown(rows[0]), "created_at": iso(rows[0]["created_at"])}


def _facts(agent: AgentFile, file: Path, rules: Sequence[str]) -> dict[str, Any]:
    return {
        "name": agent.name, "description": agent.description, "file": str(file), "model": agent.model,
        "tools": [spec.name for spec in offered(agent)], "sandbox": agent.sandbox, "priority": agent.priority,
        "rules": list(rules),
    }  # fmt: skip


def _cells(agent: Row) -> tuple[str, ...]:
    last = agent["last_run"]
    run = f"{short_id(last['run_id'])} {last['state']}" if last else "-"
    counts = ", ".join(agent["tools"]) or "-", ", ".join(agent["rules"]) or "-", str(len(agent["sessions"]))
    return agent["name"], agent["description"], *counts, run
