"""Makes the project's own virtual environment: `setup.py run|dev`, started by setup.sh; standard library only.

The stamp `.venv/.<profile>` is written last, so an interrupted set-up is done again, from an empty environment: some
package may have been half written. Nothing outside the checkout is touched, apart from pip's own cache.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
UNFINISHED = VENV / ".unfinished"
PIP = [str(PYTHON), "-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
PROFILES = {"run": ("run",), "dev": ("dev", "run")}
"""The lock file of each profile, first, and the profiles that it makes ready."""
REACHED = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([\w.-]+)")
"""What pip prints once for each line of a lock file."""
SHOWN_LINES = 15
EVERY = 10


class SetUpFailed(Exception):
    """The environment could not be made; the text says what was being done and what to do."""


@contextmanager
def exclusive() -> Iterator[None]:
    """One set-up at a time in this checkout, also when the other one is killed."""
    with (ROOT / "scripts" / "setup.py").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another set-up is running in this checkout; waiting for it ...", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint(profile: str) -> str:
    """Changes whenever an environment made before would differ from one made now."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    parts = [
        (ROOT / "requirements" / f"{profile}.txt").read_text(),
        repr(project["project"]),
        repr(project["build-system"]),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_ready(profile: str) -> bool:
    """Whether the environment is whole, was made at this place, and holds the profile's locked packages."""
    stamp = VENV / f".{profile}"
    return is_whole() and stamp.exists() and stamp.read_text() == f"{ROOT}\n{fingerprint(profile)}\n"


def is_whole() -> bool:
    """Whether the environment was made at this place, starts, and no set-up of it was interrupted."""
    place = VENV / ".place"
    if UNFINISHED.exists() or not PYTHON.exists() or not place.exists() or place.read_text() != f"{ROOT}\n":
        return False
    return subprocess.run([PYTHON, "-I", "-c", ""], check=False, capture_output=True).returncode == 0


def create() -> None:
    """A fresh environment in place of whatever is there."""
    print(f"[1/3] creating .venv with Python {sys.version.split()[0]} ...", flush=True)
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir()
    UNFINISHED.touch()
    venv.create(VENV, with_pip=True, symlinks=True)
    (VENV / ".place").write_text(f"{ROOT}\n")


def install_locked(profile: str) -> None:
    """Install exactly what the lock file names, wheels only: nothing is compiled and no package's build code runs."""
    lock = ROOT / "requirements" / f"{profile}.txt"
    total = len(re.findall(r"(?m)^[\w.-]+==", lock.read_text()))
    print(f"[2/3] installing {total} packages (a few minutes and about 200 MB the first time) ...", flush=True)
    pip(["install", "--require-hashes", "--only-binary=:all:", "--progress-bar=off", "-r", str(lock)], total)


def install_project() -> None:
    """Make `rucher` start from the sources of this checkout."""
    print("[3/3] installing rucher from this checkout ...", flush=True)
    pip(["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)], 0)


def pip(arguments: list[str], total: int) -> None:
    """Run pip, showing how many of `total` packages it has reached, and its last lines only if it fails."""
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    reached = 0
    with subprocess.Popen([*PIP, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            last.append(line)
            if package := REACHED.match(line):
                reached += 1
                show(f"      {min(reached, total)}/{total} {package[1]}", reached)
            elif line.startswith("Installing collected"):
                show("      unpacking", EVERY)
    clear()
    if process.returncode:
        print("".join(last), file=sys.stderr)
        raise SetUpFailed(
            f"pip failed (its last lines are above); is the package index reachable? Run the same command again: "
            f"what was downloaded is kept. Python here: {sys.version.split()[0]} on {sys.platform}"
        )


def show(text: str, count: int) -> None:
    """Progress in place on a terminal; elsewhere one line for every few steps."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="", flush=True)
    elif count % EVERY == 0:
        print(text, flush=True)


def clear() -> None:
    """Take the progress line away."""
    if sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)


def set_up(profile: str) -> None:
    """Make the profile's packages ready, doing only what is missing."""
    if not is_whole():
        create()
    if not is_ready(profile):
        UNFINISHED.touch()
        install_locked(profile)
        install_project()
        UNFINISHED.unlink()
    for ready in PROFILES[profile]:
        (VENV / f".{ready}").write_text(f"{ROOT}\n{fingerprint(ready)}\n")


def main(arguments: list[str]) -> int:
    """Set up the profile named on the command line."""
    if len(arguments) != 1 or arguments[0] not in PROFILES:
        print(f"usage: setup.py {'|'.join(PROFILES)}", file=sys.stderr)
        return 2
    try:
        with exclusive():
            set_up(arguments[0])
    except (SetUpFailed, OSError, subprocess.SubprocessError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: interrupted; the next run starts it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
