from benchmarks.router import measure

DECISIONS_PER_S = 20_000


def test_a_thousand_rules_are_decided_at_twenty_thousand_events_a_second_on_one_core() -> None:
    assert max(measure(events=4000).decisions_per_s for _ in range(5)) >= DECISIONS_PER_S
