"""What this machine can do, found by really starting a sandbox; the reason is a line for whoever runs the machine.

Used by the launcher, once, and through it by `rucher doctor`. The explanation is a pure function of what was seen.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_SWITCHES = (
    "kernel/unprivileged_userns_clone",
    "user/max_user_namespaces",
    "kernel/apparmor_restrict_unprivileged_userns",
)


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether level 1 works here, and if not, one line saying why and what to change."""

    ok: bool
    reason: str


def switches() -> dict[str, str]:
    """The kernel settings that can forbid sandboxes, by name, those that this kernel has."""
    found = {}
    for name in _SWITCHES:
        path = Path("/proc/sys") / name
        if path.exists():
            found[name.replace("/", ".")] = path.read_text().strip()
    return found


def explain(said: str, settings: Mapping[str, str], *, root: bool) -> str:
    """Why a sandbox that printed `said` did not start, and what to change."""
    if settings.get("kernel.unprivileged_userns_clone") == "0":
        return _forbidden("kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1")
    if settings.get("user.max_user_namespaces") == "0":
        return _forbidden("user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=10000")
    if settings.get("kernel.apparmor_restrict_unprivileged_userns") == "1":
        return _forbidden(
            "AppArmor restricts user namespaces", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    last = said.strip().splitlines()[-1] if said.strip() else "it ended without a word"
    if root and ("unshare" in last or "mount" in last.lower()):
        return (
            f"no sandbox can be made here ({last}): root lacks the right to mount, as in most containers; "
            "start Rucher as an ordinary user, or give the container CAP_SYS_ADMIN"
        )
    if "proc" in last and "mount" in last.lower():
        return (
            f"no sandbox can be made here ({last}): this container hides parts of /proc; start it with "
            "--security-opt systempaths=unconfined"
        )
    return f'no sandbox can be made here ({last}); see "Level 1 on Linux" in docs/mailbox.md'


def _forbidden(what: str, command: str) -> str:
    return f"no sandbox can be made here: {what}; as root run `{command}`, then start again"
