"""The laws of the kernel are about what it decides; what a disk keeps is proven in tests/chaos."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.kernel import MEMORY


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory where there is such a thing: hundreds of small commits then take seconds less."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        yield Path(folder)
