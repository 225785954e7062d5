"""128-bit ids, printed as 26 characters of Crockford base 32.

A made id is a ULID (48 bits of milliseconds, 80 random bits), so that ids sort by time. A derived id is a hash of what
it names, so that the same thing named twice has the same id. The id of a trace begins with the second in which it began, and
the ids of what is caused in it begin alike: so what is written together lies together in every index, however long the journal.
The ULID layout is that of https://github.com/ulid/spec.
"""

import hashlib
import re

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {char: value for value, char in enumerate(ALPHABET)}
_PATTERN = re.compile(r"[0-7][0-9A-HJKMNP-TV-Z]{25}")
_PAIRS = tuple(a + b for a in ALPHABET for b in ALPHABET)
_SHARED_CHARS = 6
_SECOND_BITS, _HASH_BITS = 28, 100
_KEPT_CHARS = 21


def encode(value: int) -> str:
    """Print 128 bits as 26 characters."""
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def decode(text: str) -> int:
    """Read 26 characters back as 128 bits; raises ValueError for anything else."""
    if not is_id(text):
        raise ValueError(f"{text!r} is not an id: 26 characters of Crockford base 32 are expected")
    value = 0
    for char in text:
        value = value * 32 + _VALUES[char]
    return value


def is_id(text: str) -> bool:
    """Whether text has the form of an id."""
    return _PATTERN.fullmatch(text) is not None


def derived(*parts: str) -> str:
    """The id that stands for these parts in this order; ("ab", "c") differs from ("a", "bc")."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big") + raw)
    return encode(int.from_bytes(digest.digest(), "big"))


def begun(at_us: int, *parts: str) -> str:
    """The id of a trace that begins at this moment by these parts: 28 bits of the second, then 100 bits of a hash.

    The seconds begin anew every eight years; they keep ids of the same time together and say nothing.
    """
    second = at_us // 1_000_000 % 2**_SECOND_BITS
    return encode(second << _HASH_BITS)[:_SHARED_CHARS] + derived(*parts)[_SHARED_CHARS:]


def caused(cause: str, *parts: str) -> str:
    """The id that stands for these parts of what `cause` led to: the first 6 characters of `cause`, then 100 bits of a hash."""
    return cause[:_SHARED_CHARS] + derived(cause, *parts)[_SHARED_CHARS:]


def nested(run_id: str, place: int) -> str:
    """The id of the event at `place` (0 to 2^25 - 1) of a run's log: the run's own id with its last 5 characters replaced.

    105 bits of the run's id stay, so that an event can be told from those of all other runs, and its run be found by it.
    """
    return run_id[:_KEPT_CHARS] + ALPHABET[place >> 20] + _PAIRS[place >> 10 & 1023] + _PAIRS[place & 1023]


def ulid(now_us: int, randomness: bytes) -> str:
    """A ULID from microseconds since the epoch and 10 random bytes."""
    return encode(((now_us // 1000) & (2**48 - 1)) << 80 | int.from_bytes(randomness, "big"))
