"""What an act returns, and how much of it: every act makes an Acted, every text is cut here.

The runner writes it to the mailbox; nothing here touches a file.
"""

from typing import NamedTuple

from rucher.mailbox.rows import Outcome

OUTPUT_BYTES = 64 * 1024
"""Bytes of UTF-8 that one call may hand back."""


class Failure(Exception):
    """The call cannot be done; its text says why and what to do, to the model that asked."""


class Acted(NamedTuple):
    """How a call ended, ready for the mailbox."""

    outcome: Outcome
    text: str
    truncated: bool = False


def succeeded(text: str, *, truncated: bool = False) -> Acted:
    """The call did what it was asked."""
    return Acted(Outcome.OK, text, truncated)


def failed(text: str, *, truncated: bool = False) -> Acted:
    """The call did not do what it was asked."""
    return Acted(Outcome.ERROR, text, truncated)


def shown(raw: bytes) -> str:
    """Bytes as text that JSON, a model and a person can take: what is not UTF-8 becomes U+FFFD."""
    return raw.decode("utf-8", "replace")


def shown_name(name: str) -> str:
    """A file name as text; bytes that are not UTF-8 become `\\xNN`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def lines_that_fit(lines: list[str], room: int = OUTPUT_BYTES) -> list[str]:
    """As many whole lines from the start as fit in `room` bytes of UTF-8."""
    taken = 0
    for number, line in enumerate(lines):
        taken += len(line.encode("utf-8", "replace")) + 1
        if taken > room:
            return lines[:number]
    return lines
