import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

import tomlkit
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from rucher.protocol.errors import BadInput
from rucher.protocol.events import Event, Trust
from rucher.protocol.positions import KeyPath, positions
from rucher.router.conditions import condition, covers
from rucher.router.generated import ensure_generated
from rucher.router.index import Index
from rucher.router.parse import parse
from rucher.router.rules import Decision, Dropped, Route, Rule, Rules, decide
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
NAMES = st.sampled_from(["a", "ab", "b", "agent:a", "agent:b"])
EVENTS = st.builds(
    event,
    WORDS,
    source=WORDS,
    principal=NAMES,
    trust=st.sampled_from(Trust),
    addressed_to=st.none() | NAMES,
    group=NAMES,
    tenant=WORDS,
)


@st.composite
def rule_lists(draw: st.DrawFn) -> list[Rule]:
    found = draw(
        st.lists(
            st.tuples(MATCHES, st.sampled_from([("agent:a",), ("agent:b",), ("agent:a", "agent:b")]), st.booleans())
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
        )
        for number, (match, to, goes_on) in enumerate(found)
    ]


def of(rules: list[Rule]) -> Rules:
    return Rules("rules.toml", "", "0", "agent:scribe", tuple(rules), ())


def by_trying_them_all(found: Event, rules: list[Rule]) -> Decision:
    """The decision as a reader of the documentation would make it, rule by rule."""
    if found.addressed_to == found.principal:
        return Dropped("")
    routes: list[Route] = []
    for rule in rules:
        others = [to for to in rule.to if to != found.principal]
        if others and all(one.holds(found) for one in rule.match):
            routes += [Route(rule.id, to) for to in others if to not in [route.to for route in routes]]
            if not rule.goes_on:
                break
    if routes:
        return tuple(routes)
    emission = found.trust is Trust.AGENT or found.principal.startswith("agent:")
    return Dropped("") if emission else (Route("default", "agent:scribe"),)


@given(rule_lists(), EVENTS)
def test_the_index_changes_no_decision(rules: list[Rule], found: Event) -> None:
    decision = decide(found, of(rules))
    expected = by_trying_them_all(found, rules)
    assert decision == expected or (isinstance(decision, Dropped) and isinstance(expected, Dropped))


@given(rule_lists(), EVENTS)
def test_a_decision_depends_on_event_and_rules_only(rules: list[Rule], found: Event) -> None:
    assert decide(found, of(rules)) == decide(found, of(rules)) == decide(found, of(list(rules)))


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


@given(rule_lists(), EVENTS)
def test_a_rule_said_to_be_unreachable_decides_nothing_for_anyone_but_the_taker_s_own_destination(
    rules: list[Rule], found: Event
) -> None:
    for later in rules:
        takers = [earlier for earlier in rules[: later.number] if shadows(earlier, later)]
        if takers and all(taker.to != (found.principal,) for taker in takers):
            assert decide(found, of(rules)) == decide(found, of([rule for rule in rules if rule is not later]))


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
