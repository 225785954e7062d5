"""What a step is charged: pure arithmetic from what was reserved and what came back. Budgets' sums are the journal's views.

Before a step acts, the most that it may use is reserved on its run's account and on every account up the tree, in the commit
of its intention; when it is recorded, what it used is settled and the rest set free, in the commit of its result. Of what no
step can say beforehand (time above all) nothing is reserved, and the next step is refused once all of it is used.
"""

from collections.abc import Mapping
from typing import Any

from rucher.journal.runviews import MEASURES

_COUNTED = {"model_call": "turns", "tool_call": "tool_calls"}


def to_reserve(kind: str, most: Mapping[str, int]) -> dict[str, int]:
    """What is held back for a step of this kind that says what it may use at `most`.

    A measure that is held back as 0 must only not be used up. Tool calls need no such word: each is held back itself, and who
    has made the last one may still say what came of it.
    """
    counted = {_COUNTED[kind]: 1} if kind in _COUNTED else {}
    return {measure: most.get(measure, 0) for measure in MEASURES if measure != "tool_calls"} | counted


def used_by(kind: str, result: Mapping[str, Any], wall_us: int) -> dict[str, int]:
    """What a recorded step used. Tokens whose price its model did not say are counted as unpriced, never as free."""
    usage = result.get("usage") or {}
    used = {_COUNTED[kind]: 1} if kind in _COUNTED else {}
    if wall_us:
        used["wall_us"] = wall_us
    if usage:
        tokens_in, tokens_out = int(usage.get("input_tokens", 0)), int(usage.get("output_tokens", 0))
        used |= {"input_tokens": tokens_in, "output_tokens": tokens_out, "tokens": tokens_in + tokens_out}
        price = usage.get("nanodollars")
        used |= {"unpriced": 1} if price is None else {"nanodollars": int(price)}
    return used


def lost(reserved: Mapping[str, int]) -> dict[str, int]:
    """What an interrupted model call is charged: all that was held back for it, at a price that nobody knows."""
    return {**reserved, "unpriced": 1}
