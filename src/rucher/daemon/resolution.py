"""The owner's word about a step that may or may not have happened, written into its run."""

from collections.abc import Mapping
from typing import Any

from rucher.journal.store import StoreReader
from rucher.kernel.runs import Kernel, RunSpec
from rucher.protocol.errors import BadInput

_RESULTS: Mapping[str, Mapping[str, Any] | None] = {
    "ran": {"ok": True, "text": "The owner says that it ran before an interruption; its output was lost."},
    "not-run": None,
    "failed": {"ok": False, "text": "The owner says that it was interrupted and must count as failed."},
}


async def resolve(store: StoreReader, kernel: Kernel, run_id: str, step: str, verdict: str) -> str:
    """Record the verdict, one of `ran`, `not-run` (it is done again) and `failed`; returns the session to wake.

    Raises BadInput for a run that is unknown or does not wait for this step.
    """
    rows = await store.rows("run.get", run_id)
    if not rows:
        raise BadInput(f"there is no run {run_id}; see `rucher runs`")
    row = rows[0]
    spec = RunSpec(
        hop=row["hop_id"], session=row["session_id"], agent=row["agent"], model=row["model"], tenant=row["tenant"],
        trace_id=row["trace_id"],
    )  # fmt: skip
    await kernel.resolve(spec, step, _RESULTS[verdict])
    return spec.session
