"""The rules file as one that its owner edits while it is in use. `rucher.router.router` checks it between batches."""

from collections.abc import Callable, Collection
from pathlib import Path

from rucher.protocol.livefile import LiveFile
from rucher.protocol.tomltext import decode
from rucher.router.parse import parse, validate
from rucher.router.rules import Rules


class RulesFile(LiveFile[Rules]):
    """The rules in force, and the file they come from. `destinations` is asked at each check, never kept."""

    def __init__(self, path: Path, destinations: Callable[[], Collection[str]]) -> None:
        """Read the file; raises BadInput when it cannot be used."""
        self._destinations = destinations
        super().__init__(path, self.read, "rules file", lambda: frozenset(destinations()))

    def read(self, raw: bytes) -> Rules:
        """The rules that these bytes would be if they stood in the file; raises BadInput, and changes nothing."""
        rules = parse(decode(raw, self.path), self.path)
        validate(rules, frozenset(self._destinations()))
        return rules
