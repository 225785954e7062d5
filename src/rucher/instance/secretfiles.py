"""The secrets that an instance shares with others: a file a name, one secret a line, newest first, for their owner only.

Read by the daemon at each use, so that a change counts at once; written by commands. An older secret is followed by the
moment until which it is valid: `SECRET until=2026-12-01T09:00:00Z`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rucher.instance.layout import Instance
from rucher.instance.text import bytes_of
from rucher.protocol.errors import BadInput

_FOLDER_MODE, _FILE_MODE = 0o700, 0o600
_OTHERS = 0o077
_UNTIL = " until="
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOST_SECRETS = 8


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret; from the moment `until` (microseconds since the epoch) it is worth nothing. None: no such moment."""

    text: str
    until: int | None = None


def read_secrets(path: Path) -> tuple[Secret, ...]:
    """All secrets of a file, newest first; none when there is no file. Raises BadInput when it cannot be used."""
    if not os.path.lexists(path):
        return ()
    mend = "let its owner mend it, or make a new secret"
    text = bytes_of(path, mend).decode("utf-8", "replace")
    if path.stat().st_mode & _OTHERS:
        raise BadInput(
            f"{path} can be read by others than its owner; change that with: chmod 600 {path}, and make a new secret"
        )
    return tuple(_secret(line, path) for line in text.splitlines() if line.strip())[:MOST_SECRETS]


def source_secrets(instance: Instance, name: str) -> Path:
    """Where the secrets lie that the deliveries of a source are verified with."""
    return instance.secrets / "sources" / name


def state_of(path: Path, now: int) -> str:
    """How it is with the secrets of a file, for its owner: how many count now, or why none can be read."""
    try:
        count = len(valid(read_secrets(path), now))
    except BadInput as error:
        return str(error)
    return {0: "none", 1: "one"}.get(count, f"{count}, as the old ones count still")


def valid(secrets: Sequence[Secret], now: int) -> tuple[str, ...]:
    """The texts of those that count at this moment."""
    return tuple(secret.text for secret in secrets if secret.until is None or now < secret.until)


def rotated(secrets: Sequence[Secret], new: str, now: int, overlap_us: int) -> tuple[Secret, ...]:
    """`new`, then those that count still, none of them for longer than `overlap_us` from now."""
    end = now + overlap_us
    kept = [Secret(secret.text, min(end, secret.until or end)) for secret in secrets if secret.text != new]
    return (Secret(new), *(secret for secret in kept if now < (secret.until or 0)))[:MOST_SECRETS]


def write_secrets(path: Path, secrets: Sequence[Secret]) -> None:
    """Put these in the file, whole or not at all; folders that lack are made, for their owner only."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
        folder.chmod(_FOLDER_MODE)
    temporary = path.with_name(f".{path.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, _FILE_MODE), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), _FILE_MODE)
        file.writelines(_line(secret) for secret in secrets)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _secret(line: str, path: Path) -> Secret:
    text, mark, rest = line.strip().rpartition(_UNTIL)
    if not mark:
        return Secret(line.strip())
    try:
        moment = datetime.fromisoformat(rest)
        return Secret(text, (moment - _EPOCH) // timedelta(microseconds=1))
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"{path}: a secret may be followed by until= and a time in UTC only; mend or remove that"
        ) from error


def _line(secret: Secret) -> str:
    if secret.until is None:
        return f"{secret.text}\n"
    moment = (_EPOCH + timedelta(microseconds=secret.until)).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{secret.text}{_UNTIL}{moment}\n"
