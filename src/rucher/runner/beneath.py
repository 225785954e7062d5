"""Opens files beneath the workspace without following a link, so that no path of a tool call can lead out of it.

Used by the acts on files. Each component is opened on the one before it, so a folder that is swapped for a link between
check and use is refused as well.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from rucher.runner.results import Failure, shown_name

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def parts(path: str, workspace: str) -> tuple[str, ...]:
    """The names from the workspace down to `path`, which may be relative, or absolute within the workspace."""
    if "\0" in path:
        raise Failure("a path cannot hold a NUL character")
    if path.startswith("/"):
        inside = os.path.normpath(path)
        if inside != workspace and not inside.startswith(workspace + "/"):
            raise Failure(f"{path} is outside the workspace; give a path relative to it, such as notes/a.txt")
        path = inside[len(workspace) :].lstrip("/")
    plain = os.path.normpath(path or ".")
    if plain == ".." or plain.startswith("../"):
        raise Failure(f"{path} is outside the workspace; give a path relative to it, such as notes/a.txt")
    return () if plain == "." else tuple(plain.split("/"))


def _reason(error: OSError, name: str) -> Failure:
    shown = shown_name(name)
    if isinstance(error, FileNotFoundError):
        return Failure(f"{shown} does not exist; list_dir shows what does")
    if isinstance(error, NotADirectoryError):
        return Failure(f"{shown} is a file or a link where a folder is needed; links are not followed")
    if error.errno == errno.ELOOP:
        return Failure(f"{shown} is a link, and links are not followed; name the file that it points to")
    return Failure(f"{shown}: {error.strerror}")


@contextmanager
def folder(workspace: str, names: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the folder under `names`; with `make`, missing folders are made."""
    current = os.open(workspace, _FOLDER)
    try:
        for number, name in enumerate(names, 1):
            try:
                following = _step(current, name, make=make)
            except OSError as error:
                raise _reason(error, "/".join(names[:number])) from error
            os.close(current)
            current = following
        yield current
    finally:
        os.close(current)


def _step(parent: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            raise
    os.mkdir(name, 0o777, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


@contextmanager
def file(workspace: str, names: tuple[str, ...]) -> Iterator[int]:
    """A descriptor for reading the regular file under `names`."""
    path = "/".join(names)
    if not names:
        raise Failure("that is the workspace itself, a folder; use list_dir")
    with folder(workspace, names[:-1]) as parent:
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for its other end.
            descriptor = os.open(names[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        except OSError as error:
            raise _reason(error, path) from error
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise Failure(f"{shown_name(path)} is a folder; use list_dir")
        if not stat.S_ISREG(mode):
            raise Failure(f"{shown_name(path)} is not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)
