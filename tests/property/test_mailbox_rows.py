"""Whatever an agent writes into its file, what the host believes of it can be stored in the journal."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from rucher.mailbox.rows import BadRow, Reply, outbound_row, result_row, storable

TEXTS = st.text(st.characters(codec=None)) | st.sampled_from(["\0", "\ud800", "a\udfff", "ok", "uncertain"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63, -(2**64), math.nan, math.inf])
    | st.floats()
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
RESULTS = st.builds(
    lambda more, known: more | known,
    st.dictionaries(TEXTS, VALUES, max_size=3),
    st.fixed_dictionaries(
        {"outcome": st.sampled_from(["ok", "error", "uncertain"]) | VALUES, "text": TEXTS | VALUES},
        optional={"truncated": st.booleans() | VALUES},
    ),
)
BODIES = st.builds(json.dumps, RESULTS | VALUES, ensure_ascii=st.booleans()) | TEXTS


@given(
    seq=st.integers() | st.sampled_from([1, 3, 2**53 + 1]),
    kind=st.sampled_from([Reply.PROCESSING.value, Reply.PROGRESS.value, Reply.RESULT.value]) | TEXTS,
    reply_to=st.integers() | st.just(2),
    key=TEXTS,
    created_at=st.integers() | st.just(1),
    body=BODIES,
)
def test_what_is_believed_of_a_row_is_utf_8_json_without_nan(
    seq: int, kind: str, reply_to: int, key: str, created_at: int, body: str
) -> None:
    try:
        row = outbound_row((seq, kind, reply_to, key, created_at, body))
        demand_storable(row._asdict())
        demand_storable(result_row(row)._asdict())
    except BadRow:
        return


@given(TEXTS, VALUES)
def test_a_result_is_believed_only_if_the_journal_can_hold_it(text: str, more: object) -> None:
    try:
        row = outbound_row((1, "result", 2, "k", 1, json.dumps({"outcome": "ok", "text": text, "more": more})))
        result = result_row(row)
    except BadRow:
        return
    demand_storable(dict(row.body))
    demand_storable(result._asdict())


@given(st.text(st.characters(codec=None)))
def test_every_text_of_an_honest_runner_is_believed(text: str) -> None:
    body = json.dumps({"outcome": "ok", "text": storable(text), "truncated": False})
    assert result_row(outbound_row((1, "result", 2, "k", 1, body))).text == storable(text)


def demand_storable(value: object) -> None:
    raw = json.dumps(value, ensure_ascii=False, allow_nan=False)
    raw.encode()
    assert "\\u0000" not in raw.replace("\\\\", "")
    assert all(abs(number) < 2**63 for number in numbers(value))


def numbers(value: object) -> list[float]:
    match value:
        case bool():
            return []
        case int() | float():
            return [value]
        case list():
            return [number for item in value for number in numbers(item)]
        case dict():
            return [number for item in value.values() for number in numbers(item)]
        case _:
            return []
