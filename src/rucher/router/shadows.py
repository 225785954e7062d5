"""Finds rules that can never fire because an earlier one takes all that they match. Pure.

Called by `rucher.router.parse`. It may miss one that only reasoning across keys would find; it accuses none wrongly.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from rucher.router.conditions import PREFIXED, Anchor, Condition, admits, covers
from rucher.router.engagement import AGENT
from rucher.router.rules import Rule


def shadowed(rules: Sequence[Rule]) -> Iterator[tuple[Rule, Rule]]:
    """Each rule that can never fire, with the first earlier rule because of which."""
    asked = [[anchor for condition in rule.match for anchor in _asked(condition)] for rule in rules]
    counts = Counter(anchor for anchors in asked for anchor in anchors)
    prefixes = {(anchor.key, anchor.place) for anchor in counts if anchor.key in PREFIXED and anchor.place is not None}
    filed: dict[Anchor | None, list[Rule]] = {}
    for rule, anchors in zip(rules, asked, strict=True):
        places = {None, *(anchor for condition in rule.match for anchor in _offered(condition, prefixes))}
        takers = [earlier for place in places for earlier in filed.get(place, ()) if shadows(earlier, rule)]
        if takers:
            yield rule, min(takers, key=lambda taker: taker.number)
        rarest = min(anchors, key=lambda anchor: counts[anchor], default=None)
        filed.setdefault(rarest, []).append(rule)


def shadows(earlier: Rule, later: Rule) -> bool:
    """Whether `earlier` surely takes every event that `later` would match.

    A generated rule may be shadowed: it is a net under the owner's rules. So may a rule that names as principal the one
    destination of the earlier rule, because that rule leaves this destination's own events alone.
    """
    if earlier.goes_on or later.generated:
        return False
    theirs = {condition.key: condition for condition in later.match}
    if not all(mine.key in theirs and covers(mine, theirs[mine.key]) for mine in earlier.match):
        return False
    if not _takes_for_sure(earlier, later):
        return False
    principal = theirs.get("principal")
    return principal is None or len(earlier.to) > 1 or not admits(principal, earlier.to[0])


def _takes_for_sure(earlier: Rule, later: Rule) -> bool:
    """Whether the terms of `earlier` leave nothing to `later` when both match."""
    if earlier.terms.always or not all(to.startswith(AGENT) for to in earlier.to):
        return True
    same = replace(later.terms, session=earlier.terms.session) == earlier.terms
    return same and set(later.to) <= set(earlier.to)


def _asked(condition: Condition) -> tuple[Anchor, ...]:
    """Literals that every condition covered by this one must offer."""
    return (Anchor("text", None, condition.wanted),) if condition.key == "text" else condition.anchors


def _offered(condition: Condition, prefixes: Collection[tuple[str, int]]) -> Iterator[Anchor]:
    yield from _asked(condition)
    prefix = condition.wanted.removesuffix("*")
    yield from (Anchor(key, place, prefix[:place]) for key, place in prefixes if key == condition.key)
