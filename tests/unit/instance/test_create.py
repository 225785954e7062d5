"""Laws of making an instance: whole or not at all, secrets for its owner only, nothing that was there touched."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import rucher
from rucher.instance.create import KERNEL, MODELS, Contents, config_text, create
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.errors import BadInput

CONTENTS = Contents("[instance]\n", 'default = "agent:scribe"\n')


class Failing:
    """An Entropy whose second answer does not come, as on a machine that dies in the middle of the work."""

    def __init__(self, *, kill: bool = False) -> None:
        self._asked = 0
        self._kill = kill

    def bytes(self, count: int) -> bytes:
        self._asked += 1
        if self._asked == 1:
            return b"\x07" * count
        if self._kill:
            os._exit(9)
        raise KeyboardInterrupt


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_secret_is_for_the_owner_only(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = create(tmp_path / "hive", CONTENTS, SystemEntropy())
    finally:
        os.umask(before)
    assert (mode(made.state), mode(made.sessions), mode(made.surfaces), mode(made.token)) == (
        0o700,
        0o700,
        0o700,
        0o600,
    )
    assert len(bytes.fromhex(made.token.read_text().strip())) == 32
    assert made.config.read_text() == CONTENTS.config
    assert made.agents.resolve() == KERNEL.resolve() / "agents"


def test_two_instances_never_share_a_token(tmp_path: Path) -> None:
    tokens = {create(tmp_path / name, CONTENTS, SystemEntropy()).token.read_text() for name in "abc"}
    assert len(tokens) == 3


@pytest.mark.parametrize("existing", [True, False])
def test_an_interrupted_making_leaves_nothing(tmp_path: Path, *, existing: bool) -> None:
    place = tmp_path / "hive"
    if existing:
        place.mkdir()
    with pytest.raises(KeyboardInterrupt):
        create(place, CONTENTS, Failing())
    assert list(tmp_path.iterdir()) == ([place] if existing else [])
    assert not existing or list(place.iterdir()) == []


def test_a_killed_making_leaves_no_half_instance_and_the_next_one_works(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from rucher.instance.create import create; "
        "from tests.unit.instance.test_create import CONTENTS, Failing; "
        f"create(Path({str(tmp_path / 'hive')!r}), CONTENTS, Failing(kill=True))"
    )
    roots = [str(Path(rucher.__file__).parents[1]), str(Path(__file__).parents[3])]
    killed = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(roots)}, check=False)
    assert killed.returncode == 9
    assert not (tmp_path / "hive").exists()
    assert create(tmp_path / "hive", CONTENTS, SystemEntropy()).config.is_file()


def test_an_empty_folder_is_taken_with_its_mode_kept(tmp_path: Path) -> None:
    place = tmp_path / "hive"
    place.mkdir(mode=0o750)
    create(place, CONTENTS, SystemEntropy())
    assert mode(place) == 0o750


def test_a_place_behind_a_link_is_made_where_the_link_points(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    create(tmp_path / "link", CONTENTS, SystemEntropy())
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "rucher.toml").is_file()


@pytest.mark.parametrize("occupant", ["rucher.toml", "other.txt", ".hidden"])
def test_a_folder_that_holds_anything_is_refused(tmp_path: Path, occupant: str) -> None:
    (tmp_path / occupant).write_text("mine")
    with pytest.raises(BadInput, match="instance already" if occupant == "rucher.toml" else "not empty"):
        create(tmp_path, CONTENTS, SystemEntropy())
    assert [path.name for path in tmp_path.iterdir()] == [occupant]


def test_every_kind_of_model_has_a_text_of_its_own() -> None:
    texts = [config_text("hive", model, 7474) for model in MODELS]
    assert [f'kind = "{model}"' in text for model, text in zip(MODELS, texts, strict=True)] == [True] * 3
