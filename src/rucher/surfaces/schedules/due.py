"""What is to be done about a schedule at a moment: which planned times fire, and which were missed. Pure.

Called by the runner with where the schedule stands and what the clock says.
"""

import hashlib
from dataclasses import dataclass
from itertools import takewhile

from rucher.surfaces.schedules.plan import Misfire, Schedule
from rucher.surfaces.schedules.times import moments

MOST_COUNTED = 10_000
"""The most planned times that are counted after a long absence; what lies before them is left out of the count."""
_FIRST_WINDOW_US = 7 * 86_400 * 1_000_000
_WIDER = 8
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Missed:
    """Planned times that will not fire, as one record: the first, the last, and how many."""

    first: int
    last: int
    times: int


@dataclass(frozen=True, slots=True)
class Due:
    """The planned times to fire, oldest first; what was missed lies before them. `last` is how far that brings the schedule."""

    fire: tuple[int, ...]
    missed: Missed | None
    last: int


def due(schedule: Schedule, after: int, now: int) -> Due:
    """What to do about the planned times after `after` whose moment has come at `now`."""
    moments_of = ((planned, moment_of(schedule, planned)) for planned in _planned(schedule, after, now))
    come = list(takewhile(lambda pair: pair[1] <= now, moments_of))
    ready = [planned for planned, _ in come]
    on_time = [planned for planned, moment in come if now - moment <= schedule.within_s * _US]
    late = ready[: len(ready) - len(on_time)]
    kept = min(len(late), _made_up(schedule, fires_now=bool(on_time)))
    lost, made_up = late[: len(late) - kept], late[len(late) - kept :]
    missed = Missed(lost[0], lost[-1], len(lost)) if lost else None
    return Due((*made_up, *on_time), missed, ready[-1] if ready else after)


def next_planned(schedule: Schedule, after: int) -> int | None:
    """The next planned time after this one; None when there is none any more."""
    return next(moments(schedule.timing, after), None)


def moment_of(schedule: Schedule, planned: int) -> int:
    """When this planned time fires: later by its jitter, which is the same whoever asks, but before the next planned time."""
    if not schedule.jitter_s:
        return planned
    most, following = schedule.jitter_s * _US, next_planned(schedule, planned)
    if following is not None:
        most = min(most, following - planned - 1)
    digest = hashlib.blake2b(f"{schedule.id}:{planned}".encode(), digest_size=8).digest()
    return planned + int.from_bytes(digest, "big") % (most + 1)


def late_us(schedule: Schedule, planned: int, now: int) -> int:
    """How long ago this planned time should have fired."""
    return now - moment_of(schedule, planned)


def _made_up(schedule: Schedule, *, fires_now: bool) -> int:
    """The most late fires that are made up."""
    match schedule.misfire:
        case Misfire.SKIP:
            return 0
        case Misfire.ONCE:
            return 0 if fires_now else 1
        case Misfire.ALL:
            return schedule.catch_up


def _planned(schedule: Schedule, after: int, now: int) -> list[int]:
    """The planned times up to `now`; of very many only the newest, found without going through all of them."""
    window = _FIRST_WINDOW_US
    while True:
        begin = max(after, now - window)
        found = list(takewhile(lambda planned: planned <= now, moments(schedule.timing, begin)))
        if begin == after or len(found) >= MOST_COUNTED:
            return found[-MOST_COUNTED:]
        window *= _WIDER
