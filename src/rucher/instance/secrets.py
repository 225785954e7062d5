"""The two small secrets of an instance: its token and its node key. Made once, whole or not at all, for their owner only."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nacl.encoding import HexEncoder
from nacl.signing import SigningKey

from rucher.instance.text import bytes_of
from rucher.protocol.errors import BadInput
from rucher.protocol.ports import Entropy

_HEX = re.compile(r"[0-9a-f]{64}")
_BYTES = 32


def instance_token(path: Path, entropy: Entropy) -> str:
    """What a command shows to its instance's daemon, made when there is none; raises BadInput when it cannot be read."""
    return _made_or_read(path, entropy)


def read_token(path: Path) -> str:
    """The token of an instance; raises BadInput when there is none or the file is damaged."""
    return _read(path)


def node_key(path: Path, entropy: Entropy) -> SigningKey:
    """The key that signs this node's seals, made when there is none; raises BadInput when it cannot be read."""
    return SigningKey(_made_or_read(path, entropy).encode(), encoder=HexEncoder)


def _made_or_read(path: Path, entropy: Entropy) -> str:
    if not os.path.lexists(path):
        with _alone(path.parent):
            if not os.path.lexists(path):
                _write(path, entropy.bytes(_BYTES).hex())
    return _read(path)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two processes that start at once must not make two secrets."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _read(path: Path) -> str:
    if not os.path.lexists(path):
        raise BadInput(f"{path} is missing; start the instance's daemon once with `rucher up`")
    text = bytes_of(path, "put a backup of the file in its place").strip().decode("ascii", "replace")
    if not _HEX.fullmatch(text):
        raise BadInput(
            f"{path} is damaged; put a backup in its place, or remove it and a new one is made at the next start"
        )
    return text


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
