"""Reads a small text file of an instance: a regular file in UTF-8, bounded, and without waiting for anybody.

Called for what owners edit and for the token. What cannot be used is one line naming the file, the line and the mend.
"""

import os
import stat
from pathlib import Path

from rucher.protocol.errors import BadInput

MOST_BYTES = 1024 * 1024


def text_of(path: Path, mend: str) -> str:
    """The file's text, with line ends as `\\n`. Raises BadInput, which ends with `mend` where the file cannot be had."""
    raw = bytes_of(path, mend)
    if len(raw) > MOST_BYTES:
        raise BadInput(f"{path}: this file is larger than {MOST_BYTES} bytes; shorten it")
    try:
        return raw.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{path}: line {line}: this is not UTF-8 text; save the file as UTF-8") from error


def bytes_of(path: Path, mend: str) -> bytes:
    """The file's first bytes, one more than `MOST_BYTES` at most. Raises BadInput, which ends with `mend`."""
    try:
        # A pipe that was put in the file's place must not hold the caller until somebody writes into it.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInput(f"{path}: this is not a regular file; {mend}")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}); {mend}") from error
