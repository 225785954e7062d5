"""What a verified delivery says: its body read, and the event made of it. Pure. Called by `rucher.control.doors`.

The text of an event is a short rendering for people and agents; the whole stands beside it as `payload`.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from pydantic_core import from_json

from rucher.protocol.errors import BadInput
from rucher.surfaces.cloudevents import data_of, is_cloud_event
from rucher.surfaces.ingress import IncomingEvent
from rucher.surfaces.sources import Origin, Pick, Source
from rucher.surfaces.verification import Delivery, Headers, Scheme, Verified, body_key

JSON, FORM, PLAIN = "json", "form", "text"
MOST_SHOWN = 2000
"""Characters of a rendering; what is longer is cut, visibly."""
_MOST_FIELDS = 500
_MOST_WORD = 100
_MOST_PART = 300
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_UNSAFE_GROUP = re.compile(r"[^a-z0-9._-]+")
_UTF8 = frozenset({"utf-8", "utf8", "us-ascii"})


def kind_of(scheme: Scheme, headers: Headers) -> str | None:
    """How the body is to be read, by its content type; None for one that this scheme's senders do not use."""
    essence, _, parameters = headers.get("content-type", "").lower().partition(";")
    essence = essence.strip()
    charset = re.search(r'charset="?([a-z0-9-]+)', parameters)
    if charset is not None and charset[1] not in _UTF8:
        return None
    if essence == "application/json" or (essence.startswith("application/") and essence.endswith("+json")):
        return JSON
    if essence == "application/x-www-form-urlencoded" and scheme in (Scheme.SLACK, Scheme.GITHUB):
        return FORM
    return PLAIN if essence == "text/plain" and scheme is Scheme.BEARER else None


def read_payload(kind: str, body: bytes) -> Any:
    """The body as JSON knows it; raises BadInput saying what is wrong at which place."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the body is not UTF-8 at byte {error.start}; send it as UTF-8") from error
    if kind == PLAIN:
        return {"text": text}
    if kind == JSON:
        return _json(text)
    fields = _form(text)
    whole = fields.get("payload")
    return _json(whole) if isinstance(whole, str) and len(fields) == 1 else fields


def challenge_of(source: Source, payload: Any) -> str | None:
    """What Slack wants back when it is told this address; None for anything else."""
    if source.scheme is Scheme.SLACK and isinstance(payload, dict) and payload.get("type") == "url_verification":
        return _said(payload.get("challenge"))
    return None


def event_of(source: Source, verified: Verified, delivery: Delivery, payload: Any) -> IncomingEvent:
    """The event that a verified delivery is; raises BadInput for a field of it that cannot be used."""
    kind = _type(source, delivery.headers, payload)
    cloud = data_of(payload, source) if is_cloud_event(payload) else None
    shown = payload if cloud is None else cloud.payload
    body: dict[str, Any] = {
        "text": cloud.text if cloud and cloud.text else _text(source, kind, shown),
        "group": (cloud.group if cloud else "") or _group(source.group, payload),
        "thread": (cloud.thread if cloud else "") or _group(source.thread, payload),
        **(cloud.chain if cloud else {}),
    }
    if shown is not None:
        body["payload"] = shown
    if _is_automatic(source, payload):
        body["automatic"] = True
    return IncomingEvent(
        source=source.name,
        type=kind,
        principal=source.principal,
        trust=source.trust,
        body=body,
        addressed_to=cloud.addressed_to if cloud else None,
        key=verified.key or _key(source, delivery, payload),
        # Only another node, which signs with its own key, goes on with a trace of ours.
        trace_id=cloud.chain.get("trace") if cloud and source.scheme is Scheme.ED25519 else None,
    )


def at_path(payload: Any, path: str) -> Any:
    """What stands at a dotted path (numbers count through lists); None where nothing does."""
    for part in path.split("."):
        if isinstance(payload, Mapping):
            payload = payload.get(part)
        elif isinstance(payload, list) and part.isdigit() and int(part) < len(payload):
            payload = payload[int(part)]
        else:
            return None
    return payload


def _json(text: str) -> Any:
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise BadInput(f"the body is not JSON: {error}; correct it there") from error


def _form(text: str) -> dict[str, Any]:
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict"))
    except ValueError as error:
        raise BadInput(f"the body is no form: {error}; send it as its content type says") from error


def _key(source: Source, delivery: Delivery, payload: Any) -> str | None:
    """The idempotency key of what has no id of its own among what was signed; None where each delivery is a new one."""
    match source.scheme:
        case Scheme.BEARER:
            return None
        case Scheme.STRIPE:
            named = at_path(payload, "id")
        case Scheme.SLACK:
            named = at_path(payload, "event_id") or at_path(payload, "trigger_id")
        case _:
            named = None
    usable = isinstance(named, str) and 0 < len(named) <= _MOST_WORD
    return f"id:{named}" if usable else body_key(delivery.body)


def _type(source: Source, headers: Headers, payload: Any) -> str:
    if source.type is not None:
        return _word(_picked(source.type, headers, payload))
    match source.scheme:
        case Scheme.GITHUB:
            return _word(headers.get("x-github-event"))
        case Scheme.SLACK:
            if at_path(payload, "command"):
                return "command"
            return _word(at_path(payload, "event.type") or at_path(payload, "type"))
        case _:
            return _word(at_path(payload, "type"))


def _picked(pick: Pick, headers: Headers, payload: Any) -> Any:
    match pick.origin:
        case Origin.FIXED:
            return pick.what
        case Origin.HEADER:
            return headers.get(pick.what.lower())
        case Origin.BODY:
            return at_path(payload, pick.what)


def _word(value: Any) -> str:
    """A type as subjects can hold it: parts of letters, digits, dashes and underscores between single dots."""
    parts = [_UNSAFE.sub("_", part).strip("_") for part in _said(value)[:_MOST_WORD].split(".")]
    return ".".join(part for part in parts if part) or "message"


def _group(pick: Pick, payload: Any) -> str:
    if pick.origin is Origin.FIXED:
        return pick.what
    found = _said(at_path(payload, pick.what)).lower()
    return _UNSAFE_GROUP.sub("-", found)[:_MOST_WORD].strip("._-") or "main"


def _text(source: Source, kind: str, payload: Any) -> str:
    given = at_path(payload, source.text) if source.text else None
    text = _shown(given) if given not in (None, "") else ""
    if not text:
        render = _RENDERINGS.get(source.scheme, _plainly)
        text = render(kind, payload)
    text = text if text.strip() else f"{kind} from {source.name}"
    return text if source.text else _cut(text, MOST_SHOWN)


def _github(kind: str, payload: Any) -> str:
    action = _said(at_path(payload, "action"))
    where = _said(at_path(payload, "repository.full_name"))
    who = _said(at_path(payload, "sender.login"))
    head = " ".join(part for part in (kind, action, f"in {where}" if where else "", f"by {who}" if who else "") if part)
    about = _first(
        payload, "issue.title", "pull_request.title", "release.name", "discussion.title", "head_commit.message"
    )
    said = _first(payload, "comment.body", "review.body")
    link = _first(payload, "comment.html_url", "pull_request.html_url", "issue.html_url", "release.html_url", "compare")
    return "\n".join(part for part in (f"{head}: {_cut(about, _MOST_PART)}" if about else head, said, link) if part)


def _stripe(kind: str, payload: Any) -> str:
    about = at_path(payload, "data.object")
    said = [_said(at_path(about, name)) for name in ("object", "id", "status", "description")]
    amount = next(
        (at_path(about, name) for name in ("amount_due", "amount", "total") if at_path(about, name) is not None), None
    )
    money = (
        f"{amount} {_said(at_path(about, 'currency')).upper()} in its smallest unit" if isinstance(amount, int) else ""
    )
    return ", ".join(part for part in (kind, *said, money) if part)


def _slack(kind: str, payload: Any) -> str:
    if command := _said(at_path(payload, "command")):
        return f"{command} {_said(at_path(payload, 'text'))}".strip()
    return _first(payload, "event.text", "text") or _plainly(kind, payload)


def _plainly(kind: str, payload: Any) -> str:
    said = (
        payload
        if isinstance(payload, str)
        else _first(payload, "text", "message", "data.text", "data.message", "summary")
    )
    if said:
        return said
    return f"{kind}: {_compact(payload)}" if payload not in (None, {}, []) else kind


_RENDERINGS: Mapping[Scheme, Callable[[str, Any], str]] = {
    Scheme.GITHUB: _github,
    Scheme.STRIPE: _stripe,
    Scheme.SLACK: _slack,
}


def _is_automatic(source: Source, payload: Any) -> bool:
    """Whether a program wrote it into a chat: answering that is how two programs talk for ever."""
    return source.scheme is Scheme.SLACK and bool(
        at_path(payload, "event.bot_id") or at_path(payload, "event.subtype") == "bot_message"
    )


def _first(payload: Any, *paths: str) -> str:
    return next((text for path in paths if (text := _said(at_path(payload, path)).strip())), "")


def _said(value: Any) -> str:
    """A word or a number as text; nothing for what is neither."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 4]} ..."
