import re
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import tomlkit
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, Trust
from rucher.protocol.positions import KeyPath, positions
from rucher.router.conditions import condition, covers
from rucher.router.decide import bar, decide
from rucher.router.engagement import WORDS as WORDS_OF
from rucher.router.engagement import Terms
from rucher.router.explain import explain
from rucher.router.generated import ensure_generated
from rucher.router.index import Index
from rucher.router.parse import parse
from rucher.router.registry import Engagement, Registry
from rucher.router.rules import Rule, Rules
from rucher.router.shadows import shadows
from tests.unit.router.builders import HEAD, event

WORDS = st.sampled_from(["a", "ab", "abc", "b"])
PATTERNS = st.sampled_from(["a", "ab", "a*", "ab*", "b", "*", "agent:a", "agent:*"])
PARTS = st.lists(st.sampled_from(["ev", "a", "ab", "b", "*", "message"]), min_size=4, max_size=5)
SUBJECTS = st.one_of(PARTS, PARTS.map(lambda parts: [*parts[:3], ">"])).map(lambda parts: ".".join(["ev", *parts[1:]]))
VALUES = {
    "subject": SUBJECTS,
    "source": WORDS,
    "type": st.just("message"),
    "principal": PATTERNS,
    "trust": st.sampled_from([trust.word for trust in Trust]),
    "addressed_to": PATTERNS,
    "group": PATTERNS,
    "text": st.sampled_from(["a", "^a", "b$"]),
}
MATCHES = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3, unique=True).flatmap(
    lambda keys: st.fixed_dictionaries({key: VALUES[key] for key in keys})
)
NAMES = st.sampled_from(["a", "ab", "b", "agent:a", "agent:b", "user:a:b"])
EVENTS = st.builds(
    event,
    st.sampled_from(["a", "ab", "abc", "b", "@a", "b @b"]),
    source=WORDS,
    principal=NAMES,
    trust=st.sampled_from(Trust),
    addressed_to=st.none() | NAMES | st.just("group:a:b"),
    group=NAMES,
    tenant=WORDS,
)


TERMS = st.builds(
    Terms,
    engage=st.sampled_from(["always", "mention", "mention-sticky"]),
    senders=st.sampled_from(WORDS_OF["senders"]),
    otherwise=st.sampled_from(WORDS_OF["otherwise"]),
    session=st.sampled_from(WORDS_OF["session"]),
)
PEOPLE = ["a", "ab", "user:a:b", "agent:a"]
REGISTRIES = st.builds(
    Registry,
    roles=st.dictionaries(
        st.sampled_from(PEOPLE),
        st.dictionaries(st.sampled_from(["", "a", "b"]), st.sampled_from(["owner", "member"]), min_size=1),
    ),
    blocked=st.sets(st.sampled_from(PEOPLE), max_size=1),
    default_policy=st.sampled_from(["public", "public", "ask", "strict"]),
    engaged=st.sets(st.builds(Engagement, st.sampled_from(["a", "b"]), st.sampled_from(["a:a", "ab:b"]), st.just(""))),
)


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    found = draw(
        st.lists(
            st.tuples(
                MATCHES,
                st.sampled_from([("agent:a",), ("agent:b",), ("agent:a", "agent:b"), ("agent:a", "surface:s")]),
                st.booleans(),
                st.just(Terms()) | TERMS,
            )
        )
    )
    return [
        Rule(
            number,
            f"r{number}",
            tuple(condition(key, value) for key, value in match.items()),
            to,
            goes_on,
            generated=False,
            terms=terms,
        )
        for number, (match, to, goes_on, terms) in enumerate(found)
    ]


def of(rules: list[Rule]) -> Rules:
    return Rules("rules.toml", "", "0", "agent:scribe", tuple(rules), ())


def wanted(rule: Rule, to: str, found: Event, registry: Registry) -> bool:
    """Whether the rule wakes this destination, in the words of the guide."""
    kind, _, agent = to.partition(":")
    if kind != "agent":
        return True
    roles = registry.roles.get(found.principal, {})
    stranger = found.principal.startswith("user:") and not (roles.get(agent) or roles.get(""))
    owner = found.trust is Trust.OWNER or "owner" in (roles.get(agent) or roles.get(""), None)
    if (rule.terms.senders == "known" and stranger) or (rule.terms.senders == "owner" and not owner):
        return False
    called = found.addressed_to == to or f"@{agent}" in found.body["text"].split()
    sticky = (
        agent,
        f"{found.source}:{found.body['group']}",
        "",
    ) in registry.engaged and "agent:" not in found.principal
    return {"always": True, "mention": called, "mention-sticky": called or sticky}[rule.terms.engage]


def by_trying_them_all(found: Event, rules: list[Rule], registry: Registry) -> set[tuple[str, str, str]]:
    """Rule, destination and mode of each route, as a reader of the guide would find them, rule by rule."""
    unknown = found.principal.startswith("user:") and not registry.roles.get(found.principal)
    if found.addressed_to == found.principal or found.principal in registry.blocked:
        return set()
    if unknown and registry.default_policy != "public":
        return set()
    made: dict[str, tuple[str, str]] = {}
    matched = False
    for rule in rules:
        others = [to for to in rule.to if to != found.principal]
        if not others or not all(one.holds(found) for one in rule.match):
            continue
        matched = True
        woken = [to for to in others if wanted(rule, to, found, registry)]
        for to in others:
            if to in woken and made.get(to, ("", "context"))[1] == "context":
                made[to] = (rule.id, "wake")
            elif to not in woken and rule.terms.otherwise == "context":
                made.setdefault(to, (rule.id, "context"))
        group_s = (found.addressed_to or "").startswith("group:") and not any("surface" in to for to in rule.to)
        if woken and not rule.goes_on and (rule.terms.engage == "always" or not group_s):
            break
    emission = found.trust is Trust.AGENT or found.principal.startswith("agent:")
    if not matched and not emission:
        return {("default", "agent:scribe", "wake")}
    return {(rule, to, mode) for to, (rule, mode) in made.items()}


@given(rule_lists(), EVENTS, REGISTRIES)
def test_a_decision_is_what_a_reader_of_the_guide_finds_by_trying_every_rule(
    rules: list[Rule], found: Event, registry: Registry
) -> None:
    decision = decide(found, of(rules), registry)
    sent = {(route.rule_id, route.to, route.mode) for route in decision.routes}
    assert sent == by_trying_them_all(found, rules, registry)
    assert (decision.end is None) == bool(sent)
    assert not decision.faults


@given(rule_lists(), EVENTS, REGISTRIES)
def test_a_decision_depends_on_event_rules_and_registry_only(
    rules: list[Rule], found: Event, registry: Registry
) -> None:
    before = deepcopy(registry)
    assert decide(found, of(rules), registry) == decide(found, of(list(rules)), deepcopy(registry))
    assert registry == before


@given(rule_lists(), EVENTS, REGISTRIES)
def test_the_explanation_says_what_is_decided(rules: list[Rule], found: Event, registry: Registry) -> None:
    told = explain(found, of(rules), registry)
    decision = decide(found, of(rules), registry)
    assert told.decision == decision
    assert bool(told.barred) == (bar(found, registry) is not None)
    if not told.barred:
        assert {one.rule for one in told.rules if one.fired} >= {route.rule_id for route in decision.routes} - {
            "default"
        }


@given(rule_lists(), EVENTS)
def test_the_index_hides_no_rule_that_holds_and_keeps_their_order(rules: list[Rule], found: Event) -> None:
    offered = Index([rule.match for rule in rules]).candidates(found)
    assert list(offered) == sorted(set(offered))
    assert {rule.number for rule in rules if rule.holds(found)} <= set(offered)


@given(st.sampled_from(list(VALUES)).flatmap(lambda key: st.tuples(st.just(key), VALUES[key], VALUES[key])), EVENTS)
def test_a_condition_that_covers_another_holds_wherever_it_does(pair: tuple[str, str, str], found: Event) -> None:
    key, general, special = pair
    earlier, later = condition(key, general), condition(key, special)
    assume(covers(earlier, later))
    assert earlier.holds(found) or not later.holds(found)


@given(rule_lists(), EVENTS, REGISTRIES)
def test_a_rule_said_to_be_unreachable_decides_nothing_for_anyone_but_the_taker_s_own_destination(
    rules: list[Rule], found: Event, registry: Registry
) -> None:
    for later in rules:
        takers = [earlier for earlier in rules[: later.number] if shadows(earlier, later)]
        if takers and all(taker.to != (found.principal,) for taker in takers):
            without = of([rule for rule in rules if rule is not later])
            assert decide(found, of(rules), registry) == decide(found, without, registry)


SCALARS = st.one_of(
    st.booleans(), st.integers(-(2**31), 2**31), st.text(max_size=8), st.datetimes(), st.floats(allow_nan=False)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text(min_size=1, max_size=4), TREES, max_size=4)


@given(DOCUMENTS)
def test_every_key_and_list_item_of_a_valid_text_has_a_place_where_it_stands(document: dict[str, Any]) -> None:
    text = written(document)
    read = tomllib.loads(text)
    where = positions(text)
    assert set(where) == set(paths(read))
    lines = text.replace("\r\n", "\n").split("\n")
    assert all(place.column <= len(lines[place.line - 1]) for place in where.values())


def written(document: dict[str, Any]) -> str:
    """The document as TOML; an example that tomlkit writes wrongly is no example."""
    try:
        text = tomlkit.dumps(document)
        tomllib.loads(text)
    except Exception:  # noqa: BLE001 - whatever the writer stumbles over, it is not what is tested here
        reject()
    return text


def paths(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*path, key)
        yield from paths(item, (*path, key))


AGENTS = st.sets(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,6}", fullmatch=True), max_size=3)
OWNERS = st.lists(
    st.sampled_from(
        ["# mine\n", "\n", "   # é \r\n", '[[rule]]\nid="x{}"\nmatch={{group="g{}"}}\nto="agent:a"\n', "\t\n"]
    ),
    max_size=5,
).map(lambda lines: HEAD + "".join(line.format(number, number) for number, line in enumerate(lines)))


@given(OWNERS, st.sampled_from(["", "\n", "# no end"]), AGENTS, AGENTS)
def test_growing_keeps_every_byte_of_the_owner_and_grows_once(
    text: str, end: str, agents: set[str], surfaces: set[str]
) -> None:
    text += end
    grown = ensure_generated(text, agents, surfaces)
    assert grown.startswith(text)
    assert ensure_generated(grown, agents, surfaces) == grown
    ids = [rule.id for rule in parse(grown, "rules.toml").rules]
    assert ids == [rule.id for rule in parse(text, "rules.toml").rules] + [
        *(f"r-{agent}-addressed" for agent in sorted(agents)),
        *(f"r-{surface}-reply" for surface in sorted(surfaces)),
    ]


@given(st.text(max_size=60).map(lambda text: HEAD + text))
def test_any_text_is_taken_or_refused_in_one_line_with_its_place(text: str) -> None:
    said = verdict(text)
    assert said is None or re.fullmatch(r"rules\.toml:[1-9]\d*:[1-9]\d*: [^\n]+", said)


def verdict(text: str) -> str | None:
    """What the refusal of a text says, or None."""
    try:
        parse(text, "rules.toml")
    except BadInput as refusal:
        return str(refusal)
    return None
