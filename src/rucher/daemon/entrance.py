"""Wires the door for strangers: the sources in force, their secrets on disk, their counts, and the ingress behind them."""

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.types import ASGIApp

from rucher.control.doors import Doors
from rucher.control.sources import source_calls
from rucher.control.tallies import Tallies
from rucher.instance.layout import Instance
from rucher.instance.secretfiles import read_secrets, source_secrets, state_of, valid
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
        return valid(read_secrets(source_secrets(self.instance, name)), self.clock.now())


def open_entrance(
    instance: Instance, journal: Journal, clock: Clock, ingress: Ingress, sources: SourcesFile, tenant: str
) -> Entrance:
    """The entrance of an instance; nothing is read but when something arrives."""
    book, tallies = SourceBook(journal, clock, sources, tenant), Tallies()
    calls = source_calls(book, tallies, lambda name: state_of(source_secrets(instance, name), clock.now()))
    return Entrance(book, calls, instance, clock, ingress, tallies)
