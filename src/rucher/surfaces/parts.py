"""Cuts a text into pieces that a surface can show, each within its limit. Pure.

Called by channels for their parts. The texts of the pieces, joined, are the text again. What is shown of a piece may have more:
the fence that closes a block of code at its end, and the one that opens it again at its beginning. No cut falls inside a
character as people see it, nor inside a short span of Markdown such as a link, unless that alone is beyond the limit.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import regex

from rucher.protocol.errors import BadInput

Measure = Callable[[str], int]


def characters(text: str) -> int:
    """The length in characters (code points)."""
    return len(text)


def utf16_units(text: str) -> int:
    """The length in UTF-16 code units, in which some platforms count: an emoji has two or more."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_bytes(text: str) -> int:
    """The length in bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))


def as_it_is(text: str) -> str:
    """The escaping of a surface that needs none."""
    return text


@dataclass(frozen=True, slots=True)
class Piece:
    """`text` is a stretch of the original; `opens` and `closes` are fences that are shown around it."""

    text: str
    opens: str = ""
    closes: str = ""

    @property
    def shown(self) -> str:
        """What the surface is to show."""
        return self.opens + self.text + self.closes


_MOST_SPAN = 300
_CLUSTER = regex.compile(r"\X")
_SPAN = re.compile(
    rf"(?P<code>`+)[^\n]{{1,{_MOST_SPAN}}}?(?P=code)"
    rf"|!?\[[^\]\n]{{0,{_MOST_SPAN}}}\]\([^)\n]{{0,{_MOST_SPAN}}}\)"
    rf"|(?P<mark>\*\*\*|\*\*|__|~~|\*|_)(?=\S)[^\n]{{1,{_MOST_SPAN}}}?(?<=\S)(?P=mark)"
)
_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})(?P<info>[^\n]*)\n?", re.MULTILINE)
_FENCE_HEAD = re.compile(r" {0,3}(?:`{3}|~{3})")
_BREAKS = tuple(
    re.compile(pattern)
    for pattern in (r"\n[ \t]*\n+", r"\n", r"[.!?\u2026]+[)\"'\u201d\u2019]*\s+|[\u3002\uff01\uff1f]", r"\s+")
)
"""Where a cut is best, after a match: paragraph, line, sentence, word."""
_LEAST_SHARE = 4
"""A better place is taken when the piece then still fills one part in so many."""


def split(
    text: str,
    limit: int,
    measure: Measure = characters,
    escape: Callable[[str], str] = as_it_is,
    *,
    markdown: bool = False,
) -> tuple[Piece, ...]:
    """The pieces of `text`, of which each is shown in at most `limit` by `measure` once it is escaped.

    Raises BadInput when one character alone is beyond the limit.
    """
    cutter = _Cutter(text, lambda shown: measure(escape(shown)) <= limit, limit, markdown=markdown)
    return tuple(cutter.pieces())


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block of code: where its first line begins and ends, and where its closing line begins."""

    start: int
    inner: int
    end: int
    mark: str
    info: str


@dataclass(slots=True)
class _Cutter:
    text: str
    fits: Callable[[str], bool]
    limit: int
    markdown: bool
    clusters: Sequence[int] = field(init=False)
    spans: Sequence[tuple[int, int]] = field(init=False)
    blocks: Sequence[_Block] = field(init=False)

    def __post_init__(self) -> None:
        self.clusters = [found.start() for found in _CLUSTER.finditer(self.text)]
        blocks = list(_blocks(self.text)) if self.markdown else []
        # Fences that leave no room for code are not opened again.
        self.blocks = blocks if all(self.fits(_around(block) * 2) for block in blocks) else []
        self.spans = sorted(self._unbroken()) if self.markdown else []

    def pieces(self) -> Iterator[Piece]:
        start, opens = 0, ""
        while start < len(self.text) or start == 0:
            end = self._end(start, opens)
            block = self._block_at(end)
            closes = _closing(self.text[start:end], block) if block else ""
            yield Piece(self.text[start:end], opens, closes)
            start, opens = end, (f"{block.mark}{block.info}\n" if block else "")
            if start == len(self.text):
                return

    def _end(self, start: int, opens: str) -> int:
        rest = len(self.text)
        if self._room(start, rest, opens):
            return rest
        low, high = start, min(rest, start + self.limit)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._room(start, middle, opens) else (low, middle - 1)
        if low == start:
            raise BadInput(f"the character at {start} is beyond the limit of {self.limit}; choose a greater limit")
        return self._best(start, low)

    def _room(self, start: int, end: int, opens: str) -> bool:
        """Whether this stretch fits with the longest fence that it may need at its end."""
        around = max(
            (block.mark for block in self.blocks if block.start < end and block.end > start), key=len, default=""
        )
        closes = f"\n{around}" if around and end < len(self.text) else ""
        return self.fits(opens + self.text[start:end] + closes)

    def _best(self, start: int, most: int) -> int:
        least = start + (most - start) // _LEAST_SHARE
        for pattern in _BREAKS:
            ends = (found.end() for found in pattern.finditer(self.text, least, min(len(self.text), most + 1)))
            good = [end for end in ends if least < end <= most and self._whole(end)]
            if good:
                return good[-1]
        for end in range(most, start, -1):
            if self._whole(end):
                return end
        cluster = self.clusters[bisect_right(self.clusters, most) - 1]
        return cluster if cluster > start else most

    def _whole(self, place: int) -> bool:
        """Whether a cut here cuts no character as people see it and no span, and begins no block of code."""
        number = bisect_right(self.clusters, place) - 1
        if place < len(self.text) and self.clusters[number] != place:
            return False
        if self.markdown and self.text[place - 1] != "\n" and _FENCE_HEAD.match(self.text, place):
            return False
        near = bisect_right(self.spans, (place, len(self.text)))
        return not any(begin < place < end for begin, end in self.spans[max(0, near - 2) : near])

    def _block_at(self, place: int) -> _Block | None:
        if place == len(self.text):
            return None
        number = self._number(place)
        block = self.blocks[number] if number >= 0 else None
        return block if block and block.inner <= place < block.end else None

    def _number(self, place: int) -> int:
        """Which block is the last one that begins at this place or before; -1 for none."""
        return bisect_right(self.blocks, place, key=lambda block: block.start) - 1

    def _unbroken(self) -> Iterator[tuple[int, int]]:
        yield from ((block.start, block.inner) for block in self.blocks)
        for found in _SPAN.finditer(self.text):
            number = self._number(found.start())
            if number < 0 or found.start() >= self.blocks[number].end:
                yield found.span()


def _blocks(text: str) -> Iterator[_Block]:
    """The fenced blocks of a text; one that nothing closes goes on to the end."""
    opening: re.Match[str] | None = None
    for found in _FENCE.finditer(text):
        if opening is None:
            if "`" not in found["info"] or not found["mark"].startswith("`"):
                opening = found
        elif found["mark"].startswith(opening["mark"]) and not found["info"].strip():
            yield _Block(opening.start(), opening.end(), found.start(), opening["mark"], opening["info"])
            opening = None
    if opening is not None:
        yield _Block(opening.start(), opening.end(), len(text), opening["mark"], opening["info"])


def _around(block: _Block) -> str:
    return f"{block.mark}{block.info}\n\n{block.mark}"


def _closing(shown: str, block: _Block) -> str:
    return block.mark if shown.endswith("\n") else f"\n{block.mark}"
