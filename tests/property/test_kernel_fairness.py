"""Laws of sharing: nobody starves, no limit is passed, no slot stays free that somebody could use."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rucher.kernel.fairness import Limits, choose

Row = Mapping[str, Any]
TENANTS, AGENTS, MISSIONS = ("t", "u", "v"), ("x", "y"), ("", "M", "N")

owners = {"tenant": st.sampled_from(TENANTS), "agent": st.sampled_from(AGENTS), "mission": st.sampled_from(MISSIONS)}
wanted = st.fixed_dictionaries(owners | {"priority": st.integers(-1, 1)})
candidate_lists = st.lists(wanted, max_size=14).map(
    lambda rows: [row | {"seq": seq, "run_id": f"r{seq}"} for seq, row in enumerate(rows)]
)
held_lists = st.lists(st.fixed_dictionaries(owners | {"count": st.integers(1, 4)}), max_size=4)
bounds = st.none() | st.integers(1, 4)
limit_sets = st.builds(Limits, agent=bounds, mission=bounds)


class Tally:
    """Who has how many in hand."""

    def __init__(self, held: Sequence[Row]) -> None:
        self.tenants: Counter[str] = Counter()
        self.agents: Counter[tuple[str, str]] = Counter()
        self.missions: Counter[str] = Counter()
        for row in held:
            self.add(row, row["count"])

    def add(self, row: Row, number: int = 1) -> None:
        self.tenants[row["tenant"]] += number
        self.agents[row["tenant"], row["agent"]] += number
        self.missions[row["mission"]] += number

    def hinders(self, row: Row, limits: Limits) -> bool:
        agent = limits.agent is not None and self.agents[row["tenant"], row["agent"]] >= limits.agent
        mission = limits.mission is not None and row["mission"] and self.missions[row["mission"]] >= limits.mission
        return bool(agent or mission)


@given(rows=candidate_lists, held=held_lists, limits=limit_sets, free=st.integers(0, 16))
def test_no_limit_is_passed_and_no_slot_stays_free_that_somebody_could_use(
    rows: list[Row], held: list[Row], limits: Limits, free: int
) -> None:
    by_id = {row["run_id"]: row for row in rows}
    chosen = [by_id[run] for run in choose(rows, held, limits, free)]
    assert len(chosen) <= free
    assert len({row["run_id"] for row in chosen}) == len(chosen)
    tally = Tally(held)
    for row in chosen:
        assert not tally.hinders(row, limits)
        tally.add(row)
    left = [row for row in rows if row not in chosen]
    assert len(chosen) == free or all(tally.hinders(row, limits) for row in left)


@given(rows=candidate_lists, held=held_lists, limits=limit_sets, free=st.integers(0, 16))
def test_nobody_gets_another_while_somebody_with_fewer_could_have_had_one(
    rows: list[Row], held: list[Row], limits: Limits, free: int
) -> None:
    by_id = {row["run_id"]: row for row in rows}
    chosen = [by_id[run] for run in choose(rows, held, limits, free)]
    tally = Tally(held)
    for row in chosen:
        tally.add(row)
    for left in (row for row in rows if row not in chosen and not tally.hinders(row, limits)):
        for got in chosen:
            assert tally.tenants[got["tenant"]] <= tally.tenants[left["tenant"]] + 1
            if got["tenant"] == left["tenant"]:
                agents = tally.agents
                assert agents[got["tenant"], got["agent"]] <= agents[left["tenant"], left["agent"]] + 1
            if (got["tenant"], got["agent"]) == (left["tenant"], left["agent"]):
                assert (-got["priority"], got["seq"]) < (-left["priority"], left["seq"])


@given(rows=candidate_lists, held=held_lists, limits=limit_sets, free=st.integers(0, 16), data=st.data())
def test_the_choice_does_not_depend_on_the_order_in_which_the_candidates_are_told(
    rows: list[Row], held: list[Row], limits: Limits, free: int, data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert choose(rows, held, limits, free) == choose(shuffled, held, limits, free)


@given(flood=st.integers(1, 8), slots=st.integers(1, 4), priority=st.integers(0, 9))
def test_a_tenant_that_floods_the_queue_delays_another_by_no_more_than_what_was_there_before(
    flood: int, slots: int, priority: int
) -> None:
    numbers = count()

    def run(tenant: str, high: int = 0) -> dict[str, Any]:
        seq = next(numbers)
        told = {"tenant": tenant, "agent": "x", "mission": "", "priority": high}
        return told | {"seq": seq, "run_id": f"{tenant}{seq}"}

    ready = [run("loud", priority) for _ in range(flood * slots)]
    ready.append(run("quiet"))
    for _ in range(1 if slots > 1 else flood + 1):
        chosen = choose(ready, [], Limits(), slots)
        assert chosen
        ready = [row for row in ready if row["run_id"] not in chosen] + [run("loud", priority) for _ in chosen]
    assert all(row["tenant"] == "loud" for row in ready)
