"""The events of a run as types and JSON bodies: pure, and on the hot path, so each text is put together once."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from rucher.journal.encoding import compact
from rucher.journal.rows import encoded
from rucher.protocol.errors import BadInput

Record = tuple[str, str]

_canonical = compact(sort_keys=True)


def asked(kind: str, request: Mapping[str, Any]) -> tuple[str, str]:
    """A request as JSON with sorted keys, so that the same request is always the same text, and what a replay compares.

    That is BLAKE2b-128 over the step's kind and the text. Raises BadInput for what JSON or UTF-8 cannot hold.
    """
    try:
        text = _canonical(request)
        return text, blake2b(f"{kind}\n{text}".encode(), digest_size=16).hexdigest()
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInput(f"the request of a step cannot be stored: {error}") from error


def intended(*, run: str, step: str, kind: str, effect: str, attempt: int, hashed: str, request: str) -> Record:  # noqa: PLR0913 - the fields of a record
    """A step is about to be acted."""
    return "step.intended", (
        f'{{"run":"{run}","step":"{step}","kind":"{kind}","effect":"{effect}","attempt":{attempt},'
        f'"request_hash":"{hashed}","request":{request}}}'
    )


def recorded(run: str, step: str, kind: str, attempt: int, result: str, more: str = "") -> Record:
    """What came of a step. `more` is JSON text that begins with a comma."""
    return (
        "step.recorded",
        f'{{"run":"{run}","step":"{step}","kind":"{kind}","attempt":{attempt},"result":{result}{more}}}',
    )


def unintended(hashed: str, request: str) -> str:
    """What the record of a step without an intention says in its place."""
    return f',"request_hash":"{hashed}","request":{request}'


def record(kind: str, body: Mapping[str, Any]) -> Record:
    """Any other event of a run."""
    return kind, encoded(body, kind)


def spent(
    run: str,
    step: str,
    accounts: Sequence[str],
    used: Mapping[str, int],
    released: Mapping[str, int],
    *,
    lost: bool = False,
) -> Record:
    """What a step used, and what budgets need no longer hold back for it; `lost` when its result was never seen."""
    body = {"run": run, "step": step, "accounts": list(accounts), "used": _some(used), "released": _some(released)}
    return record("run.spent", body | ({"lost": True} if lost else {}))


def _some(amounts: Mapping[str, int]) -> dict[str, int]:
    return {measure: amount for measure, amount in amounts.items() if amount}
