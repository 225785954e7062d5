"""Wires the door for strangers: the sources in force, their secrets on disk, their counts, and the ingress behind them."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.types import ASGIApp

from rucher.control.doors import Doors
from rucher.control.sources import source_calls
from rucher.control.tallies import Tallies
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import read_secrets, valid
from rucher.protocol.errors import BadInput
from rucher.protocol.ports import Clock, Journal
from rucher.surfaces.ingress import Ingress
from rucher.surfaces.sources import SourcesFile
from rucher.surfaces.watching import SourceBook


@dataclass(frozen=True, slots=True)
class Entrance:
    """What the daemon needs of it: `book` is run, `calls` join the interface, and `doors` go around that."""

    book: SourceBook
    calls: APIRouter
    instance: Instance
    clock: Clock
    ingress: Ingress
    tallies: Tallies

    def doors(self, app: ASGIApp) -> ASGIApp:
        """The interface with the door before it."""
        return Doors(app, self.book, self._secrets, self.ingress.accept_event, self.clock, self.tallies)

    def _secrets(self, name: str) -> tuple[str, ...]:
        return valid(read_secrets(self.instance.secrets / "sources" / name), self.clock.now())


def open_entrance(
    instance: Instance, journal: Journal, clock: Clock, ingress: Ingress, sources: SourcesFile, tenant: str
) -> Entrance:
    """The entrance of an instance; nothing is read but when something arrives."""
    book, tallies = SourceBook(journal, clock, sources, tenant), Tallies()
    calls = source_calls(book, tallies, lambda name: secret_state(instance, name, clock.now()))
    return Entrance(book, calls, instance, clock, ingress, tallies)


def secret_state(instance: Instance, name: str, now: int) -> str:
    """How it is with a source's secrets: how many count now, or why none can be read."""
    try:
        count = len(valid(read_secrets(instance.secrets / "sources" / name), now))
    except BadInput as error:
        return str(error)
    return {0: "none", 1: "one"}.get(count, f"{count}, while the old ones count still")
