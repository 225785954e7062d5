"""The secret that a command shows to its instance's daemon: made once, readable by its owner only."""

import os
from pathlib import Path

from rucher.protocol.ports import Entropy


def instance_token(path: Path, entropy: Entropy) -> str:
    """The token in `path`, made when there is none."""
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        token = entropy.bytes(32).hex()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token + "\n")
        return token
