"""Makes the project's own virtual environments: `setup.py run|dev|bench|otel`, started by setup.sh; standard library only.

`run` and `dev` share `.venv`; `bench` has `.venv-bench` for the libraries that benchmarks compare with, `otel` has `.venv-otel`
for a real receiver of OpenTelemetry, and both hold nothing of ours.
The stamp `<environment>/.<profile>` is written last, so an interrupted set-up is done again, from an empty environment: some
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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REACHED = re.compile(r"(?:Collecting|Requirement already satisfied:|Ignoring) ([\w.-]+)")
"""What pip prints once for each line of a lock file."""
SHOWN_LINES = 15
EVERY = 10


class SetUpFailed(Exception):
    """The environment could not be made; the text says what was being done and what to do."""


@dataclass(frozen=True)
class Profile:
    """One way to set up: a lock file, and the environment that it goes into."""

    name: str
    """Also the name of its lock file in requirements/."""
    venv: Path
    ready: tuple[str, ...]
    """The profiles that are ready when this one is."""
    holds_project: bool

    @property
    def lock(self) -> Path:
        """What is installed."""
        return ROOT / "requirements" / f"{self.name}.txt"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.venv / "bin" / "python"

    @property
    def unfinished(self) -> Path:
        """There while the environment is being changed."""
        return self.venv / ".unfinished"

    @property
    def place(self) -> Path:
        """Says where the environment was made."""
        return self.venv / ".place"


RUN = Profile("run", ROOT / ".venv", ("run",), holds_project=True)
DEV = Profile("dev", ROOT / ".venv", ("dev", "run"), holds_project=True)
BENCH = Profile("bench", ROOT / ".venv-bench", ("bench",), holds_project=False)
OTEL = Profile("otel", ROOT / ".venv-otel", ("otel",), holds_project=False)
PROFILES = {profile.name: profile for profile in (RUN, DEV, BENCH, OTEL)}


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


def fingerprint(profile: Profile) -> str:
    """Changes whenever an environment made before would differ from one made now."""
    parts = [profile.lock.read_text()]
    if profile.holds_project:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        parts += [repr(project["project"]), repr(project["build-system"])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def is_ready(profile: Profile) -> bool:
    """Whether the environment is whole, was made at this place, and holds the profile's locked packages."""
    stamp = profile.venv / f".{profile.name}"
    return is_whole(profile) and stamp.exists() and stamp.read_text() == f"{ROOT}\n{fingerprint(profile)}\n"


def is_whole(profile: Profile) -> bool:
    """Whether the environment was made at this place, starts, and no set-up of it was interrupted."""
    if profile.unfinished.exists() or not profile.python.exists():
        return False
    if not profile.place.exists() or profile.place.read_text() != f"{ROOT}\n":
        return False
    return subprocess.run([profile.python, "-I", "-c", ""], check=False, capture_output=True).returncode == 0


def create(profile: Profile) -> None:
    """A fresh environment in place of whatever is there."""
    print(f"[1/3] creating {profile.venv.name} with Python {sys.version.split()[0]} ...", flush=True)
    shutil.rmtree(profile.venv, ignore_errors=True)
    profile.venv.mkdir()
    profile.unfinished.touch()
    venv.create(profile.venv, with_pip=True, symlinks=True)
    profile.place.write_text(f"{ROOT}\n")


def install_locked(profile: Profile) -> None:
    """Install exactly what the lock file names, wheels only: nothing is compiled and no package's build code runs."""
    total = len(re.findall(r"(?m)^[\w.-]+==", profile.lock.read_text()))
    print(f"[2/3] installing {total} packages (a few minutes and up to 200 MB the first time) ...", flush=True)
    wanted = ["--require-hashes", "--only-binary=:all:", "--progress-bar=off", "-r", str(profile.lock)]
    pip(profile, ["install", *wanted], total)


def install_project(profile: Profile) -> None:
    """Make `rucher` start from the sources of this checkout."""
    print("[3/3] installing rucher from this checkout ...", flush=True)
    pip(profile, ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-e", str(ROOT)], 0)


def pip(profile: Profile, arguments: list[str], total: int) -> None:
    """Run pip, showing how many of `total` packages it has reached, and its last lines only if it fails."""
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    reached = 0
    command = [str(profile.python), "-I", "-m", "pip", "--no-input", "--disable-pip-version-check", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
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


def set_up(profile: Profile) -> None:
    """Make the profile's packages ready, doing only what is missing."""
    if not is_whole(profile):
        create(profile)
    if not is_ready(profile):
        profile.unfinished.touch()
        install_locked(profile)
        if profile.holds_project:
            install_project(profile)
        profile.unfinished.unlink()
    for name in profile.ready:
        (profile.venv / f".{name}").write_text(f"{ROOT}\n{fingerprint(PROFILES[name])}\n")


def main(arguments: list[str]) -> int:
    """Set up the profile named on the command line."""
    if len(arguments) != 1 or arguments[0] not in PROFILES:
        print(f"usage: setup.py {'|'.join(PROFILES)}", file=sys.stderr)
        return 2
    try:
        with exclusive():
            set_up(PROFILES[arguments[0]])
    except (SetUpFailed, OSError, subprocess.SubprocessError) as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: interrupted; the next run starts it again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
