"""What the journal says about the delivery of one hop, part by part. Pure.

Kept by `rucher.surfaces.delivery` while it works on the hop, and folded again from the hop's trace after a restart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rucher.protocol.events import CONTROL_PLANE, Event
from rucher.protocol.ports import DeliveryState

ENDS = {
    "delivery.delivered": DeliveryState.DELIVERED,
    "delivery.failed": DeliveryState.FAILED,
    "delivery.uncertain": DeliveryState.UNCERTAIN,
}


@dataclass(slots=True)
class PartLedger:
    """How far one part got. Times are microseconds since the epoch.

    `open` while the last attempt may have reached the surface; `began_at` is when the first one since the owner's last word was
    made (0: none yet); before `not_before` the surface wants no other; `without` is what the surface refused of it.
    """

    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    open: bool = False
    began_at: int = 0
    not_before: int = 0
    without: list[str] = field(default_factory=list)

    def ended(self) -> bool:
        """Whether nothing more is tried without the owner's word."""
        return self.state not in (DeliveryState.PENDING, DeliveryState.SENDING)


class Ledger:
    """The parts of one hop. `cut` tells how its message was cut when the first part was sent; empty while none was."""

    def __init__(self) -> None:
        self._parts: dict[int, PartLedger] = {}
        self.cut = ""
        self.words = 0
        """How often the owner had his say, after which an end may be recorded anew."""

    def part(self, number: int) -> PartLedger:
        """How far that part got."""
        return self._parts.setdefault(number, PartLedger())

    @property
    def begun(self) -> bool:
        """Whether any part was delivered."""
        return any(part.state is DeliveryState.DELIVERED for part in self._parts.values())

    def take(self, kind: str, body: Mapping[str, Any], at: int) -> None:
        """Learn what one event about this hop says, which happened at `at`."""
        part = self.part(body.get("part", 1))
        match kind:
            case "delivery.sending":
                self.cut = body.get("cut", "")
                part.state, part.open = DeliveryState.SENDING, True
                part.attempts = max(part.attempts, body["attempt"])
                part.began_at = part.began_at or at
            case "delivery.deferred":
                part.state = DeliveryState.PENDING
                part.open = part.open and body["attempt"] < part.attempts
                part.not_before = body.get("not_before", 0)
                part.without += [body["without"]] if "without" in body else []
            case "delivery.delivered" | "delivery.failed" | "delivery.uncertain":
                part.state, part.open = ENDS[kind], False
            case "delivery.resolved":
                delivered = body["verdict"] == "delivered"
                part.state, part.open = DeliveryState.DELIVERED if delivered else DeliveryState.PENDING, False
                self._again()
            case "hop.retried":
                self._again()
            case _:
                pass

    def _again(self) -> None:
        """The owner had his say: what surely failed may be sent; what is uncertain waits for a word of its own."""
        self.words += 1
        for part in self._parts.values():
            part.began_at, part.not_before = 0, 0
            if part.state is DeliveryState.FAILED:
                part.state = DeliveryState.PENDING


def read_back(trace: Iterable[Event], hop_id: str) -> Ledger:
    """The ledger of a hop, from the events of its trace in order."""
    ledger = Ledger()
    for event in trace:
        if event.source == CONTROL_PLANE and event.body.get("hop") == hop_id:
            ledger.take(event.type, event.body, event.occurred_at)
    return ledger
