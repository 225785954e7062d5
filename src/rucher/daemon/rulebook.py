"""The rules of an instance: at start the generated ones that it lacks are added; and what they may name, and know of people.

Called by the daemon and by commands that read the rules as the daemon would.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from rucher.instance.text import bytes_of
from rucher.protocol.livefile import replace_file
from rucher.protocol.tomltext import decode
from rucher.router.generated import ensure_generated
from rucher.router.reload import RulesFile

SURFACES = ("cli",)


def destinations(agents: Collection[str]) -> set[str]:
    """Everything that a rule of this instance may name."""
    return {f"agent:{name}" for name in agents} | {f"surface:{name}" for name in SURFACES}


def open_rules(path: Path, agents: Collection[str], outside: Callable[[], Collection[str]] = frozenset) -> RulesFile:
    """The rules file, completed; raises BadInput, with the file as it was, when it cannot be used.

    `outside` gives the destinations of `destinations.toml` that there are now.
    """
    text = decode(bytes_of(path, "put a backup of the file in its place"), path)
    grown = ensure_generated(text, agents, SURFACES, path)
    if grown != text:
        replace_file(path, grown.encode())
    return RulesFile(path, lambda: destinations(agents) | set(outside()))
