"""What every test shares: how long and how often Hypothesis may try, and that it leaves its process as it found it."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# No deadline: on a busy machine a slow example is not a defect.
settings.register_profile("default", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("long", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile("default")

# Started in the background, pytest inherits an ignored SIGINT and hands it to every program that a test wants to interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def folder_of_the_suite() -> Path:
    """Where pytest was started."""
    return Path.cwd()


@pytest.fixture(autouse=True)
def stays_where_it_was(folder_of_the_suite: Path) -> Iterator[None]:
    """A test that ends in another folder would break, far away, one that starts a program from here."""
    yield
    assert Path.cwd() == folder_of_the_suite
