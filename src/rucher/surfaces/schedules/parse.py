"""Reads the text of `schedules.toml` into a Plan, or says in one line what is wrong and where. Pure; all or nothing.

Called at start, when the file changes, by `rucher schedules check`, and before a proposal is kept.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from rucher.protocol.errors import BadInput
from rucher.protocol.events import DEFAULT_GROUP
from rucher.protocol.positions import KeyPath
from rucher.protocol.tomltext import FLAG, STRING, WHOLE, FileName, Kind, Reading, load, refusal, suggestion, tables_of
from rucher.surfaces.schedules.plan import GateFailure, Misfire, Plan, Schedule
from rucher.surfaces.schedules.times import Timing, demand_cron, resolved, shown, zone_named, zone_names

MOST_TEXT = 64 * 1024
"""The longest text of a schedule, in bytes of UTF-8."""
MOST_SCHEDULES = 2000
"""The most schedules of one file: reading so many holds up nothing for longer than half a second."""
KEYS = (
    "id", "cron", "at", "zone", "text", "to", "group", "thread", "misfire", "catch_up", "within_s", "jitter_s", "gate",
    "gate_fails", "enabled",
)  # fmt: skip
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_DATE_AND_TIME = Kind(lambda value: isinstance(value, datetime), "a date and a time, as in 2026-12-01T09:00:00")
_TABLES = tables_of("schedule")
_DAY_S = 86_400
_MOST_CATCH_UP = 1000
_Word = TypeVar("_Word", bound=StrEnum)


@dataclass(frozen=True, slots=True)
class Around:
    """What a file is read against. `destinations` are those there are now; `zone` is used where a schedule names none.

    An empty `zone` says that the machine does not tell its own. `is_script` says whether a gate may be the file of this path.
    """

    destinations: Collection[str]
    zone: str
    is_script: Callable[[str], bool]


def parse(text: str, path: FileName, around: Around) -> Plan:
    """The schedules that the text says.

    Raises BadInput with the first problem as `path:line:column: what is wrong, what to do`, and how many more.
    """
    document = load(text, path, "[[schedule]]")
    reading = _Schedules(around)
    schedules = reading.schedules(document)
    reading.only_keys(document, ("schedule",), ())
    if reading.problems:
        raise refusal(path, text, reading.problems)
    version = hashlib.sha256(text.encode()).hexdigest()
    return Plan(str(path), text, version, tuple(schedules))


def warnings(plan: Plan, now: int) -> list[str]:
    """What is likely not meant, although it can be carried out: a moment that is over."""
    return [
        f"schedule {one.id!r} will not fire: {shown(one.timing.at, one.timing.zone)} is in the past"
        for one in plan.schedules
        if one.enabled and one.timing.at is not None and one.timing.at <= now
    ]


class _Schedules(Reading):
    """Reads one document and collects every problem with the key it is about."""

    def __init__(self, around: Around) -> None:
        super().__init__()
        self._around = around

    def schedules(self, document: Mapping[str, Any]) -> list[Schedule]:
        """The schedules that can be read; what is wrong with the others stands in `problems`."""
        tables = document.get("schedule", [])
        if not self.holds(tables, _TABLES, ("schedule",)):
            return []
        if len(tables) > MOST_SCHEDULES:
            self.complain(("schedule",), f"there are {len(tables)} schedules; at most {MOST_SCHEDULES} are taken")
            return []
        taken: set[str] = set()
        found = [self._schedule(table, ("schedule", number), taken) for number, table in enumerate(tables)]
        return [schedule for schedule in found if schedule is not None]

    def _schedule(self, table: Mapping[str, Any], path: KeyPath, taken: set[str]) -> Schedule | None:
        self.only_keys(table, KEYS, path)
        name, timing, text = self._id(table, path, taken), self._timing(table, path), self._text(table, path)
        read = {
            "to": self._to(table, path),
            "room": self._room(table, path),
            "thread": self._named(table, "thread", path),
            "misfire": self._word(table, "misfire", Misfire.ONCE, path),
            "catch_up": self._whole(table, "catch_up", 10, (1, _MOST_CATCH_UP), path),
            "within_s": self._whole(table, "within_s", 60, (0, 7 * _DAY_S), path),
            "jitter_s": self._whole(table, "jitter_s", 0, (0, _DAY_S), path),
            "gate": self._gate(table, path),
            "gate_fails": self._word(table, "gate_fails", GateFailure.SKIP, path),
            "enabled": table.get("enabled", True),
        }
        self.holds(read["enabled"], FLAG, (*path, "enabled"))
        if not name or timing is None or not text:
            return None
        return Schedule(id=name, timing=timing, text=text, **read)

    def _id(self, table: Mapping[str, Any], path: KeyPath, taken: set[str]) -> str:
        name = table.get("id")
        here = (*path, "id")
        if name is None:
            self.complain(path, 'this schedule has no id; add id = "..." so that its fires can be told')
        elif not isinstance(name, str) or not _ID.fullmatch(name):
            self.complain(here, "an id is up to 61 small letters, digits, dots, dashes and underscores, in quotes")
        elif name in taken:
            self.complain(here, f"id {name!r} is taken by an earlier schedule; rename one of them")
        else:
            taken.add(name)
            return name
        return ""

    def _text(self, table: Mapping[str, Any], path: KeyPath) -> str:
        text = table.get("text", "")
        here = (*path, "text")
        if not self.holds(text, STRING, here):
            return ""
        if not text.strip():
            self.complain(here if "text" in table else path, 'this schedule says nothing; add text = "..."')
        elif len(text.encode()) > MOST_TEXT:
            self.complain(here, f"the text is longer than {MOST_TEXT} bytes; put the rest in a file and name it")
        return str(text)

    def _timing(self, table: Mapping[str, Any], path: KeyPath) -> Timing | None:
        zone = self._zone(table, path)
        if ("cron" in table) == ("at" in table):
            self.complain(path, 'say when, either with cron = "0 9 * * 1-5" or with at = 2026-12-01T09:00:00')
            return None
        if "at" in table:
            return self._once(table["at"], zone, (*path, "at"))
        cron = table["cron"]
        if not self.holds(cron, STRING, (*path, "cron")):
            return None
        try:
            demand_cron(cron)
        except BadInput as error:
            self.complain((*path, "cron"), str(error))
            return None
        return Timing(zone, cron=" ".join(cron.split())) if zone else None

    def _once(self, at: object, zone: str, path: KeyPath) -> Timing | None:
        if not self.holds(at, _DATE_AND_TIME, path) or not isinstance(at, datetime) or not zone:
            return None
        try:
            return Timing(zone, at=resolved(at, zone))
        except OverflowError:
            self.complain(path, f"{at.isoformat()} is outside of the years that can be reckoned; choose another time")
            return None

    def _zone(self, table: Mapping[str, Any], path: KeyPath) -> str:
        if "zone" not in table:
            if not self._around.zone:
                self.complain(
                    path,
                    'this machine does not tell its time zone by name; add zone = "Europe/Paris", or set it for all as '
                    "zone under [instance] in rucher.toml",
                )
            return self._around.zone
        name = table["zone"]
        if not self.holds(name, STRING, (*path, "zone")):
            return ""
        try:
            zone_named(name)
        except BadInput as error:
            self.complain((*path, "zone"), f"{error}; {suggestion(name, zone_names())}")
            return ""
        return str(name)

    def _to(self, table: Mapping[str, Any], path: KeyPath) -> str:
        to = table.get("to", "")
        here = (*path, "to")
        if not self.holds(to, STRING, here) or "to" not in table:
            return ""
        kind, _, name = to.partition(":")
        surface, _, group = name.partition(":")
        if kind == "group" and _NAME.fullmatch(group):
            self._exists(f"surface:{surface}", here)
        elif kind == "agent" and name:
            self._exists(to, here)
        else:
            self.complain(here, f"{to[:60]!r} is no address; write agent:NAME or group:SURFACE:GROUP")
        return str(to)

    def _room(self, table: Mapping[str, Any], path: KeyPath) -> str:
        group = table.get("group", DEFAULT_GROUP)
        here = (*path, "group")
        if not self.holds(group, STRING, here):
            return ""
        surface, told, name = group.rpartition(":")
        if not _NAME.fullmatch(name):
            self.complain(here, f"{group[:60]!r} is no group; write GROUP or SURFACE:GROUP, in small letters")
        elif told:
            self._exists(f"surface:{surface}", here)
        return f"{surface or 'cli'}:{name}"

    def _named(self, table: Mapping[str, Any], key: str, path: KeyPath) -> str:
        name = table.get(key, "")
        if self.holds(name, STRING, (*path, key)) and name and not _NAME.fullmatch(name):
            self.complain((*path, key), f"{name[:60]!r} cannot be a {key}; use small letters, digits, dots and dashes")
        return str(name)

    def _word(self, table: Mapping[str, Any], key: str, usual: _Word, path: KeyPath) -> _Word:
        found = table.get(key, usual)
        words = type(usual)
        if isinstance(found, str) and found in set(words):
            return words(found)
        self.complain((*path, key), f"{key} is one of {', '.join(words)}")
        return usual

    def _whole(self, table: Mapping[str, Any], key: str, usual: int, limits: tuple[int, int], path: KeyPath) -> int:
        found = table.get(key, usual)
        least, most = limits
        if self.holds(found, WHOLE, (*path, key)) and not least <= found <= most:
            self.complain((*path, key), f"{key} is between {least} and {most}")
        return found if isinstance(found, int) else usual

    def _gate(self, table: Mapping[str, Any], path: KeyPath) -> str:
        gate = table.get("gate", "")
        here = (*path, "gate")
        if self.holds(gate, STRING, here) and "gate" in table and not self._around.is_script(gate):
            self.complain(here, f"there is no file {gate[:60]!r} in the instance's folder; write its path from there")
        return str(gate)

    def _exists(self, destination: str, path: KeyPath) -> None:
        known = self._around.destinations
        if destination not in known:
            self.complain(path, f"there is no {destination[:60]}; {suggestion(destination, known)}")
