"""The sources in force: looks at `sources.toml` while the daemon runs, and records what became of each change of it.

Asked by `rucher.control.doors` at each delivery, and run by the daemon so that a change is recorded when nothing arrives.
"""

from rucher.protocol.backoff import surely
from rucher.protocol.events import Draft, control_event
from rucher.protocol.ids import derived
from rucher.protocol.livefile import Refused, Reloaded
from rucher.protocol.ports import Clock, Journal
from rucher.surfaces.sources import Source, Sources, SourcesFile

CHECK_EVERY_S = 1.0


class SourceBook:
    """Which sources there are now; a file that cannot be used leaves those that there were."""

    def __init__(self, journal: Journal, clock: Clock, file: SourcesFile, tenant: str) -> None:
        self._journal = journal
        self._clock = clock
        self._file = file
        self._tenant = tenant
        self._untold: list[Draft] = []

    @property
    def sources(self) -> Sources:
        """What is in force."""
        return self._file.current

    def find(self, name: str) -> Source | None:
        """The source of this name, by the file as it is now."""
        self._look()
        return self._file.current.by_name.get(name)

    async def run(self) -> None:
        """Record what is in force, and then each change, until cancelled."""
        if self._file.current.by_name:
            self._applied(self._file.current, "start")
        while True:
            self._look()
            while self._untold:
                await self._record(self._untold[0])
                self._untold.pop(0)
            await self._clock.sleep(CHECK_EVERY_S)

    async def _record(self, draft: Draft) -> None:
        await surely(self._clock, lambda: self._journal.append(draft))

    def _look(self) -> None:
        match self._file.check():
            case Reloaded(sources):
                self._applied(sources, str(self._clock.now()))
            case Refused(reason):
                self._tell("sources.refused", str(self._clock.now()), {"reason": reason})
            case None:
                pass

    def _applied(self, sources: Sources, when: str) -> None:
        body: dict[str, object] = {"version": sources.version, "sources": sorted(sources.by_name)}
        self._tell("sources.applied", f"{sources.version}:{when}", body)

    def _tell(self, kind: str, key: str, body: dict[str, object]) -> None:
        self._untold.append(
            control_event(
                tenant=self._tenant,
                part="sources",
                kind=kind,
                key=key,
                trace_id=derived("trace", self._tenant, "sources", kind, key),
                occurred_at=self._clock.now(),
                body=body,
            )
        )
