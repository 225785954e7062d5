"""A segment holds exactly what was archived, or is refused: no damage and no cut goes unseen."""

import gzip
import hashlib
import json
import re
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rucher.journal.rows import COLUMNS, SEALED
from rucher.journal.segments import Header, Segment, read_segment, write_segment
from rucher.journal.units import Seal
from rucher.protocol.errors import BadInput, Corrupt, Retryable

NODE = "ab" * 32
HEADER = Header(11, 20, NODE)
SEALS = [Seal(11, 14, "d1", "s1", 5), Seal(15, 20, "d2", "s2", 6)]


def row(seq: int, body: str = '{"text":"é\u2028\\u0000"}') -> tuple[Any, ...]:
    return (
        seq,
        f"id{seq}",
        "local",
        "cli",
        "message",
        "owner:ana",
        5,
        None,
        "trace",
        None,
        1,
        2,
        body,
        None,
        None,
        None,
    )


ROWS = [row(seq) for seq in range(11, 21)]


def written(folder: Path) -> Segment:
    return write_segment(folder, HEADER, iter(ROWS), iter(SEALS))


def lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def read(path: Path) -> tuple[Header, list[tuple[Any, ...]], list[Seal]]:
    reading = read_segment(path)
    return reading.header, list(reading.rows), reading.seals


def test_what_was_archived_is_read_back(tmp_path: Path) -> None:
    segment = written(tmp_path)
    assert segment.path == tmp_path / "0000000011-0000000020.jsonl.gz"
    assert (segment.first_seq, segment.last_seq) == (11, 20)
    assert segment.sha256 == hashlib.sha256(segment.path.read_bytes()).hexdigest()
    assert read(segment.path) == (HEADER, ROWS, SEALS)
    assert list(tmp_path.iterdir()) == [segment.path]
    assert segment.path.stat().st_mode & 0o777 == 0o600


def test_a_line_is_the_text_that_the_seals_digest_reads(tmp_path: Path) -> None:
    assert len(ROWS[0]) == len(COLUMNS[SEALED])
    sealed = [json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode() + b"\n" for each in ROWS]
    assert lines(written(tmp_path).path)[1:11] == sealed


def test_of_a_row_only_the_sealed_columns_are_archived(tmp_path: Path) -> None:
    stored = [[*each, "no part of the event"] for each in ROWS]
    assert read(write_segment(tmp_path, HEADER, stored, SEALS).path)[1] == ROWS


def test_the_first_line_says_what_it_is(tmp_path: Path) -> None:
    assert json.loads(lines(written(tmp_path).path)[0]) == {
        "format": 1, "first_seq": 11, "last_seq": 20, "node": NODE, "count": 10,
    }  # fmt: skip


def test_the_same_events_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert written(tmp_path / "a").sha256 == written(tmp_path / "b").sha256
    assert (tmp_path / "a" / HEADER.name).read_bytes()[4:8] == bytes(4), "no time in it"


@given(st.lists(st.text() | st.integers() | st.none(), min_size=15, max_size=15))
def test_whatever_the_columns_hold_is_read_back(columns: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        one = (1, *columns)
        path = write_segment(Path(folder), Header(1, 1, NODE), [one], [Seal(1, 1, "d", "s", 0)]).path
        assert read(path)[1] == [one]


@pytest.mark.parametrize(
    ("rows", "seals", "fault"),
    [
        ([*ROWS[:3], *ROWS[4:]], SEALS, "events 15 to 15 came after 13 of 20"),
        ([ROWS[0], *ROWS], SEALS, "events 11 to 11 came after 11 of 20"),
        (ROWS[:9], SEALS, "events end at 19 of 20"),
        ([*ROWS, row(21)], SEALS, "events 21 to 21 came after 20 of 20"),
        ([], SEALS, "events end at 10 of 20"),
        (ROWS, SEALS[:1], "seals end at 14 of 20"),
        (ROWS, SEALS[1:], "seals 15 to 20 came after 10 of 20"),
        (ROWS, [Seal(11, 21, "d", "s", 0)], "seals 11 to 21 came after 10 of 20"),
        (ROWS, [], "seals end at 10 of 20"),
    ],
)
def test_what_has_a_gap_is_not_archived_and_leaves_no_file(
    tmp_path: Path, rows: list[tuple[Any, ...]], seals: list[Seal], fault: str
) -> None:
    with pytest.raises(Corrupt, match=re.escape(f"{HEADER.name}: {fault}; `rucher journal verify`")):
        write_segment(tmp_path, HEADER, rows, seals)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("header", [Header(0, 5, NODE), Header(5, 4, NODE), Header(1, 2, "AB" * 32), Header(1, 2, "")])
def test_an_impossible_header_is_refused(tmp_path: Path, header: Header) -> None:
    with pytest.raises(BadInput, match="cannot be written"):
        write_segment(tmp_path, header, [], [])


def test_an_interrupted_write_leaves_the_segment_of_before_and_is_cleared_by_the_next(tmp_path: Path) -> None:
    segment = written(tmp_path)

    def interrupted() -> Iterator[tuple[Any, ...]]:
        yield from ROWS[:5]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_segment(tmp_path, HEADER, interrupted(), SEALS)
    assert read(segment.path)[1] == ROWS
    (tmp_path / f"new-{HEADER.name}-left").touch()  # what a kill leaves
    assert written(tmp_path) == segment
    assert list(tmp_path.iterdir()) == [segment.path]


def test_a_folder_that_takes_no_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(Retryable, match="cannot be written"):
        written(tmp_path / "missing")


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path).path
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(Corrupt, match=rf"{path} is damaged at line \d+ \(.+\); put a backup"):
            read(path)


def test_a_file_with_any_byte_changed_is_refused_or_read_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path).path
    whole = path.read_bytes()
    unseen = []
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes((whole[place] ^ 0x11,)) + whole[place + 1 :])
        with suppress(Corrupt, BadInput):
            assert read(path) == (HEADER, ROWS, SEALS)
            unseen.append(place)
    # The header's time, flags and system say nothing about the content.
    assert set(unseen) <= set(range(3, 10))


def repacked(path: Path, changed: list[bytes]) -> None:
    path.write_bytes(gzip.compress(b"".join(changed)))


TAMPERING: dict[str, tuple[Callable[[list[bytes]], list[bytes]], int]] = {
    "no line": (lambda _: [], 1),
    "no header": (lambda all_: all_[1:], 1),
    "another count": (lambda all_: [all_[0].replace(b":10", b":11"), *all_[1:]], 1),
    "another range": (lambda all_: [all_[0].replace(b":20", b":21").replace(b":10", b":11"), *all_[1:]], 1),
    "no node": (lambda all_: [all_[0].replace(b"ab", b"zz"), *all_[1:]], 1),
    "an event removed": (lambda all_: all_[:5] + all_[6:], 6),
    "an event twice": (lambda all_: [*all_[:5], all_[4], *all_[5:]], 6),
    "two swapped": (lambda all_: [*all_[:5], all_[6], all_[5], *all_[7:]], 6),
    "a column missing": (lambda all_: [*all_[:3], all_[3].replace(b",null]", b"]"), *all_[4:]], 4),
    "an event that is none": (lambda all_: [*all_[:3], b"{}\n", *all_[4:]], 4),
    "not JSON": (lambda all_: [*all_[:3], b"[13\n", *all_[4:]], 4),
    "not UTF-8": (lambda all_: [*all_[:3], b'["\xff"]\n', *all_[4:]], 4),
    "a bomb": (lambda all_: [*all_[:3], b"[" * (17 << 20)], 4),
    "deep": (lambda all_: [*all_[:3], b"[" * 1_000_000 + b"\n"], 4),
    "no seal": (lambda all_: all_[:11], 12),
    "a seal removed": (lambda all_: all_[:11] + all_[12:], 12),
    "the last seal removed": (lambda all_: all_[:12], 13),
    "a seal of another shape": (lambda all_: [*all_[:12], all_[12].replace(b'"d2"', b"2")], 13),
    "more after it": (lambda all_: [*all_, all_[12]], 14),
    "no end of line": (lambda all_: [*all_[:12], all_[12].rstrip()], 13),
}


@pytest.mark.parametrize(("tamper", "line"), TAMPERING.values(), ids=TAMPERING.keys())
def test_whatever_is_done_to_its_lines_is_told_with_the_line(
    tmp_path: Path, tamper: Callable[[list[bytes]], list[bytes]], line: int
) -> None:
    path = written(tmp_path).path
    repacked(path, tamper(lines(path)))
    with pytest.raises(Corrupt, match=rf"{path} is damaged at line {line} \(.+\); put a backup") as raised:
        read(path)
    assert len(str(raised.value)) < 500


def test_a_renamed_segment_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path).path.rename(tmp_path / "0000000001-0000000010.jsonl.gz")
    with pytest.raises(Corrupt, match=f"it is the header of {HEADER.name}"):
        read_segment(path)


def test_a_segment_of_a_newer_rucher_is_refused_as_such(tmp_path: Path) -> None:
    path = written(tmp_path).path
    repacked(path, [lines(path)[0].replace(b'"format":1', b'"format":2')])
    with pytest.raises(BadInput, match="newer Rucher"):
        read_segment(path)


def test_a_missing_segment_is_told(tmp_path: Path) -> None:
    with pytest.raises(Corrupt, match=r"is missing; put a backup of the file in its place"):
        read_segment(tmp_path / HEADER.name)


def test_memory_stays_flat_however_many_events_there_are(tmp_path: Path) -> None:
    count, body = 8_000, json.dumps({"text": "x" * 500})
    header = Header(1, count, NODE)
    tracemalloc.start()
    try:
        path = write_segment(
            tmp_path, header, (row(seq, body) for seq in range(1, count + 1)), [Seal(1, count, "d", "s", 0)]
        ).path
        assert sum(1 for _ in read_segment(path).rows) == count
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20, "the events alone are 5 MB"
