"""What a refusal of the wire means: try again, or tell a person what to change. Pure."""

import json
from collections.abc import Mapping
from typing import Any

from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.retrying import retry_after

_SERVER_FAILS = 500
_REDIRECTS = range(300, 400)
_BUSY = frozenset({408, 409, 425, 429})
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit_reached", "insufficient_balance")
_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "maximum context length",
    "context size",
    "context window",
)
_LONGEST_REASON = 200
_ADD_CREDIT = "the account has no credit left: add some with the provider, or use another model"
_SHORTEN = "the conversation is longer than the model can read: start a new thread"


def refused(status: int, headers: Mapping[str, str], body: str, where: str) -> Retryable | Permanent:
    """The error that an answer with this status other than 200 stands for; `where` names endpoint and model."""
    reason, code = _reason(body)
    told = f"{where}: {reason}" if reason else f"{where}: HTTP status {status}"
    remedy = _remedy(reason, code)
    if remedy is None and (status in _BUSY or status >= _SERVER_FAILS):
        return Retryable(told, retry_after=retry_after(headers))
    return Permanent(f"{told} ({remedy or _advice(status)})")


def failed_midway(error: str, where: str) -> Retryable | Permanent:
    """The error that a provider reports, as JSON, inside a stream that began well."""
    reason, code = _reason(error)
    told = f"{where}: the answer broke off: {reason or 'no reason given'}"
    remedy = _remedy(reason, code)
    return Retryable(told) if remedy is None else Permanent(f"{told} ({remedy})")


def _remedy(reason: str, code: str) -> str | None:
    """What helps when trying again cannot, as far as the provider's words tell; None when they do not."""
    if any(mark in code for mark in _NO_CREDIT):
        return _ADD_CREDIT
    if any(mark in code or mark in reason.lower() for mark in _TOO_LONG):
        return _SHORTEN
    return None


def _advice(status: int) -> str:
    match status:
        case 401 | 403:
            return "the key was refused: check key_env under [model]"
        case 404:
            return "check name and base_url under [model]; base_url usually ends in /v1"
        case 402:
            return _ADD_CREDIT
        case 413:
            return _SHORTEN
        case _ if status in _REDIRECTS:
            return "redirects are not followed, so that the key goes nowhere else: set base_url to the final address"
        case _:
            return "the endpoint refused the request: check name and base_url under [model]"


def _reason(body: str) -> tuple[str, str]:
    """The provider's own words on one line, and its code in lower case; both may be empty."""
    try:
        parsed = json.loads(body)
    except ValueError:
        return "", ""
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if not isinstance(error, dict):
        return _one_line(error), ""
    codes = (error.get(name) for name in ("code", "type"))
    return _one_line(error.get("message")), " ".join(code for code in codes if isinstance(code, str)).lower()


def _one_line(text: Any) -> str:
    line = " ".join(text.split()) if isinstance(text, str) else ""
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 3] + "..."
