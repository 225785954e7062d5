"""Laws of printing: text from outside is shown, and never steers the terminal or counts as markup."""

import io
import json
import os
import pty
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rucher
from rucher.cli.show import clean, document, iso, span, table

HOSTILE = "[red]x[/red] :smile: \x1b]0;owned\x07 \x9b2J \u202etxt \x00 \x7f"


@pytest.mark.parametrize(
    ("given_text", "shown"),
    [
        ("plain é 日本 👩\u200d🚀", "plain é 日本 👩\u200d🚀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\ud800", "\\ud800"),
        ("\u2028", "\\u2028"),
        ("non\xa0breaking", "non\xa0breaking"),
    ],
)
def test_what_could_steer_a_terminal_is_shown_as_its_escape(given_text: str, shown: str) -> None:
    assert clean(given_text) == shown


@given(st.text())
def test_no_text_can_bring_a_control_character_to_the_terminal(text: str) -> None:
    assert [char for char in clean(text) if ord(char) < 32 or 127 <= ord(char) < 160] == []
    assert {char for char in clean(text, lines=True) if ord(char) < 32 or 127 <= ord(char) < 160} <= {"\n", "\t"}


@given(st.recursive(st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_is_ascii_and_says_what_it_was_given(value: object) -> None:
    printed = io.StringIO()
    with redirect_stdout(printed):
        document(value)
    assert printed.getvalue().isascii()
    assert json.loads(printed.getvalue()) == value


def test_a_table_away_from_a_terminal_is_whole_and_has_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    table(("ID", "SAYS"), [("1", "x" * 300), ("22", HOSTILE)])
    head, first, second = capsys.readouterr().out.splitlines()
    assert head == "ID  SAYS"
    assert first == "1   " + "x" * 300
    assert second == "22  " + clean(HOSTILE)


def test_a_table_on_a_terminal_shows_markup_as_text_and_keeps_escapes_out() -> None:
    code = f"from rucher.cli.show import table; table(('ID', 'SAYS'), [('1', {HOSTILE!r})])"
    ours, theirs = pty.openpty()
    environment = {"PYTHONPATH": str(Path(rucher.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "120"}
    child = subprocess.Popen([sys.executable, "-c", code], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    told = b""
    try:
        while block := os.read(ours, 4096):
            told += block
    except OSError:
        pass  # how Linux says that the other end of a terminal is closed
    finally:
        os.close(ours)
    assert child.wait(timeout=30) == 0
    assert b"[red]x[/red] :smile: \\x1b]0;owned\\x07 \\x9b2J" in told
    assert b"\x1b]0;" not in told
    assert b"\x1b[1m" in told, "this was no terminal: the header is not bold"


@pytest.mark.parametrize(
    ("us", "said"),
    [(0, "0.0 ms"), (12_345, "12.3 ms"), (2_410_000, "2.41 s"), (90_000_000, "2 min"), (7_200_000_000, "2 h")],
)
def test_spans_are_said_in_the_unit_that_fits(us: int, said: str) -> None:
    assert span(us) == said


def test_times_are_iso_8601_in_utc_to_the_microsecond() -> None:
    assert iso(1_800_000_000_000_001) == "2027-01-15T08:00:00.000001Z"
    assert iso(0) == "1970-01-01T00:00:00.000000Z"
