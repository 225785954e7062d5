"""The acts read_file, list_dir and write_file. Called by the runner's loop; they reach nothing but the workspace."""

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from rucher.runner import beneath
from rucher.runner.results import OUTPUT_BYTES, Acted, Failure, lines_that_fit, shown, shown_name, succeeded

_SNIFF = 8192
_ENTRIES = 1000
_TEMPORARY = ".rucher-write-"


def read_file(arguments: Mapping[str, Any], workspace: str) -> Acted:
    """Lines `start` to `end` (from 1, both included) of a text file, all of it when neither is given."""
    names = beneath.parts(_text(arguments, "path"), workspace)
    start, end = _line(arguments, "start"), _line(arguments, "end")
    with beneath.file(workspace, names) as descriptor:
        size = os.fstat(descriptor).st_size
        if b"\0" in os.pread(descriptor, _SNIFF, 0):
            raise Failure(f"{names[-1]} is binary ({size} bytes); look at it with shell, for example with xxd or file")
        with open(descriptor, "rb", closefd=False) as stream:
            return _lines(stream, start or 1, end)


def _lines(stream: BinaryIO, start: int, end: int | None) -> Acted:
    taken: list[str] = []
    room = OUTPUT_BYTES
    number = 0
    for number, line in _numbered(stream):
        if number < start:
            continue
        if end is not None and number > end:
            break
        if len(line) > room:
            following = number if taken else number + 1
            taken.append("" if taken else shown(line[:room]))
            note = f"\n[cut: line {number} did not fit whole; go on with start={following}]"
            return succeeded("".join(taken) + note, truncated=True)
        room -= len(line)
        taken.append(shown(line))
    if not taken and start > 1:
        raise Failure(f"the file has only {number} lines, so there is no line {start}")
    return succeeded("".join(taken) or "[the file is empty]")


def _numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Lines with their numbers, each in bounded memory: no more of one than shows that it is too long."""
    number = 0
    while line := stream.readline(OUTPUT_BYTES + 1):
        number += 1
        yield number, line
        while len(line) > OUTPUT_BYTES and not line.endswith(b"\n"):
            line = stream.readline(OUTPUT_BYTES + 1)


def list_dir(arguments: Mapping[str, Any], workspace: str) -> Acted:
    """One line an entry: folders with a closing slash, files with their size in bytes, links with where they point."""
    names = beneath.parts(_text(arguments, "path", "."), workspace)
    with beneath.folder(workspace, names) as descriptor:
        entries = sorted(name for name in os.listdir(descriptor) if not name.startswith(_TEMPORARY))
        lines = [_entry(descriptor, name) for name in entries[:_ENTRIES]]
    fitting = lines_that_fit(lines)
    hidden = len(entries) - len(fitting)
    if hidden:
        fitting.append(f"[{hidden} more entries are not shown; name a folder, or use shell]")
    return succeeded("\n".join(fitting) or "[the folder is empty]", truncated=hidden > 0)


def _entry(parent: int, name: str) -> str:
    shown_as = shown_name(name)
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return f"{shown_as}  (just removed)"
    if stat.S_ISDIR(status.st_mode):
        return f"{shown_as}/"
    if stat.S_ISLNK(status.st_mode):
        return f"{shown_as} -> {shown_name(os.readlink(name, dir_fd=parent))}"
    return f"{shown_as}  {status.st_size}" if stat.S_ISREG(status.st_mode) else f"{shown_as}  (special)"


def write_file(arguments: Mapping[str, Any], workspace: str) -> Acted:
    """Replace or make a file, whole or not at all, durable once it returns; missing folders are made."""
    names = beneath.parts(_text(arguments, "path"), workspace)
    content = _text(arguments, "content").encode("utf-8", "surrogatepass")
    if not names:
        raise Failure("that is the workspace itself; name a file in it")
    path = shown_name("/".join(names))
    with beneath.folder(workspace, names[:-1], make=True) as parent:
        mode = _writable_mode(parent, names[-1], path)
        try:
            _replace(parent, names[-1], content, mode)
        except OSError as error:
            raise Failure(f"{path}: {error.strerror}; nothing was written") from error
    return succeeded(f"wrote {len(content)} bytes to {path}")


def _writable_mode(parent: int, name: str, path: str) -> int:
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(mode):
        raise Failure(f"{path} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise Failure(f"{path} is a link or a special file, which is not written through; name the file itself")
    return mode & 0o777


def _replace(parent: int, name: str, content: bytes, mode: int) -> None:
    draft = _TEMPORARY + name[:200]
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(draft, flags, mode, dir_fd=parent)
    except FileExistsError:
        # A runner before this one died while writing the same file.
        os.unlink(draft, dir_fd=parent)
        descriptor = os.open(draft, flags, mode, dir_fd=parent)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        os.unlink(draft, dir_fd=parent)
        raise
    os.fsync(parent)


def _text(arguments: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = arguments.get(name, default)
    if not isinstance(value, str):
        raise Failure(f"{name} is missing or is not text")
    return value


def _line(arguments: Mapping[str, Any], name: str) -> int | None:
    value = arguments.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Failure(f"{name} is not a line number; lines are counted from 1")
    return value
