"""Which planned times fire and which were missed, as a table of laws."""

from datetime import UTC, datetime, timedelta
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from rucher.surfaces.schedules.due import MOST_COUNTED, due, moment_of, next_planned
from rucher.surfaces.schedules.plan import Misfire, Schedule
from rucher.surfaces.schedules.times import Timing, micros, moments

DAILY = Timing("UTC", "0 9 * * *")
US = 1_000_000


def at(day: int, hour: int, minute: int = 0, second: int = 0) -> int:
    return micros(
        datetime(2026, 11, 1, tzinfo=UTC) + timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)
    )


def schedule(**told: object) -> Schedule:
    return Schedule(**{"id": "a", "timing": DAILY, "text": "hello", **told})  # type: ignore[arg-type]


def test_nothing_is_due_before_its_time() -> None:
    found = due(schedule(), at(1, 9), at(2, 8, 59, 59))
    assert (found.fire, found.missed, found.last) == ((), None, at(1, 9))


def test_on_time_it_fires_whatever_the_policy() -> None:
    for misfire in Misfire:
        found = due(schedule(misfire=misfire), at(1, 9), at(2, 9, 0, 59))
        assert (found.fire, found.missed, found.last) == ((at(2, 9),), None, at(2, 9))


def test_three_days_offline_skip_fires_nothing_and_says_what_was_missed() -> None:
    found = due(schedule(misfire=Misfire.SKIP), at(1, 9), at(4, 18))
    assert found.fire == ()
    assert found.missed is not None
    assert (found.missed.first, found.missed.last, found.missed.times) == (at(2, 9), at(4, 9), 3)
    assert found.last == at(4, 9)


def test_three_days_offline_once_fires_the_last_of_them() -> None:
    found = due(schedule(misfire=Misfire.ONCE), at(1, 9), at(4, 18))
    assert found.fire == (at(4, 9),)
    assert found.missed is not None
    assert (found.missed.first, found.missed.last, found.missed.times) == (at(2, 9), at(3, 9), 2)


def test_once_makes_nothing_up_when_one_fires_now_anyway() -> None:
    found = due(schedule(misfire=Misfire.ONCE), at(1, 9), at(4, 9, 0, 30))
    assert found.fire == (at(4, 9),)
    assert found.missed is not None
    assert found.missed.times == 2


def test_three_days_offline_all_fires_each_up_to_the_bound() -> None:
    found = due(schedule(misfire=Misfire.ALL), at(1, 9), at(4, 18))
    assert (found.fire, found.missed) == ((at(2, 9), at(3, 9), at(4, 9)), None)
    bounded = due(schedule(misfire=Misfire.ALL, catch_up=2), at(1, 9), at(4, 18))
    assert bounded.fire == (at(3, 9), at(4, 9))
    assert bounded.missed is not None
    assert bounded.missed.last == at(2, 9)


def test_years_offline_are_counted_only_up_to_a_bound() -> None:
    found = due(schedule(timing=Timing("Europe/Paris", "* * * * *")), 0, at(4, 18, 0, 30))
    assert found.fire == (at(4, 18),)
    assert found.missed is not None
    assert found.missed.times < MOST_COUNTED
    assert found.last == at(4, 18)


def test_jitter_is_the_same_whoever_asks_and_keeps_the_order() -> None:
    jittered = schedule(timing=Timing("UTC", "* * * * *"), jitter_s=300)
    planned = list(islice(moments(jittered.timing, at(1, 0)), 200))
    offsets = [moment_of(jittered, one) - one for one in planned]
    assert offsets == [moment_of(jittered, one) - one for one in planned]
    assert all(0 <= offset <= 300 * US for offset in offsets)
    assert len(set(offsets)) > 150
    assert due(jittered, planned[0] - 1, moment_of(jittered, planned[0]) - 1).fire == ()


@given(
    st.sampled_from(["* * * * *", "*/5 * * * *", "0 9 * * *", "0 9 * * 1"]), st.sampled_from(list(Misfire)),
    st.integers(1, 5), st.integers(0, 120), st.integers(0, 4000), st.lists(st.integers(1, 200_000), min_size=1, max_size=12),
)  # fmt: skip
def test_however_seldom_it_is_asked_each_planned_time_is_fired_or_missed_once_and_in_order(
    cron: str, misfire: Misfire, catch_up: int, within_s: int, jitter_s: int, pauses: list[int]
) -> None:
    one = schedule(
        timing=Timing("Europe/Paris", cron), misfire=misfire, catch_up=catch_up, within_s=within_s, jitter_s=jitter_s
    )
    after = begin = now = at(1, 0)
    told: list[int] = []
    for pause in pauses:
        now += pause * US
        found = due(one, after, now)
        missed = found.missed.times if found.missed else 0
        if found.missed:
            told += moments_up_to(one, after, found.missed.last)
        assert len(told) >= missed
        told += found.fire
        after = found.last
    assert told == moments_up_to(one, begin, after)
    following = next_planned(one, after)
    assert following is not None
    assert moment_of(one, following) > now


def moments_up_to(one: Schedule, begin: int, last: int) -> list[int]:
    found = []
    for us in moments(one.timing, begin):
        if us > last:
            break
        found.append(us)
    return found
