"""REST for trying a destination: one real message, sent at once and outside the rules, and what became of it.

Part of what `api.py` builds. Both the message and its outcome are events.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from rucher.protocol.errors import BadInput, Retryable, RucherError, Uncertain
from rucher.protocol.events import DEFAULT_GROUP, Event, control_event
from rucher.protocol.ids import begun
from rucher.protocol.ports import Clock, Deliverer, Journal
from rucher.surfaces.channels.webhook import TEST

TESTED = "destination.tested"


class Trial(BaseModel):
    """A message that tries a destination; given twice with the same key it is one message."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(min_length=1, max_length=200)]
    to: str
    text: Annotated[str, Field(min_length=1)]


class Trials:
    """Tries destinations. `find` gives the deliverer of a destination's full name, None when there is none."""

    def __init__(self, journal: Journal, clock: Clock, tenant: str, find: Callable[[str], Deliverer | None]) -> None:
        self._journal = journal
        self._clock = clock
        self._tenant = tenant
        self._find = find

    async def send(self, trial: Trial) -> dict[str, Any]:
        """Send it once and say what became of it: `outcome` is delivered, later, refused or uncertain.

        Raises BadInput for a destination that is not there.
        """
        deliverer = self._find(trial.to)
        if deliverer is None:
            raise BadInput(f"there is no {trial.to[:100]!r}; see `rucher destinations list`")
        body = {"to": trial.to, "text": trial.text, "group": DEFAULT_GROUP, "thread": ""}
        begin = begun(self._clock.now(), "trial", self._tenant, trial.key)
        event = await self._record(TEST, begin, trial.key, body)
        found = await _outcome(deliverer, event)
        await self._record(TESTED, event.trace_id, trial.key, {"to": trial.to, **found}, event.id)
        return {"event_id": event.id, "trace_id": event.trace_id, "to": trial.to, **found}

    async def _record(
        self, kind: str, trace_id: str, key: str, body: Mapping[str, Any], parent: str | None = None
    ) -> Event:
        draft = control_event(
            tenant=self._tenant, part="destinations", kind=kind, key=key, trace_id=trace_id, parent_id=parent,
            occurred_at=self._clock.now(), body=body,
        )  # fmt: skip
        (appended,) = await self._journal.append(draft)
        return appended.event


def destination_calls(trials: Trials) -> APIRouter:
    """The calls about destinations."""
    router = APIRouter()

    @router.post("/destinations/send")
    async def send(trial: Trial) -> dict[str, Any]:
        return await trials.send(trial)

    return router


async def _outcome(deliverer: Deliverer, event: Event) -> dict[str, Any]:
    try:
        return {"outcome": "delivered", "receipt": await deliverer.deliver(event, event.id)}
    except Retryable as error:
        return {"outcome": "later", "reason": str(error)}
    except Uncertain as error:
        return {"outcome": "uncertain", "reason": str(error)}
    except RucherError as error:
        return {"outcome": "refused", "reason": str(error)}
