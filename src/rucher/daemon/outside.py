"""The destinations of `destinations.toml` while the daemon runs: their deliverers, always those of the file in force.

Wired by the daemon: delivery and the rules ask here what there is; nothing here sends anything.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey
from typing_extensions import override

from rucher.instance.layout import Instance
from rucher.instance.secretfiles import read_secrets, valid
from rucher.protocol.backoff import surely
from rucher.protocol.errors import BadInput, Permanent, Retryable
from rucher.protocol.events import Event, control_event
from rucher.protocol.ids import derived
from rucher.protocol.livefile import LiveFile, Refused, Reloaded
from rucher.protocol.ports import Clock, Deliverer, Journal
from rucher.protocol.replies import is_reply
from rucher.router.dispatch import Destination, Hop
from rucher.surfaces.channels.file import FileChannel, FilePlace
from rucher.surfaces.channels.instance import InstanceChannel, Node
from rucher.surfaces.channels.webhook import WebhookChannel, WebhookPlace, key_of
from rucher.surfaces.destinations import Places, Remote, parse
from rucher.surfaces.posting import Target

WHAT = "destinations file"
CHECK_EVERY_S = 1.0
"""How often the file is looked at."""


def open_places(instance: Instance, agents: Collection[str]) -> LiveFile[Places]:
    """The instance's destinations; an instance needs no such file. Raises BadInput when it cannot be used."""
    path = instance.destinations
    return LiveFile(path, lambda raw: parse(raw, path, agents), WHAT, absent=b"")


def webhook_secrets(instance: Instance, name: str) -> Path:
    """The file with the secrets that sign what goes to a webhook."""
    return instance.secrets / "webhooks" / name


class Outside:
    """All destinations outside: by kind and name their deliverers, and which agents run elsewhere."""

    def __init__(self, instance: Instance, name: str, key: SigningKey, journal: Journal, clock: Clock) -> None:
        """`name` and `key` are how other instances know this one. `load` it before anything is asked."""
        self._instance = instance
        self._journal = journal
        self._clock = clock
        self._node = Node(name, key, journal.event)
        self._deliverers: dict[str, dict[str, Deliverer]] = {}

    def take(self, places: Places) -> None:
        """Deliver by these from now on; what is under way goes on as it began."""
        self._deliverers = {
            "webhook": {name: self._webhook(name, places) for name in places.webhooks},
            "file": {
                name: FileChannel(FilePlace(one.path, one.format, make_folders=one.inside))
                for name, one in places.files.items()
            },
            "instance": {name: self._remote(one, None) for name, one in places.remotes.items()},
            "agent": {agent: self._remote(places.remotes[name], agent) for agent, name in places.at.items()},
        }

    def of(self, kind: str) -> Mapping[str, Deliverer]:
        """The deliverers of this kind, always those in force."""
        return _Live(lambda: self._deliverers[kind])

    def find(self, to: str) -> Deliverer | None:
        """The deliverer of `kind:name`; None when there is none outside."""
        kind, _, name = to.partition(":")
        return self._deliverers.get(kind, {}).get(name) if kind != "agent" else None

    def _webhook(self, name: str, places: Places) -> Deliverer:
        one = places.webhooks[name]
        target = Target(one.url, one.timeout_s, one.headers, one.ca)
        path = webhook_secrets(self._instance, name)

        def keys() -> Sequence[bytes]:
            try:
                return [key_of(secret, name) for secret in valid(read_secrets(path), self._clock.now())]
            except BadInput as error:
                raise Retryable(str(error)) from error

        return WebhookChannel(WebhookPlace(name, target, one.events, one.max_chars), keys, self._clock)

    def _remote(self, one: Remote, agent: str | None) -> Deliverer:
        return InstanceChannel(Target(one.url, one.timeout_s, {}, one.ca), self._node, self._clock, agent)


class _Live(Mapping[str, Deliverer]):
    """A mapping that is looked up anew each time."""

    def __init__(self, now: Callable[[], Mapping[str, Deliverer]]) -> None:
        self._now = now

    @override
    def __getitem__(self, name: str) -> Deliverer:
        return self._now()[name]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    @override
    def __len__(self) -> int:
        return len(self._now())


class Agents:
    """The destination of all hops to agents: those that run elsewhere are delivered there, all others have sessions here."""

    def __init__(self, here: Destination, elsewhere: Destination, away: Collection[str]) -> None:
        """`away` holds the names of agents that run elsewhere; it is asked at each hop."""
        self._here = here
        self._elsewhere = elsewhere
        self._away = away

    async def accept(self, hop: Hop, event: Event) -> Mapping[str, Any] | None:
        """Hand the hop on; raises what that raises, and Permanent for a question to an agent elsewhere."""
        if hop.to.partition(":")[2] not in self._away or is_reply(event):
            return await self._here.accept(hop, event)
        if event.type == "ask":
            raise Permanent(f"{hop.to} runs on another instance, where nobody can be asked yet: notify it instead")
        if hop.mode == "context":
            return {"detail": "not carried: the agent runs on another instance, which is sent only what wakes it"}
        return await self._elsewhere.accept(hop, event)


class PlacesWatch:
    """Looks at the file now and then; what is taken or refused is an event."""

    def __init__(self, file: LiveFile[Places], outside: Outside, journal: Journal, clock: Clock, tenant: str) -> None:
        """Take what the file says now."""
        self._file = file
        self._outside = outside
        self._journal = journal
        self._clock = clock
        self._tenant = tenant
        outside.take(file.current)

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._record("applied", "start", self._said(self._file.current))
        while True:
            await self._clock.sleep(CHECK_EVERY_S)
            match self._file.check():
                case Reloaded(places):
                    self._outside.take(places)
                    await self._record("applied", str(self._clock.now()), self._said(places))
                case Refused(reason):
                    await self._record("refused", str(self._clock.now()), {"reason": reason})
                case None:
                    pass

    def _said(self, places: Places) -> dict[str, Any]:
        return {
            "version": self._file.version,
            "destinations": sorted(places.names),
            "agents": dict(places.at),
        }

    async def _record(self, what: str, key: str, body: dict[str, Any]) -> None:
        kind, key = f"destinations.{what}", f"{body.get('version', '')}:{key}"
        draft = control_event(
            tenant=self._tenant, part="destinations", kind=kind, key=key,
            trace_id=derived("trace", self._tenant, "destinations", kind, key), occurred_at=self._clock.now(), body=body,
        )  # fmt: skip
        await surely(self._clock, lambda: self._journal.append(draft))
