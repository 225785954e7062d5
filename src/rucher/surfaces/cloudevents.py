"""A CloudEvent that comes in, such as another instance sends: what of it is taken over, once it was verified. Pure.

Called by `rucher.surfaces.payloads`. Who sent it and how far that is trusted is never taken from it: the source's own
lines in `sources.toml` say that. The format is https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rucher.protocol.errors import BadInput
from rucher.protocol.ids import is_id
from rucher.surfaces.sources import Source

MOST_VIA = 64
"""The longest chain of agents that is taken over; what is longer is refused, as it is a loop."""
_AGENT = re.compile(r"[a-zA-Z0-9:@._-]{1,200}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,199}")
_MOST_DEPTH = 1_000_000


@dataclass(frozen=True, slots=True)
class CloudData:
    """What a CloudEvent says about itself. `chain` goes into the event's body as it is: how far the event has come."""

    text: str
    group: str
    thread: str
    addressed_to: str | None
    chain: Mapping[str, Any]
    payload: Any


def is_cloud_event(payload: Any) -> bool:
    """Whether this is a CloudEvent in its JSON format."""
    return isinstance(payload, dict) and payload.get("specversion") == "1.0" and isinstance(payload.get("type"), str)


def data_of(payload: Mapping[str, Any], source: Source) -> CloudData:
    """What is taken over; raises BadInput for a field that cannot be used, or an address that this source may not write to."""
    data = payload.get("data")
    said = data if isinstance(data, dict) else {}
    return CloudData(
        text=_text(said),
        group=_name(said, "group"),
        thread=_name(said, "thread"),
        addressed_to=_address(payload.get("addressedto"), source),
        chain=_chain(payload, said),
        payload=said.get("payload") if "text" in said else data,
    )


def _text(said: Mapping[str, Any]) -> str:
    text = said.get("text", "")
    if not isinstance(text, str):
        raise BadInput("data.text must be text; send it so")
    return text


def _name(said: Mapping[str, Any], key: str) -> str:
    found = said.get(key) or ""
    if found and not (isinstance(found, str) and _NAME.fullmatch(found)):
        raise BadInput(f"data.{key} must be a name in small letters, digits, dots, dashes and underscores; send it so")
    return str(found)


def _address(address: Any, source: Source) -> str | None:
    if address is None:
        return None
    if not isinstance(address, str):
        raise BadInput("addressedto must be text; send it so")
    for pattern in source.addresses:
        if address == pattern or (
            pattern.endswith(":*") and address.startswith(pattern[:-1]) and address != pattern[:-1]
        ):
            return address
    raise BadInput(
        f"the source {source.name} may not address {address[:100]!r}; its owner lists whom it may, as addresses in sources.toml"
    )


def _chain(payload: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    chain: dict[str, Any] = {}
    if (via := said.get("via")) is not None:
        if not (isinstance(via, list) and len(via) <= MOST_VIA and all(_is_agent(one) for one in via)):
            raise BadInput(f"data.via must list up to {MOST_VIA} agents; send it so")
        chain["via"] = via
    if (depth := said.get("depth")) is not None:
        if isinstance(depth, bool) or not isinstance(depth, int) or not 0 <= depth <= _MOST_DEPTH:
            raise BadInput("data.depth must be a whole number; send it so")
        chain["depth"] = depth
    for key in ("answers", "in_reply_to"):
        if (found := said.get(key)) is not None:
            chain[key] = _id(found, f"data.{key}")
    if (trace := payload.get("traceid")) is not None:
        chain["trace"] = _id(trace, "traceid")
    if said.get("automatic") is True:
        chain["automatic"] = True
    return chain


def _is_agent(one: Any) -> bool:
    return isinstance(one, str) and _AGENT.fullmatch(one) is not None


def _id(found: Any, what: str) -> str:
    if isinstance(found, str) and is_id(found):
        return found
    raise BadInput(f"{what} must be an id of 26 characters; send it so")
