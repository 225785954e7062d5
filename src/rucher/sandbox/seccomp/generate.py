"""Writes the seccomp filters of this folder: `python -m rucher.sandbox.seccomp.generate`, by whoever changes the rules.

Needs pyseccomp and libseccomp, which users never do: the launcher only reads the bytes. It must give the same bytes
each time; a test compares.

Everything is allowed but what reaches beyond the sandbox, or opens rarely used code of the kernel to an attacker. A
call for another architecture (i386, x32, 32-bit ARM) kills the process.
"""

import errno
import socket
import tempfile
from pathlib import Path

import pyseccomp as seccomp

FOLDER = Path(__file__).parent
ARCHITECTURES = {"x86_64": seccomp.Arch.X86_64, "aarch64": seccomp.Arch.AARCH64}

NEW_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)
"""CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET}."""

NEW_TIME_NAMESPACE = 0x00000080
"""CLONE_NEWTIME: for unshare only, since in clone these bits are the exit signal."""

TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: both type for the person at the terminal."""

NETLINK_ROUTE = 0

MISSING = (
    "clone3",  # its flags are behind a pointer, where no filter can look; libc then uses clone
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "memfd_secret",
    "fanotify_init",
    "userfaultfd",
    "process_madvise",
)
"""Answered "no such call", so that programs fall back to an older one."""

REFUSED = (
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "setns",
    "name_to_handle_at",
    "open_by_handle_at",
    "keyctl",
    "add_key",
    "request_key",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "pidfd_getfd",
    "perf_event_open",
    "bpf",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "acct",
    "quotactl",
    "syslog",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "vhangup",
    "personality",
    "nfsservctl",
    "lookup_dcookie",
)
"""Answered "not permitted"."""

REFUSED_X86 = ("iopl", "ioperm", "modify_ldt", "uselib", "ustat", "sysfs", "_sysctl")


def build(machine: str) -> bytes:
    """The filter for a machine type, as `struct sock_filter` records."""
    rules = seccomp.SyscallFilter(seccomp.ALLOW)
    rules.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)
    if not rules.exist_arch(ARCHITECTURES[machine]):
        rules.add_arch(ARCHITECTURES[machine])
        rules.remove_arch(seccomp.Arch.NATIVE)
    for name in MISSING:
        rules.add_rule_exactly(seccomp.ERRNO(errno.ENOSYS), name)
    for name in REFUSED + (REFUSED_X86 if machine == "x86_64" else ()):
        rules.add_rule_exactly(seccomp.ERRNO(errno.EPERM), name)
    for flag in (*NEW_NAMESPACES, NEW_TIME_NAMESPACE):
        for name in ("unshare", "clone"):
            if name == "unshare" or flag != NEW_TIME_NAMESPACE:
                _refuse(rules, name, seccomp.Arg(0, seccomp.MASKED_EQ, flag, flag))
    for request in TERMINAL_INJECTION:
        # The kernel looks at the low half only.
        _refuse(rules, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xFFFFFFFF, request))
    _limit_families(rules)
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _limit_families(rules: seccomp.SyscallFilter) -> None:
    """Refuse socket() for every family but INET, INET6 and route NETLINK.

    AF_UNIX is refused because a socket file is the one way past an empty network namespace: docker.sock or a D-Bus
    below a bound folder, or one that the agent leaves in its workspace for the host. socketpair() stays, by which
    programs talk to their own children.
    """
    family_number = seccomp.Arg
    _refuse(rules, "socket", family_number(0, seccomp.LT, socket.AF_INET))
    _refuse(rules, "socket", family_number(0, seccomp.GT, socket.AF_NETLINK))
    for family in range(socket.AF_INET + 1, socket.AF_NETLINK):
        if family != socket.AF_INET6:
            _refuse(rules, "socket", family_number(0, seccomp.EQ, family))
    netlink = family_number(0, seccomp.EQ, socket.AF_NETLINK)
    _refuse(rules, "socket", netlink, seccomp.Arg(2, seccomp.NE, NETLINK_ROUTE))


def _refuse(rules: seccomp.SyscallFilter, name: str, *arguments: seccomp.Arg) -> None:
    rules.add_rule_exactly(seccomp.ERRNO(errno.EPERM), name, *arguments)


if __name__ == "__main__":
    for machine in ARCHITECTURES:
        (FOLDER / f"{machine}.bpf").write_bytes(build(machine))
