"""What is recorded of a surface's receipt, which may be anything. Pure; called by `rucher.surfaces.delivery`."""

import json
from collections.abc import Mapping
from typing import Any

MOST_RECEIPT_BYTES = 4096
"""The largest receipt that is recorded as the surface gave it."""

MOST_REASON = 500
"""The longest reason, in characters, that is recorded of an error nobody foresaw."""


def recordable(receipt: Mapping[str, Any]) -> Mapping[str, Any]:
    """The receipt, or why it is left out."""
    try:
        size = len(json.dumps(receipt, allow_nan=False).encode())
    except (TypeError, ValueError) as error:
        return {"left_out": f"not JSON: {error}"[:MOST_REASON]}
    return receipt if size <= MOST_RECEIPT_BYTES else {"left_out": f"{size} bytes"}
