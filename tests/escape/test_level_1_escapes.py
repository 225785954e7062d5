"""Attacks from inside a level 1 sandbox. Each also runs outside, where it works, so that these tests can fail."""

import os
import platform
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import chdir, closing
from pathlib import Path

import pytest

from tests.escape.attack import Inside, Place, is_root


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server


def test_no_network_of_the_host_can_be_reached(place: Place, listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    program = f"print(tried(lambda: socket.create_connection(('127.0.0.1', {port}), 3)))"
    assert place.outside(program) == "done"
    assert place.inside(program) == "ECONNREFUSED"


def test_no_packet_leaves_and_no_name_resolves(place: Place) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)  # noqa: FBT003 - the standard library's signature
        address = receiver.getsockname()
        send = f"socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', {address!r})"
        place.inside(send)
        with pytest.raises(BlockingIOError):
            receiver.recv(1)
        place.outside(send)
        assert receiver.recv(1) == b"x"
    remote = "print(tried(lambda: socket.create_connection(('192.0.2.1', 53), 3)))"
    assert place.inside(remote) == "ENETUNREACH"
    assert place.inside("print(tried(lambda: socket.getaddrinfo('example.com', 80)))") == "EUNRESOLVED"
    assert place.inside("print([name for _, name in socket.if_nameindex()])") == "['lo']"


def test_files_of_the_host_can_be_neither_read_nor_written(place: Place, tmp_path: Path) -> None:
    secret = tmp_path / "state" / "rucher.db"
    secret.parent.mkdir()
    secret.write_text("the journal")
    read = f"print(tried(lambda: open({str(secret)!r}).read()))"
    write = f"print(tried(lambda: open({str(secret)!r}, 'a').write('!')))"
    assert (place.inside(read), place.inside(write)) == ("ENOENT", "ENOENT")
    assert secret.read_text() == "the journal"
    assert (place.outside(read), place.outside(write)) == ("done", "done")
    assert secret.read_text() == "the journal!"


def test_passwords_and_home_folders_of_the_host_are_not_there(place: Place) -> None:
    program = "print(tried(lambda: open('/etc/shadow').read()))"
    assert place.inside(program) == "ENOENT"
    assert place.outside(program) == ("done" if is_root() else "EACCES")
    seen = place.inside("print(sorted(os.listdir('/')), sorted(os.listdir('/etc')))")
    assert not {"home", "var", "srv", "opt", "run", "sys", "boot"} & set(
        seen.replace("'", " ").replace(",", " ").split()
    )
    assert "ssh" not in seen


def test_the_system_is_read_only_even_where_the_agent_is_the_owner(place: Place) -> None:
    program = """
for folder in ('/usr', '/etc', '/', '/dev', '/session', '/rucher', '/bin'):
    print(folder, tried(lambda: open(folder + '/planted', 'w')))
"""
    results = dict(line.split() for line in place.inside(program).splitlines())
    assert set(results.values()) <= {"EROFS", "EACCES"}, results
    if is_root():
        assert "/dev done" in place.outside("print('/dev', tried(lambda: os.close(os.open('/dev', os.O_RDONLY))))")


def test_other_sessions_are_not_there(place: Place) -> None:
    async def leave(tools: Inside) -> None:
        await tools.call("write_file", path="private", content="of another session")

    place.with_tools(leave, session="other")
    path = place.sessions / "other" / "workspace" / "private"
    program = f"print(tried(lambda: open({str(path)!r}).read()))"
    assert place.inside(program) == "ENOENT"
    assert place.outside(program) == "done"
    around = "print('other' in os.listdir('/session/..'), tried(lambda: os.listdir('/session/../other')))"
    assert place.inside(around) == "False ENOENT"


def test_no_environment_of_the_host_gets_in(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUCHER_CANARY", "sings")
    program = """
found = dict(os.environ)
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        found[pid] = open(f'/proc/{pid}/environ').read()
    except OSError:
        pass
print('RUCHER_CANARY' in str(found), '1' in found)
"""
    assert place.inside(program) == "False True"
    assert place.outside(program).startswith("True")


def test_no_descriptor_of_the_host_gets_in(place: Place, tmp_path: Path) -> None:
    (tmp_path / "held").write_text("open in the daemon")
    with (tmp_path / "held").open() as held:
        os.set_inheritable(held.fileno(), True)  # noqa: FBT003 - the standard library's signature
        program = """
import glob
for path in glob.glob('/proc/*/fd/*'):
    try:
        print(os.readlink(path))
    except OSError:
        pass
"""
        seen = place.inside(program).splitlines()
        allowed = ("/dev/null", "pipe:", "/memfd:said", "/proc/", "/session/", "anon_inode:[pidfd]", "/dev/urandom")
        assert [name for name in seen if not name.startswith(allowed)] == []
        assert any(name.startswith("/session/inbound.db") for name in seen)
        assert str(tmp_path / "held") in place.outside(program.replace("*/fd", "self/fd"), close_fds=False)


def test_processes_of_the_host_are_not_there(place: Place) -> None:
    victim = subprocess.Popen(["sleep", "60"])
    try:
        program = (
            f"print(tried(lambda: os.kill({victim.pid}, 0)), len(list(filter(str.isdigit, os.listdir('/proc')))) < 8)"
        )
        assert place.inside(program) == "ESRCH True"
        assert place.outside(program).startswith("done")
    finally:
        victim.kill()
        victim.wait()


X86 = platform.machine() == "x86_64"
NUMBERS = {
    "ptrace": 101 if X86 else 117,
    "keyctl": 250 if X86 else 219,
    "add_key": 248 if X86 else 217,
    "bpf": 321 if X86 else 280,
    "perf_event_open": 298 if X86 else 241,
    "userfaultfd": 323 if X86 else 282,
    "process_vm_readv": 310 if X86 else 270,
    "open_by_handle_at": 304 if X86 else 265,
    "setns": 308 if X86 else 268,
    "io_uring_setup": 425,
    "clone3": 435,
    "open_tree": 428,
    "mount": 165 if X86 else 40,
    "unshare": 272 if X86 else 97,
}


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        ("keyctl, 0, 0, 0", "EPERM"),
        ("ptrace, 0, 0, 0, 0", "EPERM"),
        ("process_vm_readv, -1, 0, 0, 0, 0, 0", "EPERM"),
        ("setns, -1, 0", "EPERM"),
        ("bpf, 99, 0, 0", "EPERM"),
        ("perf_event_open, 0, 0, -1, -1, 0", "EPERM"),
        ("io_uring_setup, 0, 0", "ENOSYS"),
        ("clone3, 0, 0", "ENOSYS"),
        ("userfaultfd, 99", "ENOSYS"),
        ("open_tree, -1, 0, 99", "ENOSYS"),
        ("unshare, 0x10000000", "EPERM"),
        ("unshare, 0x40000000", "EPERM"),
    ],
)
def test_dangerous_system_calls_are_refused_by_the_filter(place: Place, call: str, refusal: str) -> None:
    name, _, arguments = call.partition(", ")
    program = f"print(syscall({NUMBERS[name]}, {arguments}))"
    assert place.inside(program) == refusal
    # The same number and arguments outside: the kernel knows the call and finds another fault, or none.
    if is_root() or call not in {"bpf, 99, 0, 0", "perf_event_open, 0, 0, -1, -1, 0", "unshare, 0x40000000"}:
        assert place.outside(program) != refusal


@pytest.mark.parametrize("family", ["AF_UNIX", "AF_VSOCK", "AF_PACKET", "AF_ALG", "AF_CAN", "AF_RDS"])
def test_only_internet_sockets_can_be_made(place: Place, family: str) -> None:
    program = f"print(tried(lambda: socket.socket(socket.{family}, socket.SOCK_DGRAM)))"
    assert place.inside(program) == "EPERM"
    assert place.inside("print(tried(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)))") == "EPERM"
    assert place.inside("print(tried(socket.socketpair), tried(lambda: socket.socket(socket.AF_INET6)))") == "done done"
    if family == "AF_UNIX":
        assert place.outside(program) == "done"


def test_a_socket_file_of_the_host_in_the_workspace_cannot_be_used(place: Place) -> None:
    async def workspace(tools: Inside) -> Path:
        await tools.lives()
        return await tools.hands.workspace()

    path = place.with_tools(workspace) / "docker.sock"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        # A path under tmp_path is longer than the address of a Unix socket may be.
        with chdir(path.parent):
            server.bind("docker.sock")
        server.listen()
        path.chmod(0o666)
        program = "print(tried(lambda: socket.socket(socket.AF_UNIX).connect('docker.sock')))"
        assert place.inside(program) == "EPERM"
        assert place.outside(program, cwd=path.parent) == "done"


@pytest.mark.skipif(not X86, reason="these two foreign calling conventions exist on x86_64 only")
def test_foreign_calling_conventions_kill_the_process(place: Place) -> None:
    x32 = "print(syscall(0x40000000 | 39))"
    assert "signal 31" in place.inside(x32) or "Bad system call" in place.inside(x32)
    assert place.outside(x32) == "ENOSYS"
    i386 = """
import mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex('b814000000cd80c3'))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print('done')
"""
    assert "Bad system call" in place.inside(i386)


def test_nothing_can_be_typed_into_a_terminal(place: Place) -> None:
    program = """
import fcntl, pty, termios
main, sub = pty.openpty()
print(tried(lambda: fcntl.ioctl(sub, termios.TIOCSTI, b'x')))
# The kernel looks at the lower half of the number only, and so must the filter.
print(syscall(16 if os.uname().machine == 'x86_64' else 29, sub, termios.TIOCSTI | 1 << 32, b'x'))
"""
    assert place.inside(program).split() == ["EPERM", "EPERM"]
    by_kernel = "done" if is_root() else "EIO" if _legacy_terminals_are_off() else "EPERM"
    assert place.outside(program).split() == [by_kernel, by_kernel]


def _legacy_terminals_are_off() -> bool:
    switch = Path("/proc/sys/dev/tty/legacy_tiocsti")
    return switch.exists() and switch.read_text().strip() == "0"


def test_nothing_can_be_mounted_and_no_right_gained(place: Place) -> None:
    program = f"""
print(syscall({NUMBERS["mount"]}, b'none', b'/tmp', b'tmpfs', 0, 0))
status = open('/proc/self/status').read()
names = ('CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp:')
print([line.split()[1] for line in status.splitlines() if line.startswith(names)])
print(os.getuid(), tried(lambda: os.setuid(0)))
"""
    mounted, rights, user = place.inside(program).splitlines()
    assert mounted == "EPERM"
    assert rights == "['0000000000000000', '0000000000000000', '1', '2']"
    assert user == "1000 EINVAL"


def test_the_mailbox_cannot_be_replaced_or_added_to(place: Place) -> None:
    program = """
print(tried(lambda: open('inbound.db-wal', 'w')))
print(tried(lambda: open('inbound.db', 'r+b')))
print(tried(lambda: os.rename('outbound.db', 'other')))
print(tried(lambda: os.unlink('outbound.db-journal')))
print(tried(lambda: os.symlink('/etc/passwd', 'outbound.db-wal')))
print(tried(lambda: os.rename('workspace', 'w')))
"""
    attack = f"os.chdir('/session')\n{program}"
    refusals = place.inside(attack).split()
    # The first by the mount, whoever owns the folder: its owner inside is the agent when the daemon is not root.
    assert refusals[0] == "EROFS"
    assert set(refusals) <= {"EROFS", "EBUSY", "EACCES"}
    names = sorted(path.name for path in (place.sessions / "s1").iterdir())
    assert names == [
        ".heartbeat",
        "inbound.db",
        "inbound.db-journal",
        "outbound.db",
        "outbound.db-journal",
        "workspace",
    ]
    assert place.outside(program, cwd=place.sessions / "s1").split() == ["done"] * 6


def test_links_in_the_workspace_lead_the_tools_nowhere(place: Place) -> None:
    async def attack(tools: Inside) -> list[bool]:
        await tools.shell("ln -s /etc/passwd file; ln -s / root; mkdir -p a/b; echo inside > a/b/c")
        followed_by_a_shell = "agent" in await tools.shell("cat file root/etc/passwd")
        results = [
            await tools.call("read_file", path="file"),
            await tools.call("read_file", path="root/etc/passwd"),
            await tools.call("list_dir", path="root/etc"),
            await tools.call("write_file", path="root/tmp/x", content="x"),
            await tools.call("write_file", path="file", content="x"),
            await tools.call("read_file", path="/etc/passwd"),
            await tools.call("search", pattern="agent", path="root/etc"),
        ]
        return [followed_by_a_shell, *(result.ok for result in results)]

    assert place.with_tools(attack) == [True] + [False] * 7


def test_no_process_outlives_the_command_that_started_it(place: Place) -> None:
    daemonize = "(setsid sh -c 'setsid sleep 98765 & exit 0' &) ; (nohup sleep 98765 >/dev/null 2>&1 &) ; echo started"

    async def attack(tools: Inside) -> tuple[str, str]:
        started = await tools.shell(daemonize + "; sleep 0.2; cat /proc/*/cmdline | tr '\\0' ' '")
        return started, await tools.shell("cat /proc/*/cmdline | tr '\\0' ' '")

    started, afterwards = place.with_tools(attack)
    assert started.count("98765") > 2
    assert "98765" not in afterwards
    # Outside, ending the command's process group does not reach them.
    marker = f"98766.{os.getpid()}"
    shell = subprocess.Popen(["sh", "-c", daemonize.replace("98765", marker)], start_new_session=True)
    shell.wait()
    survivors = _wait_for_processes(marker, 2)
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert len(survivors) == 2


def _wait_for_processes(argument: str, count: int) -> list[int]:
    deadline = time.monotonic() + 10
    while True:
        found = [pid for pid in _pids() if f"\0{argument}\0".encode() in _command_line(pid)]
        if len(found) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.01)


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_fork_bomb_ends_with_its_command_and_hurts_nobody(place: Place) -> None:
    program = """
import signal
children = []
def bomb():
    for _ in range(300):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
print(tried(bomb), len(children))
for child in children:
    os.kill(child, signal.SIGKILL)
"""

    async def attack(tools: Inside) -> tuple[bool, int]:
        await tools.shell("bomb() { bomb | bomb & }; bomb; sleep 0.3")
        return await tools.lives(), int(await tools.shell("ls -d /proc/[0-9]* | wc -l"))

    refusal, count = place.inside(program).split()
    assert refusal == "EAGAIN"
    assert int(count) < 64
    assert place.outside(program) == "done 300"
    lives, processes = place.with_tools(attack)
    assert lives
    assert processes < 10


def test_a_memory_bomb_and_a_disk_bomb_meet_their_limits(place: Place) -> None:
    memory = "import mmap; print(tried(lambda: mmap.mmap(-1, 5 << 30)))"
    assert place.inside(memory) == "ENOMEM"
    assert place.outside(memory) == "done"
    disk = "print(tried(lambda: open('big', 'wb').write(bytes(16 << 20))))"
    assert place.inside(disk) == "EFBIG"
    assert place.outside(disk, cwd=place.folder) == "done"
    temporary = """
def fill():
    for number in range(100):
        open(f'/tmp/{number}', 'wb').write(bytes(7 << 20))
print(tried(fill))
"""
    assert place.inside(temporary) == "ENOSPC"


def test_a_flood_of_output_is_cut_and_says_so(place: Place) -> None:
    async def attack(tools: Inside) -> str:
        return await tools.shell("yes flood | head -c 30000000; head -c 1000000 /dev/urandom; echo; echo the end")

    text = place.with_tools(attack)
    assert len(text) < 80_000
    assert "bytes left out" in text
    assert text.endswith("the end")


def test_the_runner_cannot_be_killed_or_read_by_its_tools(place: Place) -> None:
    async def attack(tools: Inside) -> tuple[int | None, int | None]:
        await tools.shell("true")
        before = tools.hands.runner.pid
        await tools.shell("kill -9 1; kill -TERM 1; kill -STOP 1; kill -9 -1")
        await tools.lives()
        return before, tools.hands.runner.pid

    before, after = place.with_tools(attack)
    assert before is not None
    assert before == after
