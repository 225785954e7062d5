"""Gives files that the host made in a session to the user that its tools run as. Called by whoever makes such files."""

import os
from pathlib import Path

from rucher.sandbox.options import SandboxOptions

_WRITTEN_INSIDE = ("outbound.db", "outbound.db-journal", ".heartbeat")
_READ_INSIDE = ("inbound.db", "inbound.db-journal")


def adopt(path: Path, options: SandboxOptions) -> None:
    """Let the sandbox's user own `path` and all beneath it, links not followed; nothing when the daemon is not root."""
    if os.geteuid() != 0:
        return
    os.chown(path, options.uid, options.gid, follow_symlinks=False)
    if path.is_symlink() or not path.is_dir():
        return
    for _, folders, files, descriptor in os.fwalk(path, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, options.uid, options.gid, dir_fd=descriptor, follow_symlinks=False)


def adopt_session(session_dir: Path, options: SandboxOptions) -> None:
    """Let the sandbox's user read the session and own what is its to write; nobody else may look into it."""
    if os.geteuid() != 0:
        return
    os.chown(session_dir, 0, options.gid)
    session_dir.chmod(0o750)
    for name in _READ_INSIDE:
        os.chown(session_dir / name, 0, options.gid, follow_symlinks=False)
        (session_dir / name).chmod(0o640)
    for name in _WRITTEN_INSIDE:
        adopt(session_dir / name, options)
    workspace = session_dir / "workspace"
    if workspace.stat(follow_symlinks=False).st_uid != options.uid:
        adopt(workspace, options)
