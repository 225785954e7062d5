"""JSON as the journal holds it: compact, strict, and encoded by one prepared encoder instead of one a call.

`json.dumps` makes an encoder anew for each value, which costs more than encoding a step's small body does.
"""

import json
from collections.abc import Callable, Mapping
from json import encoder
from typing import Any

_STRICTLY = (False, False)
"""No keys are skipped, and no NaN is allowed."""

Encode = Callable[[Mapping[str, Any]], str]


def compact(*, sort_keys: bool) -> Encode:
    """An encoder to JSON text without spaces; it raises ValueError for NaN and TypeError for what JSON does not know."""
    prepare: Callable[..., Callable[[object, int], tuple[str, ...]]] | None = getattr(encoder, "c_make_encoder", None)
    if prepare is None:
        return json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys).encode
    chunks = prepare(None, _refused, encoder.encode_basestring, None, ":", ",", sort_keys, *_STRICTLY)

    def encode(value: Mapping[str, Any]) -> str:
        return "".join(chunks(value, 0))

    return encode


def _refused(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")
