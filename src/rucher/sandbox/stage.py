"""What root runs to start a sandbox: shows three folders to an unprivileged user, becomes it, and becomes bubblewrap.

Started as `python -I -S stage.py JSON` by the launcher when the daemon is root. The unprivileged user can often reach
neither the instance nor the interpreter (both may lie below /root), so these are bound under a stage in this program's
own mount namespace. It imports nothing of Rucher and never goes on after a failed step. See decision record 0005.
"""

import ctypes
import json
import os
import signal
import sys
from typing import TypedDict

_CLONE_NEWNS = 0x00020000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_PR_SET_PDEATHSIG = 1
FILTER_DESCRIPTOR = 99
"""Where bubblewrap finds the system call filter: far above any that this program opens."""


class Plan(TypedDict):
    """The program's argument. `mounts` are names on the stage and the folders they show; `parent` is the daemon."""

    stage: str
    mounts: dict[str, str]
    filter: str
    uid: int
    gid: int
    parent: int
    command: list[str]


def _checked(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), what)


def _set_stage(libc: ctypes.CDLL, plan: Plan) -> None:
    def mount(source: str, target: str, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
        _checked(libc.mount(source.encode(), target.encode(), kind, flags, data), target)

    _checked(libc.unshare(_CLONE_NEWNS), "unshare")
    mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    # Opened in the new namespace, since nothing may be bound from the old one, and before anything is mounted over, so
    # that a source may lie anywhere.
    sources = {name: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for name, path in plan["mounts"].items()}
    mount("tmpfs", plan["stage"], b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=755,size=64k")
    for name, source in sources.items():
        target = f"{plan['stage']}/{name}"
        os.mkdir(target, 0o755)  # noqa: PTH102 - pathlib would double this program's start-up time
        mount(f"/proc/self/fd/{source}", target, None, _MS_BIND | _MS_REC)


def _become(libc: ctypes.CDLL, plan: Plan) -> None:
    os.setgroups([])
    os.setresgid(plan["gid"], plan["gid"], plan["gid"])
    os.setresuid(plan["uid"], plan["uid"], plan["uid"])
    # After the change of user, which clears it; and it says nothing of a parent that is dead already.
    _checked(libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != plan["parent"]:
        raise SystemExit("the daemon that asked for this sandbox is gone")


def main() -> None:
    """Become the sandbox that the argument describes; never returns."""
    plan: Plan = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    filter_file = os.open(plan["filter"], os.O_RDONLY | os.O_CLOEXEC)
    _set_stage(libc, plan)
    _become(libc, plan)
    os.dup2(filter_file, FILTER_DESCRIPTOR)
    os.execve(plan["command"][0], plan["command"], {})  # noqa: S606 - the point of this program


if __name__ == "__main__":
    main()
