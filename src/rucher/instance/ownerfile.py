"""Changes a file that its owner writes, at his command: whole or not at all, and one command at a time.

Called by commands for `sources.toml` and the like. The daemon reads such files at any moment and finds the old or the new one.
"""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from rucher.instance.text import bytes_of
from rucher.protocol.errors import BadInput
from rucher.protocol.livefile import replace_file
from rucher.protocol.tomltext import decode

_FILE_MODE = 0o644


def edit(path: Path, change: Callable[[str], str]) -> None:
    """Put `change` of the file's text in its place; a file that lacks is empty. Raises BadInput, with nothing changed.

    Line ends and everything that `change` leaves stay as they are, byte for byte, and so does the file's mode.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        before = text_in(path)
        after = change(before)
        if after != before:
            replace_file(path, after.encode(), _FILE_MODE)
    except OSError as error:
        raise BadInput(f"{path} cannot be changed ({error.strerror}); correct that and try again") from error
    finally:
        os.close(folder)


def text_in(path: Path) -> str:
    """The file's text, nothing when there is none; raises BadInput when it cannot be read."""
    return decode(bytes_of(path, "put a backup of the file in its place"), path) if os.path.lexists(path) else ""
