"""Laws of cutting a message: nothing is lost, nothing is too long, and no character is cut."""

import html
import re
from collections.abc import Callable

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rucher.protocol.errors import BadInput
from rucher.surfaces.parts import Piece, as_it_is, characters, split, utf8_bytes, utf16_units

MEASURES: list[Callable[[str], int]] = [characters, utf16_units, utf8_bytes]
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
PIECES = st.sampled_from(
    [
        "word", " ", "\n", "\n\n", ". ", "```\n", "```py\n", "~~~\n", "`code`", "**bold words**", "[a link](http://x.example/y)",
        "<&>", "e\u0301", FAMILY, "\U0001f41d", "\r\n", "\u3002", "x" * 30, "1. item\n", "    ```\n", "````\n",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=200)


def clusters(text: str) -> set[int]:
    return {found.start() for found in regex.finditer(r"\X", text)} | {len(text)}


def ends(pieces: tuple[Piece, ...]) -> list[int]:
    lengths = [len(piece.text) for piece in pieces]
    return [sum(lengths[: number + 1]) for number in range(len(lengths))]


def fences(shown: str) -> int:
    """How many fences are open at the end, as a reader of Markdown sees them."""
    mark = ""
    for line in shown.split("\n"):
        found = re.match(r" {0,3}(`{3,}|~{3,})(.*)$", line)
        if not found:
            continue
        if mark:
            mark = "" if found[1].startswith(mark) and not found[2].strip() else mark
        elif "`" not in found[2] or found[1][0] != "`":
            mark = found[1]
    return int(bool(mark))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(60, 400), st.sampled_from(MEASURES), st.sampled_from([as_it_is, html.escape]), st.booleans())
@example("", 60, characters, as_it_is, True)  # noqa: FBT003 - Hypothesis takes examples by place
@example(FAMILY * 40, 61, utf16_units, as_it_is, False)  # noqa: FBT003 - the same
@example("e\u0301" * 100, 61, characters, as_it_is, True)  # noqa: FBT003 - the same
@example(f"`{FAMILY * 30}`", 63, characters, as_it_is, True)  # noqa: FBT003 - the same
@example("```py\n" + "x" * 300 + "\n```", 60, characters, as_it_is, True)  # noqa: FBT003 - the same
@example("```py\n" + "x\n" * 300 + "```", 61, characters, as_it_is, True)  # noqa: FBT003 - the same
def test_the_pieces_joined_are_the_text_and_each_is_within_the_limit_after_escaping(
    text: str,
    limit: int,
    measure: Callable[[str], int],
    escape: Callable[[str], str],
    markdown: bool,  # noqa: FBT001 - drawn
) -> None:
    pieces = split(text, limit, measure, escape, markdown=markdown)
    assert "".join(piece.text for piece in pieces) == text
    assert all(measure(escape(piece.shown)) <= limit for piece in pieces)
    assert all(piece.text for piece in pieces) or text == ""
    whole = clusters(text)
    assert all(end in whole for end in ends(pieces))


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.integers(60, 300))
@example("[a link](http://x.example/y)[a link](http://x.example/y)    ```\n", 60)
def test_a_block_of_code_that_is_cut_is_closed_and_opened_again(text: str, limit: int) -> None:
    pieces = split(text, limit, markdown=True)
    assert all(fences(piece.shown) == 0 for piece in pieces[:-1])
    assert fences(pieces[-1].shown) == fences(text)


@given(TEXTS, st.integers(1, 20), st.sampled_from(MEASURES))
def test_with_hardly_any_room_it_still_cuts_or_says_so_and_never_within_a_code_point(
    text: str, limit: int, measure: Callable[[str], int]
) -> None:
    try:
        pieces = split(text, limit, measure, markdown=True)
    except BadInput:
        pieces = ()
    if not pieces:
        assert max(map(measure, text)) > limit
        return
    assert "".join(piece.text for piece in pieces) == text
    assert all(measure(piece.shown) <= limit for piece in pieces)


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 9, ["one two ", "three"]),
        ("first one. second two.", 16, ["first one. ", "second two."]),
        ("a line\nanother line", 15, ["a line\n", "another line"]),
        ("para one\n\npara two. more", 20, ["para one\n\n", "para two. more"]),
        ("see [the link](http://x.example) now", 33, ["see [the link](http://x.example) ", "now"]),
        ("words and **bold words** here", 20, ["words and ", "**bold words** here"]),
        ("x" * 12, 5, ["xxxxx", "xxxxx", "xx"]),
    ],
)
def test_the_cut_is_at_a_paragraph_a_line_a_sentence_or_a_word_and_never_in_a_span(
    text: str, limit: int, expected: list[str]
) -> None:
    assert [piece.text for piece in split(text, limit, markdown=True)] == expected


def test_a_long_block_of_code_is_shown_as_code_in_each_piece() -> None:
    text = "before\n```py\n" + "".join(f"line_{number} = {number}\n" for number in range(20)) + "```\nafter"
    pieces = split(text, 70, markdown=True)
    assert len(pieces) > 3
    assert all(piece.opens == "```py\n" for piece in pieces[1:-1])
    assert all(piece.closes == "```" for piece in pieces[1:-1])


def test_a_text_of_a_quarter_million_characters_that_looks_like_markdown_is_cut_in_time() -> None:
    for unit in ("*", "[", "`a", "```\n", "_a ", "x"):
        text = unit * (250_000 // len(unit))
        assert "".join(piece.text for piece in split(text, 4096, utf16_units, html.escape, markdown=True)) == text
