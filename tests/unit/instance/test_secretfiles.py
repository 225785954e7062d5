"""Laws of secrets on disk: a secret counts until its stated moment, nobody else can read it, a spoilt file is one line."""

from pathlib import Path

import pytest

from rucher.instance.secretfiles import MOST_SECRETS, Secret, read_secrets, rotated, state_of, valid, write_secrets
from rucher.protocol.errors import BadInput

NOW = 1_800_000_000_000_000
DAY = 86_400_000_000


def test_what_was_written_is_read_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "sources" / "a"
    secrets = (Secret("It's a Secret to Everybody"), Secret("old", NOW))
    write_secrets(path, secrets)
    write_secrets(path, secrets)
    assert read_secrets(path) == secrets
    assert [one.name for one in path.parent.iterdir()] == ["a"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(BadInput, match="chmod 600"):
        read_secrets(path)


def test_an_old_secret_counts_until_its_moment_and_not_at_it() -> None:
    secrets = (Secret("new"), Secret("old", NOW))
    assert valid(secrets, NOW - 1) == ("new", "old")
    assert valid(secrets, NOW) == ("new",)


def test_a_rotation_never_lengthens_the_life_of_an_old_secret() -> None:
    first = rotated((), "a", NOW, DAY)
    second = rotated(first, "b", NOW, DAY)
    assert second == (Secret("b"), Secret("a", NOW + DAY))
    third = rotated(second, "c", NOW + DAY // 2, DAY)
    assert third == (Secret("c"), Secret("b", NOW + DAY // 2 + DAY), Secret("a", NOW + DAY))
    assert rotated(third, "d", NOW + 3 * DAY, DAY) == (Secret("d"), Secret("c", NOW + 4 * DAY))
    assert rotated(second, "a", NOW, DAY) == (Secret("a"), Secret("b", NOW + DAY))
    many = first
    for number in range(20):
        many = rotated(many, str(number), NOW, DAY)
    assert len(many) == MOST_SECRETS


@pytest.mark.parametrize("line", ["a until=", "a until=soon", "a until=2026-01-01T00:00:00"])
def test_a_spoilt_file_is_one_line_that_holds_no_secret(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a"
    path.touch(0o600)
    path.write_text(f"secret0secret0 until=2027-01-01T00:00:00Z\n\n{line.replace('a ', 'hidden0hidden ')}\n")
    with pytest.raises(BadInput) as refusal:
        read_secrets(path)
    assert "hidden0hidden" not in str(refusal.value)
    assert state_of(path, NOW) == str(refusal.value)


def test_no_file_is_no_secret(tmp_path: Path) -> None:
    assert read_secrets(tmp_path / "a") == ()
    assert state_of(tmp_path / "a", NOW) == "none"
