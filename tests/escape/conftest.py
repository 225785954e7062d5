"""What every attack gets: a place where a real sandbox can be started, and a way to run the same attack outside of it.

Where this machine cannot sandbox, these tests fail: that is what they are for.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rucher.protocol.clock import SystemClock
from rucher.sandbox.bubblewrap import Bubblewrap
from rucher.sandbox.options import Limits, SandboxOptions
from tests.escape.attack import MIB, Place


@pytest.fixture(scope="session")
def cache_dir() -> Iterator[Path]:
    # Not in tmp_path: the user that root's sandboxes run as must reach it.
    folder = Path(tempfile.mkdtemp(prefix="rucher-kit-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def launcher(cache_dir: Path) -> Bubblewrap:
    options = SandboxOptions(cache_dir, limits=Limits(file_bytes=8 * MIB, processes=64))
    launcher = Bubblewrap(options, SystemClock())
    capability = asyncio.run(launcher.capability())
    assert capability.ok, capability.reason
    return launcher


@pytest.fixture
def place(launcher: Bubblewrap, tmp_path: Path) -> Place:
    return Place(tmp_path, launcher)
