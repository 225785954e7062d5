"""The secrets of an instance are made once, whole, and for their owner only."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rucher.instance.secrets import instance_token, node_key, read_token
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.errors import BadInput


def test_a_secret_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    token, key = tmp_path / "token", tmp_path / "node.key"
    assert instance_token(token, SystemEntropy()) == instance_token(token, SystemEntropy()) == read_token(token)
    assert node_key(key, SystemEntropy()) == node_key(key, SystemEntropy())
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert {path.name for path in tmp_path.iterdir()} == {"token", "node.key"}


def test_two_that_start_at_once_have_one_secret(tmp_path: Path) -> None:
    for number in range(20):
        together = threading.Barrier(4)

        def start(path: Path = tmp_path / f"key{number}", together: threading.Barrier = together) -> bytes:
            together.wait()
            return bytes(node_key(path, SystemEntropy()))

        with ThreadPoolExecutor(4) as pool:
            assert len({made.result() for made in [pool.submit(start) for _ in range(4)]}) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".new")]


@pytest.mark.parametrize("damage", ["", "short", "g" * 64])
def test_a_damaged_secret_is_refused_and_never_used(tmp_path: Path, damage: str) -> None:
    (tmp_path / "token").write_text(damage)
    with pytest.raises(BadInput, match="damaged"):
        instance_token(tmp_path / "token", SystemEntropy())
    with pytest.raises(BadInput, match="damaged"):
        node_key(tmp_path / "token", SystemEntropy())


def test_a_folder_or_a_link_in_place_of_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    (tmp_path / "node.key").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput):
        instance_token(tmp_path / "token", SystemEntropy())
    with pytest.raises(BadInput):
        node_key(tmp_path / "node.key", SystemEntropy())
    assert not (tmp_path / "nowhere").exists()
