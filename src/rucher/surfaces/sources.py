"""Reads `sources.toml`: who may hand events in at `/ingress/<name>`, how that is verified, and what it is stamped with.

Pure but for the file that `SourcesFile` looks at.

Called at start, by `rucher.surfaces.watching` when the file changes, and by `rucher sources`. No secret is in this file.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.events import CONTROL_PLANE, DEFAULT_GROUP, Trust
from rucher.protocol.livefile import LiveFile
from rucher.protocol.positions import KeyPath
from rucher.protocol.tomltext import (
    STRING,
    WHOLE,
    FileName,
    Kind,
    Reading,
    decode,
    load,
    refusal,
    suggestion,
    tables_of,
)
from rucher.surfaces.verification import MOST_TRUST, Scheme, public_key

DEFAULT_BYTES = 512 * 1024
MOST_BYTES = 1_000_000
"""The most that `max_bytes` may be: an event's body has at most a mebibyte."""
SOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,59}")
RESERVED = frozenset({CONTROL_PLANE, "agent", "cli", "notice", "schedule", "system"})
"""Sources that are the instance's own: what comes from outside must not look like them."""

_KEYS = (
    "name", "scheme", "principal", "trust", "group", "thread", "type", "text", "max_bytes", "rate", "public_key", "addresses",
)  # fmt: skip
_PRINCIPAL = re.compile(r"(?:agent|owner|partner|tool|user):[a-zA-Z0-9][a-zA-Z0-9:@._-]{0,150}")
_ADDRESS = re.compile(r"(?:agent:[a-z0-9][a-z0-9._-]*|group:[a-z0-9][a-z0-9._-]*:(?:\*|[a-z0-9][a-z0-9._-]*))")
_WORD = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_HEADER = re.compile(r"[A-Za-z0-9-]+")
_RATE = re.compile(r"([1-9][0-9]{0,6})/(s|min|h)")
_PERIODS = {"s": 1, "min": 60, "h": 3600}
_TRUSTS = {trust.word: trust for trust in Trust}
_TABLES = tables_of("source")
_TEXTS = Kind(
    lambda value: isinstance(value, str) or (isinstance(value, list) and all(isinstance(one, str) for one in value)),
    "text in quotes, or a list of them",
)


class Origin(StrEnum):
    """Where a value is taken from."""

    FIXED = "fixed"
    HEADER = "header"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class Pick:
    """A value of each event: always `what`, or what stands in the header or at the dotted path of the body that it names."""

    origin: Origin
    what: str


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `count` events in `period_s` seconds, and as many at once."""

    count: int
    period_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One `[[source]]`. `text` is the dotted path of what is shown as the event's text; empty: a rendering of the whole."""

    name: str
    scheme: Scheme
    principal: str
    trust: Trust
    group: Pick = Pick(Origin.FIXED, DEFAULT_GROUP)
    thread: Pick = Pick(Origin.FIXED, "")
    type: Pick | None = None
    text: str = ""
    max_bytes: int = DEFAULT_BYTES
    rate: Rate | None = None
    public_keys: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    """Whom an event of this source may itself be addressed to; a last `*` stands for any group of a surface."""


@dataclass(frozen=True, slots=True)
class Sources:
    """All that the file says. `version` is the SHA-256 of its bytes."""

    version: str
    by_name: Mapping[str, Source]


class SourcesFile(LiveFile[Sources]):
    """The sources in force, and the file they come from; without a file there are none."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises BadInput when it cannot be used."""
        super().__init__(path, lambda raw: parse_sources(decode(raw, path), path), "sources file", absent=b"")


def parse_sources(text: str, path: FileName) -> Sources:
    """The sources that the text says; raises BadInput as `path:line:column: what is wrong, what to do`, and how many more."""
    document = load(text, path, "[[source]]")
    reading = _Reading()
    reading.only_keys(document, ("source",), ())
    found = reading.sources(document)
    if reading.problems:
        raise refusal(path, text, reading.problems)
    return Sources(hashlib.sha256(text.encode()).hexdigest(), {source.name: source for source in found})


class _Reading(Reading):
    def sources(self, document: Mapping[str, Any]) -> list[Source]:
        tables = document.get("source", [])
        if not self.holds(tables, _TABLES, ("source",)):
            return []
        found = [self._source(table, ("source", number)) for number, table in enumerate(tables)]
        taken: set[str] = set()
        for number, source in enumerate(found):
            if source.name and source.name in taken:
                self.complain(
                    ("source", number, "name"), f"name {source.name!r} is taken by an earlier source; rename one"
                )
            taken.add(source.name)
        return found

    def _source(self, table: Mapping[str, Any], at: KeyPath) -> Source:
        self.only_keys(table, _KEYS, at)
        name, scheme = self._name(table, at), self._scheme(table, at)
        return Source(
            name=name,
            scheme=scheme or Scheme.STANDARD,
            trust=self._trust(table, scheme, at),
            principal=self._principal(table, name, at),
            group=self._group(table, "group", DEFAULT_GROUP, at),
            thread=self._group(table, "thread", "", at),
            type=self._type(table, at),
            text=self._path(table, at),
            max_bytes=self._max_bytes(table, at),
            rate=self._rate(table, at),
            public_keys=self._public_keys(table, scheme, at),
            addresses=self._addresses(table, at),
        )

    def _name(self, table: Mapping[str, Any], at: KeyPath) -> str:
        if "name" not in table:
            self.complain(at, 'this source has no name; add name = "...", the last part of its address')
            return ""
        name = self._word(table, "name", at)
        if name in RESERVED:
            self.complain((*at, "name"), f"{name!r} is the instance's own; choose another name")
        elif name is not None and not SOURCE_NAME.fullmatch(name):
            self.complain(
                (*at, "name"), f"{name!r} cannot be a name; use up to 60 small letters, digits, dashes and underscores"
            )
        return name or ""

    def _scheme(self, table: Mapping[str, Any], at: KeyPath) -> Scheme | None:
        known = [scheme.value for scheme in Scheme]
        if "scheme" not in table:
            self.complain(at, f"this source has no scheme; add scheme = one of {', '.join(known)}")
            return None
        word = self._word(table, "scheme", at)
        if word in known:
            return Scheme(word)
        if word is not None:
            self.complain((*at, "scheme"), f"{word!r} is no scheme; {suggestion(word, known)}")
        return None

    def _trust(self, table: Mapping[str, Any], scheme: Scheme | None, at: KeyPath) -> Trust:
        word = self._word(table, "trust", at)
        if word is None:
            return Trust.PARTNER
        trust = _TRUSTS.get(word)
        if trust is None:
            self.complain((*at, "trust"), f"{word!r} is no trust; {suggestion(word, _TRUSTS)}")
            return Trust.PUBLIC
        if scheme is not None and trust > (most := MOST_TRUST[scheme]):
            self.complain((*at, "trust"), f"the scheme {scheme.value} vouches for {most.word} at most; lower the trust")
        return trust

    def _principal(self, table: Mapping[str, Any], name: str, at: KeyPath) -> str:
        found = self._word(table, "principal", at)
        if found is None:
            return f"partner:{name}"
        if not _PRINCIPAL.fullmatch(found):
            self.complain(
                (*at, "principal"),
                f"{found!r} cannot be a principal; write partner:NAME, user:SURFACE:NAME or owner:NAME",
            )
        elif found.startswith("owner:") and table.get("trust") != Trust.OWNER.word:
            self.complain(
                (*at, "principal"), 'only with trust = "owner" does a source speak for an owner; add that line'
            )
        return found

    def _group(self, table: Mapping[str, Any], key: str, default: str, at: KeyPath) -> Pick:
        found = self._word(table, key, at)
        if found is None:
            return Pick(Origin.FIXED, default)
        pick = _pick(found)
        good = bool(_GROUP.fullmatch(pick.what)) if pick.origin is Origin.FIXED else bool(pick.what)
        if not good or pick.origin is Origin.HEADER:
            self.complain((*at, key), f"{found!r} is no {key}; write a name in small letters, or body:PATH")
        return pick

    def _type(self, table: Mapping[str, Any], at: KeyPath) -> Pick | None:
        found = self._word(table, "type", at)
        if found is None:
            return None
        pick = _pick(found)
        form = {Origin.FIXED: _WORD, Origin.HEADER: _HEADER, Origin.BODY: re.compile(".+")}[pick.origin]
        if not form.fullmatch(pick.what):
            self.complain((*at, "type"), f"{found!r} is no type; write a word, header:NAME or body:PATH")
        return pick

    def _path(self, table: Mapping[str, Any], at: KeyPath) -> str:
        found = self._word(table, "text", at)
        if found == "":
            self.complain(
                (*at, "text"), 'text names the field that is shown, as in text = "data.summary"; or leave it out'
            )
        return (found or "").removeprefix("body:")

    def _max_bytes(self, table: Mapping[str, Any], at: KeyPath) -> int:
        found = table.get("max_bytes", DEFAULT_BYTES)
        here = (*at, "max_bytes")
        if not self.holds(found, WHOLE, here):
            return DEFAULT_BYTES
        if not 1 <= found <= MOST_BYTES:
            self.complain(here, f"max_bytes is from 1 to {MOST_BYTES}")
        return int(found)

    def _rate(self, table: Mapping[str, Any], at: KeyPath) -> Rate | None:
        found = self._word(table, "rate", at)
        if found is None:
            return None
        parts = _RATE.fullmatch(found)
        if parts is None:
            self.complain((*at, "rate"), f'{found!r} is no rate; write it as in rate = "60/min" (s, min or h)')
            return None
        return Rate(int(parts[1]), _PERIODS[parts[2]])

    def _public_keys(self, table: Mapping[str, Any], scheme: Scheme | None, at: KeyPath) -> tuple[str, ...]:
        keys = self._texts(table, "public_key", at)
        if scheme is Scheme.ED25519 and not keys:
            self.complain(at, 'the scheme ed25519 needs public_key = "whpk_...", the key of who signs')
        if keys and scheme not in (Scheme.ED25519, None):
            self.complain((*at, "public_key"), "public_key belongs to the scheme ed25519; remove this line")
            return ()
        for key in keys:
            try:
                public_key(key)
            except BadInput as error:
                self.complain((*at, "public_key"), str(error))
        return keys

    def _addresses(self, table: Mapping[str, Any], at: KeyPath) -> tuple[str, ...]:
        found = self._texts(table, "addresses", at)
        for one in found:
            if not _ADDRESS.fullmatch(one):
                self.complain(
                    (*at, "addresses"), f"{one!r} is no address; write agent:NAME or group:SURFACE:GROUP (or *)"
                )
        return found

    def _texts(self, table: Mapping[str, Any], key: str, at: KeyPath) -> tuple[str, ...]:
        found = table.get(key, [])
        if not self.holds(found, _TEXTS, (*at, key)):
            return ()
        return (found,) if isinstance(found, str) else tuple(found)

    def _word(self, table: Mapping[str, Any], key: str, at: KeyPath) -> str | None:
        """The text under `key`; None when there is none, or when it is no text, which is then complained of."""
        found = table.get(key)
        if found is None or not self.holds(found, STRING, (*at, key)):
            return None
        return str(found)


def _pick(text: str) -> Pick:
    for origin in (Origin.HEADER, Origin.BODY):
        if text.startswith(f"{origin.value}:"):
            return Pick(origin, text.partition(":")[2])
    return Pick(Origin.FIXED, text)
