"""Events as CloudEvents 1.0 in the JSON format (https://github.com/cloudevents/spec/tree/v1.0.2), and back. Pure.

Called by the journal's export and import. What the specification has no attribute for is an extension attribute. Those are
strings also where we have numbers, since its integers end at 2**31. Attributes may not hold control characters: these, and
`%`, are written as `%XX` of their UTF-8. Nothing is ever dropped: what cannot be written is refused.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, RunPosition, Trust

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_JSON = "application/json"
_SOURCE = re.compile(r"rucher:[\w.~%-]+/([\w.~%-]+)", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d:\d\d)", re.ASCII)
_NUMBER = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)
# Control characters and noncharacters, which no attribute may hold (CloudEvents 1.0, "Type System"), and our escape.
_NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | low) for plane in range(17) for low in (0xFFFE, 0xFFFF))
_UNWRITABLE = re.compile(f"[\x00-\x1f\x7f-\x9f{_NONCHARACTERS}%]")


def cloudevent(event: Event, instance: str) -> dict[str, Any]:
    """The event as a CloudEvent of the instance named `instance`; raises BadInput for what no CloudEvent can hold."""
    try:
        return _record(event, instance)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"event {event.seq} cannot be exported as a CloudEvent: {error}") from error


def event_from(record: Mapping[str, Any]) -> Event:
    """The event that `cloudevent` wrote as `record`; raises BadInput that names the attribute for any other record."""
    try:
        return _event(record)
    except (ValueError, OverflowError) as error:
        raise BadInput(f"the CloudEvent {_named(record)} is none that Rucher exported: {error}") from error


def _record(event: Event, instance: str) -> dict[str, Any]:
    at = event.run
    attributes = {
        "id": event.id,
        "type": event.type,
        "subject": event.subject,
        "tenant": event.tenant,
        "principal": event.principal,
        "trust": event.trust.word,
        "traceid": event.trace_id,
        "parentid": event.parent_id,
        "addressedto": event.addressed_to,
    }
    numbers = {
        "seq": event.seq,
        **({"runseq": at.seq, "fence": at.fence} if at else {}),
    }
    return {
        "specversion": "1.0",
        "source": f"rucher:{_segment('instance', instance)}/{_segment('source', event.source)}",
        **{name: _written(name, value) for name, value in attributes.items() if value is not None},
        **({"runid": _written("runid", at.run_id)} if at else {}),
        **{name: str(number) for name, number in numbers.items()},
        "time": _time(event.occurred_at),
        "recordedtime": _time(event.recorded_at),
        "datacontenttype": _JSON,
        "data": dict(event.body),
    }


def _event(record: Mapping[str, Any]) -> Event:
    _expect(record, "specversion", "1.0")
    _expect(record, "datacontenttype", _JSON)
    source = _SOURCE.fullmatch(_text(record, "source"))
    if source is None:
        raise ValueError("its source is not rucher:<instance>/<source>")
    event = Event(
        seq=_number(record, "seq"),
        id=_read(record, "id"),
        tenant=_read(record, "tenant"),
        source=unquote(source[1], errors="strict"),
        type=_read(record, "type"),
        principal=_read(record, "principal"),
        trust=_trust(record),
        trace_id=_read(record, "traceid"),
        occurred_at=_microseconds(record, "time"),
        recorded_at=_microseconds(record, "recordedtime"),
        parent_id=_read(record, "parentid") if "parentid" in record else None,
        addressed_to=_read(record, "addressedto") if "addressedto" in record else None,
        body=_body(record),
        run=_run(record),
    )
    _expect(record, "subject", _escaped(event.subject))
    return event


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    match record.get("data"):
        case Mapping() as body:
            return body
        case _:
            raise ValueError("its data is not an object")


def _run(record: Mapping[str, Any]) -> RunPosition | None:
    if not {"runid", "runseq", "fence"} & record.keys():
        return None
    return RunPosition(_read(record, "runid"), _number(record, "runseq"), _number(record, "fence"))


def _trust(record: Mapping[str, Any]) -> Trust:
    word = _text(record, "trust")
    for trust in Trust:
        if trust.word == word:
            return trust
    raise ValueError(f"its trust {word!r} is none of {', '.join(trust.word for trust in Trust)}")


def _segment(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"its {name} is empty")
    return quote(text, safe="")


def _written(name: str, text: str) -> str:
    if not text:
        raise ValueError(f"its {name} is empty")
    text.encode()  # lone surrogates are no text
    return _escaped(text)


def _escaped(text: str) -> str:
    return _UNWRITABLE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _time(microseconds: int) -> str:
    when = _EPOCH + microseconds * _MICROSECOND
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(
            f"its {name} is missing" if value is None else f"its {name} is not a text with something in it"
        )
    return value


def _expect(record: Mapping[str, Any], name: str, expected: str) -> None:
    if (found := _text(record, name)) != expected:
        raise ValueError(f"its {name} is {found!r} where {expected!r} is expected")


def _read(record: Mapping[str, Any], name: str) -> str:
    return unquote(_text(record, name), errors="strict")


def _number(record: Mapping[str, Any], name: str) -> int:
    text = _text(record, name)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"its {name} {text!r} is not a whole number from 0 up")
    return int(text)


def _microseconds(record: Mapping[str, Any], name: str) -> int:
    text = _text(record, name)
    if not _TIME.fullmatch(text):
        raise ValueError(f"its {name} {text!r} is not a time such as 2027-01-15T08:00:00.000000Z")
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _named(record: Mapping[str, Any]) -> str:
    return repr(record["id"]) if isinstance(record.get("id"), str) else "without an id"
