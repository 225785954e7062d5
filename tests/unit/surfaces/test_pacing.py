"""Laws of a source's rate: never more than it allows in any time, and who is told to wait is let in then."""

from hypothesis import given
from hypothesis import strategies as st

from rucher.surfaces.pacing import Bucket
from rucher.surfaces.sources import Rate


def test_as_many_at_once_as_the_rate_and_then_by_time() -> None:
    bucket = Bucket(Rate(2, 60), 100.0)
    assert [bucket.take(100.0) for _ in range(3)] == [0, 0, 30]
    assert bucket.take(115.0) == 15
    assert bucket.take(130.0) == 0
    assert [bucket.take(10_000.0) for _ in range(3)] == [0, 0, 30]


@given(st.integers(1, 50), st.sampled_from([1, 60, 3600]), st.lists(st.floats(0, 100), max_size=200))
def test_in_no_time_are_more_taken_than_the_rate_and_one_full_bucket(
    count: int, period: int, gaps: list[float]
) -> None:
    bucket, now, taken = Bucket(Rate(count, period), 0.0), 0.0, 0
    for gap in gaps:
        now += gap
        wait = bucket.take(now)
        taken += not wait
        assert taken <= count + now * count / period + 1e-6
        if wait:
            now += wait + 1e-6
            assert bucket.take(now) == 0
            taken += 1
