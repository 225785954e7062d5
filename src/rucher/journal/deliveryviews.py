"""What deliveries, and the owner's word about hops, change in the views. Pure; called by `views.changes`.

A hop to a surface has one row a part in `deliveries`; its own state follows from its parts, which go in order: it is delivered
with the last one, and has ended badly with the first that failed or is uncertain.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rucher.journal.runviews import Change, given_up
from rucher.protocol.events import Event


def _part(event: Event) -> dict[str, Any]:
    body = event.body
    return {
        "hop_id": body["hop"], "part": body.get("part", 1), "parts": body.get("parts", 1), "seq": event.seq,
        "at": event.recorded_at,
    }  # fmt: skip


def _is_last(event: Event) -> bool:
    return bool(event.body.get("part", 1) == event.body.get("parts", 1))


def _sending(event: Event) -> Iterator[Change]:
    part, surface, attempt = _part(event), event.body.get("surface", ""), event.body.get("attempt", 1)
    if part["part"] == 1 and attempt == 1:
        for number in range(2, part["parts"] + 1):
            yield "delivery.pending", {**part, "part": number, "surface": surface}
    yield "delivery.sending", {**part, "surface": surface, "attempt": attempt}
    yield "hop.sending", {"hop_id": part["hop_id"], "at": part["at"]}


def _deferred(event: Event) -> Iterator[Change]:
    part, body = _part(event), event.body
    yield "delivery.deferred", {
        "hop_id": part["hop_id"], "part": part["part"], "detail": body["reason"], "not_before": body.get("not_before", 0),
        "at": part["at"],
    }  # fmt: skip
    yield "hop.detail", {"hop_id": part["hop_id"], "detail": body["reason"], "at": part["at"]}


def _ends(state: str) -> Callable[[Event], Iterator[Change]]:
    def fold(event: Event) -> Iterator[Change]:
        part, body = _part(event), event.body
        detail = body.get("reason", "")
        receipt = json.dumps(body["receipt"], ensure_ascii=False) if "receipt" in body else body.get("proof", "")
        yield "delivery.ended", {**part, "state": state, "detail": detail, "receipt": receipt}
        if state != "delivered" or _is_last(event):
            yield "hop.state", {"hop_id": part["hop_id"], "state": state, "detail": detail, "at": part["at"]}

    return fold


def _resolved(event: Event) -> Iterator[Change]:
    part, delivered = _part(event), event.body["verdict"] == "delivered"
    word = f"{event.body['by']} says that it was {'' if delivered else 'not '}delivered"
    state = "delivered" if delivered else "pending"
    yield "delivery.ended", {**part, "state": state, "detail": word, "receipt": ""}
    if delivered and _is_last(event):
        yield "hop.state", {"hop_id": part["hop_id"], "state": "delivered", "detail": word, "at": part["at"]}
    else:
        yield "hop.again", {"hop_id": part["hop_id"], "detail": word, "at": part["at"]}


def _retried(event: Event) -> Iterator[Change]:
    hop, at, word = event.body["hop"], event.recorded_at, f"tried again by {event.body['by']}"
    yield "delivery.again", {"hop_id": hop, "detail": word, "at": at}
    yield "delivery.forget", {"hop_id": hop}
    yield "hop.again", {"hop_id": hop, "detail": word, "at": at}


def _failed(event: Event) -> Iterator[Change]:
    yield from _ends("failed")(event)
    yield from given_up(event)


def _dropped(event: Event) -> Iterator[Change]:
    body = event.body
    word = f"dropped by {body['by']}" + (f": {body['reason']}" if body.get("reason") else "")
    yield "hop.state", {"hop_id": body["hop"], "state": "dropped", "detail": word, "at": event.recorded_at}


def _told(event: Event) -> Iterator[Change]:
    for hop in event.body["hops"]:
        yield "hop.told", {"hop_id": hop}


DELIVERY_FOLDS: Mapping[str, Callable[[Event], Iterator[Change]]] = {
    "delivery.sending": _sending,
    "delivery.deferred": _deferred,
    "delivery.delivered": _ends("delivered"),
    "delivery.failed": _failed,
    "delivery.uncertain": _ends("uncertain"),
    "delivery.resolved": _resolved,
    "delivery.told": _told,
    "hop.retried": _retried,
    "hop.dropped": _dropped,
}
"""By the type of a control-plane event."""
