"""When a schedule is due, by the clock on the wall."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.protocol.errors import BadInput
from rucher.surfaces.schedules.times import Timing, demand_cron, micros, moment, moments, resolved

ZONES = (
    "Europe/Paris", "America/New_York", "America/Santiago", "America/Havana", "Australia/Lord_Howe", "Africa/Cairo",
    "Africa/Casablanca", "Asia/Beirut", "Asia/Tehran", "Asia/Kathmandu", "Europe/Dublin", "Pacific/Chatham", "UTC",
)  # fmt: skip
DAY = timedelta(days=1)


def walls(cron: str, zone: str, begin: datetime, count: int) -> list[datetime]:
    """The first `count` moments after the wall time `begin`, on that wall."""
    place = ZoneInfo(zone)
    found = islice(moments(Timing(zone, cron), micros(begin.replace(tzinfo=place))), count)
    return [moment(us).astimezone(place) for us in found]


def instants(cron: str, zone: str, begin: str, count: int) -> list[str]:
    return [at.isoformat() for at in walls(cron, zone, datetime.fromisoformat(begin), count)]


@given(
    st.sampled_from(ZONES), st.integers(2012, 2040), st.integers(4, 23), st.integers(0, 59), st.integers(0, 364)
)  # fmt: skip
def test_a_daily_time_in_the_day_is_due_once_a_day_at_that_time_whatever_the_clock_does(
    zone: str, year: int, hour: int, minute: int, skipped: int
) -> None:
    begin = datetime(year, 1, 1) + skipped * DAY  # noqa: DTZ001 - a time on a wall
    due = walls(f"{minute} {hour} * * *", zone, begin, 400)
    assert {(at.hour, at.minute) for at in due} == {(hour, minute)}
    assert [at.date() for at in due] == [begin.date() + number * DAY for number in range(400)]


@given(st.sampled_from(ZONES), st.integers(2012, 2040), st.integers(0, 3), st.integers(0, 59))
def test_a_daily_time_of_the_night_is_due_once_a_day_also_where_it_is_skipped_or_comes_twice(
    zone: str, year: int, hour: int, minute: int
) -> None:
    begin = datetime(year, 1, 1)  # noqa: DTZ001 - a time on a wall
    due = walls(f"{minute} {hour} * * *", zone, begin, 366)
    assert set(Counter(at.date() for at in due).values()) == {1}
    for at in due:
        wanted = at.replace(hour=hour, minute=minute, fold=0)
        if wanted.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(fold=0) == wanted:
            assert at.astimezone(UTC) == wanted.astimezone(UTC)


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["*/7 * * * *", "15 */3 * * *", "*/20 1-3 * * *", "30 2 * * *", "0,30 1,2,3 * * *", "59 23 L * *"]),
    st.datetimes(datetime(2012, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001 - a time on a wall
    st.integers(0, 59),
)
def test_moments_only_go_forth_and_do_not_depend_on_where_they_are_asked_for(
    zone: str, cron: str, begin: datetime, cut: int
) -> None:
    timing = Timing(zone, cron)
    due = list(islice(moments(timing, micros(begin.replace(tzinfo=UTC))), 60))
    assert all(earlier < later for earlier, later in pairwise(due))
    assert next(moments(timing, due[cut] - 1)) == due[cut]
    assert list(islice(moments(timing, due[cut]), 59 - cut)) == due[cut + 1 :]


def test_nine_o_clock_stays_nine_o_clock_across_both_changes() -> None:
    assert instants("0 9 * * *", "Europe/Paris", "2026-03-28T00:00", 3) == [
        "2026-03-28T09:00:00+01:00", "2026-03-29T09:00:00+02:00", "2026-03-30T09:00:00+02:00",
    ]  # fmt: skip
    assert instants("0 9 * * *", "Europe/Paris", "2026-10-24T00:00", 3) == [
        "2026-10-24T09:00:00+02:00", "2026-10-25T09:00:00+01:00", "2026-10-26T09:00:00+01:00",
    ]  # fmt: skip


def test_a_time_in_the_gap_is_due_at_the_first_moment_after_it() -> None:
    assert instants("30 2 * * *", "Europe/Paris", "2026-03-28T12:00", 2) == [
        "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00",
    ]  # fmt: skip


def test_a_time_that_comes_twice_is_due_the_first_time_only() -> None:
    assert instants("30 2 * * *", "Europe/Paris", "2026-10-24T12:00", 2) == [
        "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00",
    ]  # fmt: skip


def test_asked_in_the_second_of_two_equal_hours_no_time_of_the_first_is_due_again() -> None:
    second = datetime(2026, 10, 25, 2, 15, tzinfo=ZoneInfo("Europe/Paris"), fold=1)
    (due,) = islice(moments(Timing("Europe/Paris", "30 2 * * *"), micros(second)), 1)
    assert moment(due).date() == date(2026, 10, 26)


def test_every_half_hour_is_every_half_hour_also_in_the_long_night() -> None:
    begin = micros(datetime(2026, 10, 24, 22, tzinfo=UTC))
    due = takewhile(lambda at: at <= begin + 6 * 3_600_000_000, moments(Timing("Europe/Paris", "*/30 * * * *"), begin))
    assert len(list(due)) == 12


def test_a_zone_of_its_own_is_kept_on_a_machine_in_utc() -> None:
    (due,) = walls("0 9 * * *", "Asia/Shanghai", datetime(2026, 6, 1), 1)  # noqa: DTZ001 - a time on a wall
    assert due.astimezone(UTC).isoformat() == "2026-06-01T01:00:00+00:00"


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        ("2026-12-01T09:00:00", "2026-12-01T08:00:00+00:00"),
        ("2026-03-29T02:30:00", "2026-03-29T01:00:00+00:00"),
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),
        ("2026-12-01T09:00:00-05:00", "2026-12-01T14:00:00+00:00"),
    ],
)
def test_a_single_moment_is_read_off_the_wall_of_its_zone_unless_it_has_an_offset(wall: str, expected: str) -> None:
    assert moment(resolved(datetime.fromisoformat(wall), "Europe/Paris")).isoformat() == expected


def test_a_single_moment_is_due_once() -> None:
    assert list(moments(Timing("UTC", at=50), 49)) == [50]
    assert list(moments(Timing("UTC", at=50), 50)) == []


@pytest.mark.parametrize(
    ("cron", "says"),
    [
        ("0 21-5 * * *", "hour '21-5' runs backwards; write 21-23,0-5"),
        ("50-10 * * * *", "minute '50-10' runs backwards; write 50-59,0-10"),
        ("0 0 30 2 *", "never fires"),
        ("0 0 31 4,6 *", "never fires"),
        ("0 25 * * *", "hour '25' cannot be read"),
        ("61 * * * *", "minute '61' cannot be read"),
        ("0 0 * * 8", "weekday '8' cannot be read"),
        ("*/0 * * * *", "minute '*/0' cannot be read"),
        ("@daily", "not five fields"),
        ("0 0 9 * * *", "not five fields"),
        ("", "not five fields"),
        ("0 9 * * mon-xyz", "weekday 'mon-xyz' cannot be read"),
        ("0 9 * * 1#9", "weekday '1#9' cannot be read"),
    ],
)
def test_an_odd_cron_is_refused_with_the_field_and_the_reason(cron: str, says: str) -> None:
    with pytest.raises(BadInput, match=r"^cron ") as refused:
        demand_cron(cron)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "cron", ["0 9 * * 1-5", "*/5 8-18 * * *", "0 0 29 2 *", "0 9 L * *", "0 9 * * MON#1", "0 0 30 2 MON"]
)
def test_what_cron_knows_is_taken(cron: str) -> None:
    demand_cron(cron)


@given(st.text(alphabet="0123456789*/,-#LW MONJAN", max_size=30))
def test_any_text_is_either_refused_or_due_some_day(cron: str) -> None:
    try:
        demand_cron(cron)
    except BadInput:
        return
    assert next(moments(Timing("Europe/Paris", cron), 0)) > 0
