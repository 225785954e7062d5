"""Regular expressions of an owner's file, tried on text from outside for a bounded time. Pure, but for that bound.

Built by `rucher.router.conditions` and its neighbours. An expression that takes too long faults the rule for that one event.
"""

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache

import regex

from rucher.protocol.errors import BadInput, Permanent

LOOKED_AT = 4096
"""Characters of a text that an expression is tried on."""

LONGEST_S = 0.02
"""Seconds of processor time that one expression has for one text."""

_REMEMBERED = 4096
_FUZZY = re.compile(r"(?<!\\)(?:\\\\)*\{(?![0-9,])")
"""What `re` takes for a brace and `regex` for the beginning of a word about likeness."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression in the words of Python's `re`, as the file says it."""

    source: str

    def found_in(self, text: str, among: int = 1) -> bool:
        """Whether it is found in the beginning of the text. Raises Permanent when that takes too long to tell.

        `among` texts of one event share the time.
        """
        try:
            return _compiled(self.source).search(text[:LOOKED_AT], timeout=LONGEST_S / among) is not None
        except TimeoutError as error:
            raise Permanent(
                f"the expression {self.source!r} took longer than {LONGEST_S * 1000:.0f} ms on this event; simplify it"
            ) from error


def expression(key: str, source: str) -> Expression:
    """What `key = source` says; raises BadInput, without a place, for what is no regular expression or is doubtful.

    `re` judges, as it is much quicker at that; `regex`, which knows the same words, is what can be stopped.
    """
    try:
        _judge(source)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        raise BadInput(
            f"{key} = {source!r} is not a regular expression: {error}; correct it or put it in '...'"
        ) from error
    return Expression(source)


@lru_cache(_REMEMBERED)
def _judge(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        re.compile(source)
    if _FUZZY.search(source):
        raise re.error("a brace that counts nothing; write \\{ for the character")


@lru_cache(_REMEMBERED)
def _compiled(source: str) -> "regex.Pattern[str]":
    return regex.compile(source, cache_pattern=False)
