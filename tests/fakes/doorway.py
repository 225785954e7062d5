"""A door on a real socket, over a real store, with nobody behind it: for tests of what may come in."""

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from rucher.daemon.entrance import open_entrance
from rucher.daemon.registrystore import StoredRegistry
from rucher.daemon.serve import listen, serve
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import Secret, write_secrets
from rucher.journal.store import open_store
from rucher.protocol.clock import SystemClock, SystemEntropy
from rucher.protocol.events import Event
from rucher.protocol.ports import Appended
from rucher.surfaces.ingress import IncomingEvent, Ingress
from rucher.surfaces.sources import SourcesFile
from rucher.surfaces.verification import Scheme
from tests.fakes.senders import PUBLIC_KEY, SECRETS, Sent

if TYPE_CHECKING:
    from rucher.control.doors import Accept

ALL = "".join(
    f'[[source]]\nname = "{scheme.value}"\nscheme = "{scheme.value}"\n'
    + (f'public_key = "{PUBLIC_KEY}"\n' if scheme is Scheme.ED25519 else "")
    for scheme in Scheme
)
"""One source a scheme, named as it."""


async def _inside(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("inside")(scope, receive, send)


class Doorway:
    """The door, as its senders and its owner see it."""

    def __init__(self, instance: Instance, port: int) -> None:
        self.instance = instance
        self.port = port
        self.before: Accept | None = None
        """Asked in place of the ingress, when a test sets it."""
        self.loop = asyncio.new_event_loop()
        self.ready = threading.Event()
        self.taken: Accept
        self._read: Callable[[], Awaitable[Sequence[Event]]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, source: str, sent: Sent) -> httpx2.Response:
        """What the door answers."""
        return httpx2.post(
            f"{self.url}/ingress/{source}", content=sent.body, headers=dict(sent.headers), timeout=30, trust_env=False
        )

    def refused(self, source: str, sent: Sent, status: int) -> str:
        """The one line of a refusal, after which nothing more is in the journal than before."""
        before = len(self.appended())
        response = self.post(source, sent)
        assert response.status_code == status, response.text
        assert len(self.appended()) == before
        return detail(response)

    def raw(self, *parts: bytes, read: bool = True) -> bytes:
        """What comes back on a connection on which these bytes are written."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            for part in parts:
                connection.sendall(part)
            answer = b""
            while read and (more := connection.recv(65536)):
                answer += more
            return answer

    def appended(self) -> Sequence[Event]:
        """All that is in the journal, but the control plane's own."""
        return [event for event in self.read() if event.source != "rucher"]

    def read(self) -> Sequence[Event]:
        """All that is in the journal."""

        async def reading() -> Sequence[Event]:
            return await self._read()

        return asyncio.run_coroutine_threadsafe(reading(), self.loop).result(30)

    def counts(self, source: str) -> Mapping[str, Any]:
        """The counts of one source."""
        return self.entrance.tallies.of(source)

    async def run(self) -> None:
        """Serve until cancelled."""
        clock = SystemClock()
        async with open_store(self.instance.journal, clock) as store:
            self._read = lambda: store.read(0, 100_000)
            ingress = Ingress(
                store, clock, SystemEntropy(), "local", lambda: {"scribe"}, StoredRegistry(store, "public")
            )
            self.entrance = open_entrance(
                self.instance, store, clock, ingress, SourcesFile(self.instance.sources), "local"
            )
            self.taken = ingress.accept_event

            async def accept(incoming: IncomingEvent) -> Appended:
                return await (self.before or self.taken)(incoming)

            ingress.accept_event = accept  # type: ignore[method-assign] # a test may stand in the way
            with listen(self.port, "here") as listener:
                self.ready.set()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(serve(self.entrance.doors(_inside), listener))
                    tasks.create_task(self.entrance.book.run())


@contextmanager
def doorway(folder: Path, sources: str = ALL) -> Iterator[Doorway]:
    """An open door with these sources, each of which has the secret of the scheme it is named after."""
    instance = Instance(folder)
    instance.state.mkdir(parents=True)
    instance.sources.write_text(sources)
    for scheme in Scheme:
        if scheme is not Scheme.ED25519:
            write_secrets(instance.secrets / "sources" / scheme.value, [Secret(SECRETS[scheme])])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        here = Doorway(instance, probe.getsockname()[1])
    thread = threading.Thread(target=here.loop.run_until_complete, args=(_until_cancelled(here),))
    thread.start()
    try:
        assert here.ready.wait(30)
        yield here
    finally:
        here.loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(here.loop)])
        thread.join(30)
        here.loop.close()


def detail(response: httpx2.Response) -> str:
    """The one line with which a request was refused."""
    assert response.headers["content-type"] == "application/problem+json"
    told = json.loads(response.content)
    assert told["status"] == response.status_code
    assert "\n" not in told["detail"]
    return str(told["detail"])


async def _until_cancelled(here: Doorway) -> None:
    try:
        await here.run()
    except asyncio.CancelledError:
        return
