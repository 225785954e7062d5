"""Laws of the counts: each refusal has its reason, and they are text that a collector of metrics reads."""

import re

from rucher.control.tallies import UNKNOWN, Reason, Tallies

LINE = re.compile(r'rucher_ingress_deliveries_total\{source="[a-z0-9_-]+",outcome="[a-z]+",reason="[a-z_]*"\} [0-9]+')


def test_counts_are_kept_by_source_and_reason() -> None:
    tallies = Tallies()
    tallies.took("a", first=True)
    tallies.took("a", first=False)
    tallies.took("b", first=True)
    tallies.refused("a", Reason.SIGNATURE)
    tallies.refused("a", Reason.SIGNATURE)
    tallies.refused(UNKNOWN, Reason.NO_SOURCE)
    assert tallies.of("a") == {"accepted": 1, "duplicate": 1, "refused": {"signature": 2}}
    assert tallies.of("never") == {"accepted": 0, "duplicate": 0, "refused": {}}


def test_metrics_are_open_metrics_text() -> None:
    tallies = Tallies()
    tallies.took("a", first=True)
    tallies.refused(UNKNOWN, Reason.NO_SOURCE)
    *lines, last, end = tallies.metrics(["a"]).split("\n")
    assert (last, end) == ("# EOF", "")
    samples = [line for line in lines if not line.startswith("# ")]
    assert all(LINE.fullmatch(line) for line in samples)
    assert 'rucher_ingress_deliveries_total{source="a",outcome="accepted",reason=""} 1' in samples
    assert 'rucher_ingress_deliveries_total{source="unknown",outcome="refused",reason="no_source"} 1' in samples
    assert lines[0] == "# TYPE rucher_ingress_deliveries counter"
