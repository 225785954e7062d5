"""Finds the few rules that an event might match among thousands, by the literals they ask for. Pure.

Built once per rules file by `rucher.router.rules`; it may offer a rule that does not fire, never hide one that does.
"""

from collections import Counter
from collections.abc import Sequence

from rucher.protocol.events import Event
from rucher.router.conditions import Anchor, Condition, field_of


class Index:
    """The rules' numbers, each filed under the rarest literal that its conditions ask for."""

    def __init__(self, matches: Sequence[tuple[Condition, ...]]) -> None:
        self._always: list[int] = []
        self._filed: dict[tuple[str, int | None], dict[str, list[int]]] = {}
        counts = Counter(anchor for match in matches for anchor in _anchors(match))
        for number, match in enumerate(matches):
            rarest = min(_anchors(match), key=lambda anchor: counts[anchor], default=None)
            if rarest is None:
                self._always.append(number)
            else:
                drawer = self._filed.setdefault((rarest.key, rarest.place), {})
                drawer.setdefault(rarest.value, []).append(number)

    def candidates(self, event: Event) -> Sequence[int]:
        """The numbers of all rules whose match may hold for this event, in the file's order."""
        found = self._always.copy()
        parts: list[str] | None = None
        for (key, place), drawer in self._filed.items():
            if key == "subject":
                parts = parts or event.subject.split(".")
                value = parts[place] if place is not None and place < len(parts) else None
            else:
                whole = field_of(event, key)
                value = None if whole is None else whole[:place]
            if value is not None and value in drawer:
                found += drawer[value]
        found.sort()
        return found


def _anchors(match: tuple[Condition, ...]) -> list[Anchor]:
    return [anchor for condition in match for anchor in condition.anchors]
