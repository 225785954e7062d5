"""Moments as people write them: a date, a time, or how long ago. Pure."""

import re
from datetime import UTC, datetime, timedelta

from rucher.protocol.errors import BadInput

DATE = "a day such as 2027-01-31, or a moment such as 2027-01-31T08:00Z; UTC where nothing else is said"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_US = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6, "w": 604_800 * 10**6}
_AGO = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)


def date_of(text: str) -> int:
    """Microseconds since the epoch of an ISO 8601 date or time, in UTC where no zone is given. Raises BadInput."""
    return _read(text, DATE)


def moment_of(text: str, now: int) -> int:
    """As `date_of`, and also how long before `now` (microseconds since the epoch), as in 90s, 15m, 2h, 3d, 1w."""
    if ago := _AGO.fullmatch(text.strip()):
        return now - int(ago[1]) * _UNITS_US[ago[2]]
    return _read(text, f"an age such as 90s, 15m, 2h, 3d, 1w, or {DATE}")


def _read(text: str, forms: str) -> int:
    try:
        at = datetime.fromisoformat(text.strip())
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return (at - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{text[:60]!r} is no date; write {forms}") from error
