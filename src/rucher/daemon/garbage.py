"""How often Python looks for garbage in a daemon. Called once, by whoever starts one, when everything is imported."""

import gc

ALLOCATIONS = 20_000
"""Objects made beyond those freed before the youngest are looked through; Python's own 700 cost a tenth of a recovery."""


def look_for_little() -> None:
    """Never look through what is there by now and lives as long as the process, and seldom through what comes.

    Nearly all that a daemon makes is freed by its reference counts; what is left to find are cycles, mostly of exceptions.
    """
    gc.freeze()
    gc.set_threshold(ALLOCATIONS, 20, 50)
    gc.enable()
