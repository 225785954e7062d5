"""Runs the benchmarks, prints their figures and says which bar is missed; exit code 1 when one is."""

import sys

from benchmarks import router, spine

BARS_MS = 30.0
IDLE_PERCENT = 1.0
DECISIONS_PER_S = 20_000


def main() -> int:
    """Measure, print, judge."""
    routed = router.measure()
    print(
        f"router: {routed.decisions_per_s:,.0f} decisions/s with {routed.rules} rules; file read in {routed.parse_ms:.0f} ms"
    )
    figures = spine.measure()
    print(f"send to first step: median {figures.first_step_median_ms:.1f} ms, p95 {figures.first_step_p95_ms:.1f} ms")
    print(f"idle daemon with a warm runner: {figures.idle_core_percent:.2f} % of one core")
    missed = [
        name
        for name, ok in (
            (f"send to first step under {BARS_MS} ms", figures.first_step_median_ms < BARS_MS),
            (f"idle under {IDLE_PERCENT} % of a core", figures.idle_core_percent < IDLE_PERCENT),
            (f"{DECISIONS_PER_S} decisions/s", routed.decisions_per_s >= DECISIONS_PER_S),
        )
        if not ok
    ]
    for name in missed:
        print(f"MISSED: {name}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
