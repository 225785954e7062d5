"""Whole instances take their time to start: what is here has a command of its own, but for the first message."""

from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
AT_ONCE = HERE / "test_first_message.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark each test of this folder."""
    for item in items:
        if HERE in item.path.parents and item.path != AT_ONCE:
            item.add_marker(pytest.mark.acceptance)
