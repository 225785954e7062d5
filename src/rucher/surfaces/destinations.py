"""Reads the text of `destinations.toml`: webhooks, files, other instances, and which agents run there. Pure; all or nothing.

Called at start, when the file changes, and by `rucher destinations check`. It holds no secret, and refuses what looks like one.
"""

import ipaddress
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

from rucher.protocol.positions import KeyPath
from rucher.protocol.tomltext import FLAG, STRING, WHOLE, Kind, Reading, decode, load, refusal, suggestion

T = TypeVar("T")
DEFAULT_TIMEOUT_S = 15.0
LONGEST_TIMEOUT_S = 100.0
_KINDS = ("webhook", "file", "instance", "agent")
_KEYS = {
    "webhook": ("url", "events", "headers", "timeout_s", "max_chars", "ca", "insecure"),
    "file": ("path", "format"),
    "instance": ("url", "source", "timeout_s", "ca", "insecure"),
    "agent": ("at",),
}
_FORMATS = ("jsonl", "text")
_OURS = ("state", "kernel")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie"})
_OWN_HEADERS = frozenset(
    {
        "host", "content-type", "content-length", "content-encoding", "transfer-encoding", "connection",
        "accept-encoding", "user-agent",
    }
)  # fmt: skip
_SECONDS = Kind(
    lambda value: isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_TIMEOUT_S,
    f"seconds, more than 0 and up to {LONGEST_TIMEOUT_S:g}",
)
_TYPES = Kind(
    lambda value: isinstance(value, list) and bool(value) and all(isinstance(item, str) and item for item in value),
    'a list of types, as in events = ["answer", "failure"]',
)
_TABLE = Kind(lambda value: isinstance(value, dict), "a table")


@dataclass(frozen=True, slots=True)
class Webhook:
    """`[webhook.NAME]`: an address that events are posted to, signed. `events`: the types it takes, none for all."""

    url: str
    events: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    max_chars: int | None = None
    ca: str = ""


@dataclass(frozen=True, slots=True)
class File:
    """`[file.NAME]`: a file that events are appended to; `inside` the instance's folder or elsewhere."""

    path: Path
    format: Literal["jsonl", "text"]
    inside: bool


@dataclass(frozen=True, slots=True)
class Remote:
    """`[instance.NAME]`: the door of another instance; `url` ends with the source that this one is there."""

    url: str
    timeout_s: float = DEFAULT_TIMEOUT_S
    ca: str = ""


@dataclass(frozen=True, slots=True)
class Places:
    """One accepted file. `at`: by an agent's name, the instance where it runs."""

    webhooks: Mapping[str, Webhook] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    at: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """What rules may name because of this file."""
        kinds = {"webhook": self.webhooks, "file": self.files, "instance": self.remotes}
        return frozenset(f"{kind}:{name}" for kind, places in kinds.items() for name in places)


def parse(raw: bytes, path: Path, agents: Collection[str]) -> Places:
    """The destinations that the file's bytes say; `agents` are those of this instance, whose folder holds the file.

    Raises BadInput with the first problem as `path:line:column: what is wrong, what to do`, and how many more.
    """
    text = decode(raw, path)
    document = load(text, path, "[webhook.NAME]")
    reading = _Reading(path.parent)
    reading.only_keys(document, _KINDS, ())
    places = Places(
        webhooks=reading.each(document, "webhook", reading.webhook),
        files=reading.each(document, "file", reading.file),
        remotes=reading.each(document, "instance", reading.remote),
        at=reading.each(document, "agent", reading.at),
    )
    reading.known(places, document.get("instance"), agents)
    if reading.problems:
        raise refusal(path, text, reading.problems)
    return places


class _Reading(Reading):
    """Reads one document and collects every problem with the key it is about; `root` is the instance's folder."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def each(
        self, document: Mapping[str, Any], kind: str, read: Callable[[Mapping[str, Any], KeyPath], T | None]
    ) -> dict[str, T]:
        """The sound ones of all `[kind.NAME]` tables."""
        tables = document.get(kind, {})
        if not self.holds(tables, _tables_of(kind), (kind,)):
            return {}
        found: dict[str, T] = {}
        for name, table in tables.items():
            path = (kind, name)
            if not _NAME.fullmatch(name):
                self.complain(
                    path, f"{name!r} cannot be a name; use small letters, digits, dots, dashes and underscores"
                )
            self.only_keys(table, _KEYS[kind], path)
            before = len(self.problems)
            one = read(table, path)
            if one is not None and len(self.problems) == before:
                found[name] = one
        return found

    def webhook(self, table: Mapping[str, Any], path: KeyPath) -> Webhook:
        """One `[webhook.NAME]`."""
        most = table.get("max_chars")
        if most is not None and self.holds(most, WHOLE, (*path, "max_chars")) and most < 1:
            self.complain((*path, "max_chars"), "max_chars must be 1 or more; leave it out for any length")
        events = table.get("events")
        return Webhook(
            url=self._url(table, path),
            events=tuple(events) if events is not None and self.holds(events, _TYPES, (*path, "events")) else (),
            headers=self._headers(table, path),
            timeout_s=self._timeout(table, path),
            max_chars=most,
            ca=self._ca(table, path),
        )

    def file(self, table: Mapping[str, Any], path: KeyPath) -> File | None:
        """One `[file.NAME]`."""
        form = table.get("format", "jsonl")
        if form not in _FORMATS:
            self.complain((*path, "format"), f"format must be {' or '.join(_FORMATS)}")
        written = self._text(table, "path", path, 'path = "notes/answers.jsonl"')
        if not written:
            return None
        place = Path(written)
        if ".." in place.parts or "\0" in written or written.endswith("/"):
            self.complain((*path, "path"), "path must name a file, without ..; write where it really is")
            return None
        whole = self._root / place
        inside = whole.is_relative_to(self._root)
        if inside and _is_ours(whole.relative_to(self._root)):
            self.complain(
                (*path, "path"), "this path belongs to Rucher itself; choose another in the instance's folder"
            )
        return File(whole, cast("Literal['jsonl', 'text']", form), inside)

    def remote(self, table: Mapping[str, Any], path: KeyPath) -> Remote:
        """One `[instance.NAME]`."""
        url = self._url(table, path).rstrip("/")
        source = self._text(
            table, "source", path, 'source = "NAME", what this instance is called in the other\'s sources.toml'
        )
        if source and not _NAME.fullmatch(source):
            self.complain((*path, "source"), f"{source!r} cannot be the name of a source; see the other's sources.toml")
        if url and urlsplit(url).query:
            self.complain((*path, "url"), "url is the other instance's address, without a query: https://HOST")
        return Remote(f"{url}/ingress/{source}", self._timeout(table, path), self._ca(table, path))

    def at(self, table: Mapping[str, Any], path: KeyPath) -> str | None:
        """Where one `[agent.NAME]` runs: the instance's name."""
        found = self._text(table, "at", path, 'at = "instance:NAME"')
        kind, _, name = found.partition(":")
        if found and (kind != "instance" or not name):
            self.complain((*path, "at"), 'at must be "instance:NAME"; remove the table to let the agent run here')
            return None
        return name

    def known(self, places: Places, written: object, agents: Collection[str]) -> None:
        """Complain of agents and instances that do not exist."""
        remotes = written if isinstance(written, Mapping) else {}
        for agent, remote in places.at.items():
            if agent not in agents:
                self.complain(("agent", agent), f"there is no agent {agent!r}; {suggestion(agent, agents)}")
            if remote not in remotes:
                self.complain(("agent", agent, "at"), f"there is no instance {remote!r}; {suggestion(remote, remotes)}")

    def _text(self, table: Mapping[str, Any], key: str, path: KeyPath, example: str) -> str:
        found = table.get(key)
        if found is None or found == "":
            self.complain(path if found is None else (*path, key), f"{key} is missing; add {example}")
            return ""
        return found if self.holds(found, STRING, (*path, key)) else ""

    def _url(self, table: Mapping[str, Any], path: KeyPath) -> str:
        found = self._text(table, "url", path, 'url = "https://..."')
        insecure = table.get("insecure", False)
        if (
            found
            and self.holds(insecure, FLAG, (*path, "insecure"))
            and (wrong := _wrong_with(found, insecure=insecure))
        ):
            self.complain((*path, "url"), wrong)
        return found

    def _headers(self, table: Mapping[str, Any], path: KeyPath) -> Mapping[str, str]:
        found = table.get("headers", {})
        here = (*path, "headers")
        if not self.holds(found, _TABLE, here):
            return {}
        for name, value in found.items():
            if wrong := _wrong_with_header(name, value):
                self.complain((*here, name), wrong)
        return dict(found)

    def _timeout(self, table: Mapping[str, Any], path: KeyPath) -> float:
        found = table.get("timeout_s", DEFAULT_TIMEOUT_S)
        return float(found) if self.holds(found, _SECONDS, (*path, "timeout_s")) else DEFAULT_TIMEOUT_S

    def _ca(self, table: Mapping[str, Any], path: KeyPath) -> str:
        found = table.get("ca", "")
        return str(self._root / found) if self.holds(found, STRING, (*path, "ca")) and found else ""


def _tables_of(kind: str) -> Kind:
    return Kind(
        lambda value: isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()),
        f"written as [{kind}.NAME] tables",
    )


def _is_ours(place: Path) -> bool:
    # Some file systems take Rules.toml for rules.toml.
    first = place.parts[0].lower()
    return first in _OURS or (len(place.parts) == 1 and first.endswith(".toml"))


def _wrong_with(url: str, *, insecure: bool) -> str:
    """What is wrong with an address, and what to do; empty when it can be posted to."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return f"{url!r} is no web address; write https://HOST/PATH"
    if parts.scheme not in ("https", "http") or not host or not url.isascii() or not url.isprintable() or " " in url:
        return "url is no web address; write https://HOST/PATH"
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "url must hold no user, no password and no fragment; who sends is proven by the signature"
    if parts.scheme == "http" and not insecure and not _is_loopback(host):
        return "url must begin with https:// unless it is on this machine; or say insecure = true, and anybody may read along"
    return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _wrong_with_header(name: str, value: object) -> str:
    """What is wrong with a header, and what to do; empty when it can be sent."""
    lower = name.lower()
    if not _TOKEN.fullmatch(name) or not isinstance(value, str) or not value.isascii() or not value.isprintable():
        return f"header {name!r} must be a name and a text of plain characters"
    if lower in _SECRET_HEADERS:
        return f"header {name!r} would put a secret into this file; the signature proves who sends"
    if lower in _OWN_HEADERS or lower.startswith("webhook-"):
        return f"header {name!r} is set by Rucher itself; leave it out"
    return ""
