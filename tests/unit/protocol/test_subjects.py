"""Subject patterns stand for exactly what they say."""

import pytest

from rucher.protocol.errors import BadInput
from rucher.protocol.subjects import matches

SUBJECT = "ev.local.stripe.charge.succeeded"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (SUBJECT, True),
        ("ev.local.stripe.>", True),
        ("ev.*.stripe.>", True),
        ("ev.>", True),
        (">", True),
        ("ev.*.*.*.*", True),
        ("ev.*.*.*", False),
        ("ev.local.stripe.charge", False),
        ("ev.local.stripe.charge.succeeded.>", False),
        ("ev.local.str*.>", False),
        ("ev.other.>", False),
    ],
)
def test_a_pattern_matches_what_it_says(pattern: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert matches(pattern, SUBJECT) is expected


@pytest.mark.parametrize("pattern", ["", "ev..x", ".ev", "ev.>.x"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(BadInput, match="subject pattern"):
        matches(pattern, SUBJECT)
