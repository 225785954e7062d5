"""Adds the rules that every agent and surface needs, once, under the owner's own; no byte of theirs changes. Pure.

Called at start and when an instance is made, before the file is parsed.
"""

from collections.abc import Collection, Iterator
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.tomltext import FileName, load


def ensure_generated(
    text: str, agents: Collection[str], surfaces: Collection[str], path: FileName = "rules.toml"
) -> str:
    """`text`, followed by the generated rules it lacks; raises BadInput when it is not TOML or lists rules inline.

    An agent's rule is how what is addressed to it reaches it, a surface's how answers reach its groups. One that stands
    in the text already, in whatever form, is left as it is.
    """
    present = set(_ids(load(text, path)))
    missing = [rule for rule_id, rule in _wanted(agents, surfaces) if rule_id not in present]
    if not missing:
        return text
    newline = "\r\n" if "\r\n" in text else "\n"
    ended = not text or text.endswith("\n")
    grown = text + ("" if ended else newline) + "".join(missing).replace("\n", newline)
    try:
        load(grown, path)
    except BadInput as error:
        raise BadInput(f"{path}: rules cannot be added to rule = [...]; write each as a [[rule]] table") from error
    return grown


def _wanted(agents: Collection[str], surfaces: Collection[str]) -> Iterator[tuple[str, str]]:
    for agent in sorted(set(agents)):
        yield f"r-{agent}-addressed", _rule(f"r-{agent}-addressed", f"agent:{agent}", f"agent:{agent}")
    for surface in sorted(set(surfaces)):
        yield f"r-{surface}-reply", _rule(f"r-{surface}-reply", f"group:{surface}:*", f"surface:{surface}")


def _rule(rule_id: str, addressed_to: str, to: str) -> str:
    return (
        f'\n[[rule]]\nid = "{rule_id}"\nmatch = {{ addressed_to = "{addressed_to}" }}\nto = "{to}"\ngenerated = true\n'
    )


def _ids(document: dict[str, Any]) -> Iterator[str]:
    tables = document.get("rule", [])
    if isinstance(tables, list):
        yield from (table["id"] for table in tables if isinstance(table, dict) and isinstance(table.get("id"), str))
