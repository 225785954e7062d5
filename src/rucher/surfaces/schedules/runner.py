"""Carries the schedules out: sleeps until the next is due, fires it or records why not, and obeys the owner's orders.

Run by the daemon. What fires is an ordinary event, which the rules send on; nothing here decides where to, or calls a model.
The clock on the wall may jump, and the machine may sleep: so nothing sleeps long without looking at both clock and file.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from rucher.protocol.backoff import surely
from rucher.protocol.errors import BadInput, RucherError
from rucher.protocol.events import Draft
from rucher.protocol.livefile import Refused, Reloaded
from rucher.protocol.ports import Appended, Clock
from rucher.surfaces.schedules.due import Missed, due, late_us, moment_of, next_planned
from rucher.surfaces.schedules.file import SchedulesFile
from rucher.surfaces.schedules.parse import warnings
from rucher.surfaces.schedules.plan import GateFailure, Occasion, Plan, Schedule, fire, note

LOOK_EVERY_S = 2.0
"""How often the file and the clock are looked at while nothing is due."""
AT_ONCE = 4
"""How many schedules are dealt with at the same time; the others wait for their turn."""
MOST_REASON = 500

log = structlog.get_logger()


class ScheduleStore(Protocol):
    """What schedules need of a store."""

    async def rows(self, statement: str, *parameters: Any) -> Sequence[Mapping[str, Any]]:
        """The rows of one named statement."""
        ...

    async def append(self, *drafts: Draft) -> tuple[Appended, ...]:
        """Commit all drafts in one transaction."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a gate says: whether the schedule fires this time, and what it printed."""

    opens: bool
    said: str


class Gate(Protocol):
    """Asks the script of a schedule; it costs no model call."""

    async def ask(self, schedule: Schedule, planned_at: int) -> Verdict:
        """The script's verdict; raises RucherError when it could not be had."""
        ...


@dataclass(slots=True)
class _Course:
    """Where one schedule stands: `after` is the last planned time that was dealt with, `next_at` when it fires next."""

    schedule: Schedule
    after: int
    paused: bool
    next_at: int | None = None
    busy: bool = False

    def __post_init__(self) -> None:
        self.go_on(self.after)

    def go_on(self, after: int) -> None:
        """Everything up to this planned time was dealt with."""
        self.after = after
        planned = next_planned(self.schedule, after)
        self.next_at = None if planned is None else moment_of(self.schedule, planned)

    @property
    def waits(self) -> bool:
        """Whether its time will come."""
        return self.schedule.enabled and not self.paused and not self.busy and self.next_at is not None


class Schedules:
    """All schedules of an instance. One daemon runs them; their orders come from its interface."""

    def __init__(self, store: ScheduleStore, clock: Clock, file: SchedulesFile, gate: Gate, tenant: str) -> None:
        self._store = store
        self._clock = clock
        self._file = file
        self._gate = gate
        self._tenant = tenant
        self._courses: dict[str, _Course] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Fire until cancelled."""
        async with asyncio.TaskGroup() as group:
            await self._begin()
            while True:
                await self._look_at_file()
                await self._clock.sleep(self._look(group))

    async def pause(self, name: str, key: str, by: str) -> None:
        """Let the schedule not fire until it is resumed; what is due meanwhile is not made up. Raises BadInput."""
        course = self._course(name)
        await self._obey("schedule.paused", f"{name}:{key}", {"schedule": name, "by": by})
        course.paused = True

    async def resume(self, name: str, key: str, by: str) -> None:
        """Let the schedule fire again from now on. Raises BadInput."""
        course = self._course(name)
        await self._obey("schedule.resumed", f"{name}:{key}", {"schedule": name, "by": by})
        if course.paused:
            course.paused = False
            course.go_on(self._clock.now())

    async def fire_now(self, name: str, key: str, by: str) -> Appended:
        """Fire the schedule once, beside its planned times and past its gate; again with the same key it is the same fire.

        Raises BadInput when there is no such schedule, or it cannot be kept.
        """
        course, now = self._course(name), self._clock.now()
        said, record = fire(self._tenant, Occasion(course.schedule, now, now, key=f"now:{key}", by=by))
        return (await self._store.append(said, record))[0]

    def _course(self, name: str) -> _Course:
        if name not in self._courses:
            raise BadInput(f"there is no schedule {name[:60]!r}; see `rucher schedules list`")
        return self._courses[name]

    async def _begin(self) -> None:
        """Take up where the last daemon stopped; a file that was changed since is recorded as taken now."""
        plan = self._file.current
        rows = await self._rows()
        if {name: (row["course"], row["version"]) for name, row in rows.items()} != {
            one.id: (one.course, plan.version) for one in plan.schedules
        }:
            await self._take(plan)
        else:
            self._set_out(plan, rows)

    async def _look_at_file(self) -> None:
        match self._file.check():
            case Reloaded(plan):
                await self._take(plan)
            case Refused(reason):
                await self._note("schedules.refused", str(self._clock.now()), {"reason": reason})
            case None:
                pass

    async def _take(self, plan: Plan) -> None:
        now = self._clock.now()
        body = {
            "version": plan.version, "schedules": {one.id: one.course for one in plan.schedules},
            "warnings": warnings(plan, now),
        }  # fmt: skip
        await self._note("schedules.applied", f"{plan.version}:{now}", body)
        self._set_out(plan, await self._rows())

    def _set_out(self, plan: Plan, rows: Mapping[str, Mapping[str, Any]]) -> None:
        # A task that still deals with a course which is no longer among these sees it, and stops.
        self._courses = {
            one.id: _Course(one, rows[one.id]["reached"], bool(rows[one.id]["paused"])) for one in plan.schedules
        }

    async def _rows(self) -> dict[str, Mapping[str, Any]]:
        found = await surely(self._clock, lambda: self._store.rows("schedules.all"))
        return {row["schedule"]: row for row in found}

    def _look(self, group: asyncio.TaskGroup) -> float:
        """Begin what is due; returns for how many seconds there is nothing to do."""
        now, wake = self._clock.now(), self._clock.now() + round(LOOK_EVERY_S * 1e6)
        for name, course in self._courses.items():
            if course.after > now and not course.busy:
                # The clock was set back. What fired is in the ledger, and does not fire again.
                course.go_on(now)
            if not course.waits or course.next_at is None:
                continue
            if course.next_at <= now:
                course.busy = True
                group.create_task(self._deal_with(course, now), name=f"schedule {name}")
            else:
                wake = min(wake, course.next_at)
        return (wake - now) / 1e6

    async def _deal_with(self, course: _Course, now: int) -> None:
        """Do what is due; whatever goes wrong with one schedule is recorded, and its series goes on."""
        async with self._turns:
            schedule, last = course.schedule, now
            try:
                last = await self._catch_up(course, now)
            except Exception as error:  # noqa: BLE001 - one schedule's fault must not stop the others; it is recorded
                await self._failed(schedule, now, error)
            course.busy = False
            course.go_on(max(course.after, last))

    async def _catch_up(self, course: _Course, now: int) -> int:
        """Fire what is due and note what was missed; returns how far that brings the schedule."""
        schedule = course.schedule
        todo = due(schedule, course.after, now)
        if todo.missed:
            await self._missed(schedule, todo.missed)
        for planned in todo.fire:
            if not self._goes_on(course):
                break
            try:
                await self._fire(course, Occasion(schedule, planned, now, late_us(schedule, planned, now)))
            except Exception as error:  # noqa: BLE001 - one failing fire must not stop the series; it is recorded
                await self._failed(schedule, planned, error)
        return todo.last

    async def _fire(self, course: _Course, occasion: Occasion) -> None:
        schedule, planned = course.schedule, occasion.planned_at
        before = await surely(self._clock, lambda: self._store.rows("fire.get", schedule.id, planned))
        if before and before[0]["state"] != "missed":
            return
        said, reason = "", ""
        if schedule.gate:
            try:
                verdict = await self._gate.ask(schedule, planned)
            except RucherError as error:
                if schedule.gate_fails is GateFailure.SKIP:
                    await self._failed(schedule, planned, error)
                    return
                reason = f"its gate failed: {error}"[:MOST_REASON]
            else:
                if not verdict.opens:
                    body = {"schedule": schedule.id, "planned_at": planned, "reason": verdict.said}
                    await self._note("schedule.gated", f"{schedule.id}:{planned}", body)
                    return
                said = verdict.said
            if not self._goes_on(course):
                return
        drafts = fire(self._tenant, occasion, said, reason)
        await surely(self._clock, lambda: self._store.append(*drafts))

    async def _missed(self, schedule: Schedule, missed: Missed) -> None:
        body = {
            "schedule": schedule.id, "first": missed.first, "last": missed.last, "times": missed.times,
            "reason": f"nobody could fire it in time (misfire = {schedule.misfire})",
        }  # fmt: skip
        await self._note("schedule.missed", f"{schedule.id}:{missed.first}:{missed.last}", body)

    async def _failed(self, schedule: Schedule, planned: int, error: Exception) -> None:
        reason = str(error) if isinstance(error, RucherError) else f"{type(error).__name__}: {error}"
        log.warning("a schedule could not fire", schedule=schedule.id, reason=reason)
        body = {"schedule": schedule.id, "planned_at": planned, "reason": reason[:MOST_REASON]}
        try:
            await self._note("schedule.failed", f"{schedule.id}:{planned}", body)
        except RucherError as unwritten:
            log.warning("a schedule's failure could not be recorded", schedule=schedule.id, reason=str(unwritten))

    def _goes_on(self, course: _Course) -> bool:
        """Whether the schedule still stands in the file as this course knows it, and was not paused."""
        return self._courses.get(course.schedule.id) is course and not course.paused

    async def _obey(self, kind: str, key: str, body: Mapping[str, Any]) -> None:
        await self._store.append(note(self._tenant, kind, key, self._clock.now(), body))

    async def _note(self, kind: str, key: str, body: Mapping[str, Any]) -> None:
        draft = note(self._tenant, kind, key, self._clock.now(), body)
        await surely(self._clock, lambda: self._store.append(draft))
