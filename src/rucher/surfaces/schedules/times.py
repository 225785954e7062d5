"""The moments of a schedule, by the clock on the wall of its own zone. Pure.

Called by `due.py`, by the reader of the file and by commands; it looks at no clock. `cronsim` knows cron and its daylight
saving rules, which are Debian's: a time that the clock skips is due at the first moment after the gap, one that comes twice is
due the first time. With `*` in the minute or the hour a schedule goes by what the clock shows, hour after hour.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from cronsim import CronSim, CronSimError

from rucher.protocol.errors import BadInput

FIELDS = ("minute", "hour", "day of the month", "month", "weekday")
LONGEST_CRON = 200
_ENDS = (59, 23, 31, 12, 6)
_FIRSTS = (0, 0, 1, 1, 0)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_RANGE = re.compile(r"(\d{1,2})-(\d{1,2})")


@dataclass(frozen=True, slots=True)
class Timing:
    """When: by `cron` on the wall clock of `zone`, or once `at` a moment (microseconds since the epoch)."""

    zone: str
    cron: str = ""
    at: int | None = None

    @property
    def words(self) -> str:
        """What the file says, in one line; two timings are the same when their words are."""
        return f"{self.cron} {self.zone}" if self.at is None else f"at {shown(self.at, self.zone)}"


def moments(timing: Timing, after: int) -> Iterator[int]:
    """The planned moments after this one, in order, each once; microseconds since the epoch."""
    if timing.at is not None:
        if timing.at > after:
            yield timing.at
        return
    last = after
    for found in CronSim(timing.cron, moment(after).astimezone(ZoneInfo(timing.zone))):
        planned = micros(found)
        # Begun in an hour that the clock shows twice, cronsim names times of the first showing, which are over.
        if planned > last:
            last = planned
            yield planned


def demand_cron(cron: str) -> None:
    """Raise BadInput, without a place, for what is no cron expression or is due on no day at all."""
    parts = cron.split()
    if len(parts) != len(FIELDS) or len(cron) > LONGEST_CRON:
        raise BadInput(
            f"cron {cron[:60]!r} is not five fields; write minute, hour, day of the month, month and weekday"
        )
    for number, part in enumerate(parts):
        alone = ["*"] * len(FIELDS)
        alone[number] = part
        if not _readable(" ".join(alone)):
            raise BadInput(f"cron {cron!r}: {FIELDS[number]} {part!r} {_fault(part, number)}")
    if not _readable(cron) or next(CronSim(cron, _SOME_DAY), None) is None:
        raise BadInput(f"cron {cron!r} never fires: there is no such day; correct day and month")


def zone_named(name: str) -> ZoneInfo:
    """The zone; raises BadInput, without a place, when there is none of this name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise BadInput(f"there is no time zone {name[:60]!r}") from error


def zone_names() -> set[str]:
    """The names of all zones; reads the whole database of zones."""
    return available_timezones()


def resolved(wall: datetime, zone: str) -> int:
    """The moment at which the clock of `zone` shows this time: the first of two, or the first after the gap it falls in.

    A time with an offset of its own is that moment in every zone.
    """
    if wall.tzinfo is not None:
        return micros(wall)
    place = ZoneInfo(zone)
    while _skipped(wall, place):
        wall = wall.replace(second=0, microsecond=0) + _MINUTE
    return micros(wall.replace(tzinfo=place, fold=0))


def moment(us: int) -> datetime:
    """Microseconds since the epoch as a moment in UTC."""
    return _EPOCH + timedelta(microseconds=us)


def micros(when: datetime) -> int:
    """A moment as microseconds since the epoch."""
    return (when - _EPOCH) // timedelta(microseconds=1)


def shown(us: int, zone: str) -> str:
    """A moment on the wall clock of a zone, with the offset and the zone's name."""
    return f"{moment(us).astimezone(ZoneInfo(zone)).isoformat(sep=' ', timespec='seconds')} {zone}"


def _readable(cron: str) -> bool:
    try:
        CronSim(cron, _SOME_DAY)
    except CronSimError:
        return False
    return True


def _fault(part: str, number: int) -> str:
    for found in _RANGE.finditer(part):
        first, last = int(found[1]), int(found[2])
        if last < first <= _ENDS[number]:
            return f"runs backwards; write {first}-{_ENDS[number]},{_FIRSTS[number]}-{last}"
    return "cannot be read; see docs/schedules.md for what a field may be"


def _skipped(wall: datetime, zone: ZoneInfo) -> bool:
    placed = wall.replace(tzinfo=zone, fold=0)
    return placed.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != wall.replace(fold=0)
