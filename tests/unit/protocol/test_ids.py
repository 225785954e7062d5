"""Ids keep their 128 bits, sort by time when made, and name the same thing the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.protocol.ids import begun, caused, decode, derived, encode, is_id, ulid


@given(value=st.integers(0, 2**128 - 1))
def test_printing_keeps_every_bit(value: int) -> None:
    text = encode(value)
    assert is_id(text)
    assert decode(text) == value


@given(a=st.integers(0, 2**128 - 1), b=st.integers(0, 2**128 - 1))
def test_printed_ids_sort_like_their_bits(a: int, b: int) -> None:
    assert (encode(a) < encode(b)) == (a < b)


@given(parts=st.lists(st.text(), max_size=4), others=st.lists(st.text(), max_size=4))
def test_different_parts_have_different_ids(parts: list[str], others: list[str]) -> None:
    assert (derived(*parts) == derived(*others)) == (parts == others)


@given(
    cause=st.builds(derived, st.text()), parts=st.lists(st.text(), max_size=3), others=st.lists(st.text(), max_size=3)
)
def test_what_one_thing_causes_lies_beside_it_and_is_told_apart(
    cause: str, parts: list[str], others: list[str]
) -> None:
    assert is_id(caused(cause, *parts))
    assert caused(cause, *parts)[:6] == cause[:6]
    assert (caused(cause, *parts) == caused(cause, *others)) == (parts == others)
    assert caused(cause, *parts) != cause


def test_traces_sort_by_the_second_in_which_they_begin() -> None:
    second = 1_000_000
    ids = [begun(at * second, "a") for at in (0, 1, 31, 32, 1_796_000_000 % 2**28)]
    assert ids == sorted(ids)
    assert all(map(is_id, ids))
    assert begun(2 * second, "a")[6:] == begun(3 * second, "a")[6:] != begun(3 * second, "b")[6:]


def test_the_same_parts_of_two_causes_beside_each_other_are_told_apart() -> None:
    one = derived("a")
    assert caused(one, "run") != caused(caused(one, "other"), "run")


def test_made_ids_sort_by_time() -> None:
    assert ulid(1_000_000, bytes([255] * 10)) < ulid(1_001_000, bytes(10))


@pytest.mark.parametrize("text", ["", "0" * 25, "0" * 27, "8" + "0" * 25, "I" * 26, "0" * 25 + "u", "é" * 26])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        decode(text)
