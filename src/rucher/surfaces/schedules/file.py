"""The schedules file as one that its owner edits while it is used, and what it is read against. No file holds no schedules."""

from collections.abc import Callable, Collection
from pathlib import Path

from rucher.protocol.livefile import LiveFile
from rucher.protocol.tomltext import decode
from rucher.surfaces.schedules.parse import Around, parse
from rucher.surfaces.schedules.plan import Plan

WHAT = "schedules file"
_OURS = frozenset({"state", "kernel", "memory", "personal"})


class SchedulesFile(LiveFile[Plan]):
    """The schedules in force. `destinations` is asked at each check; gates are files below `root`."""

    def __init__(self, path: Path, root: Path, destinations: Callable[[], Collection[str]], zone: str) -> None:
        """Read the file; raises BadInput when it cannot be used."""

        def parsed(text: str) -> Plan:
            return parse(text, path, Around(frozenset(destinations()), zone, lambda script: is_script(root, script)))

        self.root = root
        """The instance's folder, below which gates lie."""
        self.parsed = parsed
        """The plan that another text would be in this file's place; raises BadInput."""
        super().__init__(
            path, lambda raw: parsed(decode(raw, path)), WHAT, lambda: frozenset(destinations()), absent=b""
        )


def is_script(root: Path, script: str) -> bool:
    """Whether this path, told from the instance's folder, is a file within it, and the owner's: none that holds secrets, is
    written by agents, or says what Rucher does.
    """
    try:
        place = (root / script).resolve().relative_to(root.resolve())
        return (root / script).is_file() and place.parts[0].lower() not in _OURS and place.suffix.lower() != ".toml"
    except (OSError, ValueError):
        return False
