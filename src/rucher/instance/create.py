"""Makes a new instance on disk, whole or not at all: it is built beside its place and moved there in one step.

Called by `rucher new` and by the demonstration. It never writes into a folder that holds anything.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rucher.instance.layout import CONFIG, Instance
from rucher.instance.secrets import instance_token
from rucher.protocol.errors import BadInput
from rucher.protocol.ports import Entropy

KERNEL = Path(__file__).parent / "kernel"
"""The kernel folder that comes with this Rucher: agents, and which of them there are."""
_PRIVATE = 0o700
_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


@dataclass(frozen=True, slots=True)
class Contents:
    """The two files that an owner edits."""

    config: str
    rules: str


def create(folder: Path, contents: Contents, entropy: Entropy) -> Instance:
    """The instance made in `folder`, which must not exist or be empty; raises BadInput with nothing changed otherwise.

    A kill in mid-work leaves at most a hidden folder `.NAME.XXXX.new` beside the place, which nothing looks at.
    """
    place = _free(folder)
    with _complained(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        building = place.with_name(f".{place.name}.{entropy.bytes(4).hex()}.new")
        try:
            _fill(Instance(building), contents, entropy)
            if place.exists():
                building.chmod(place.stat().st_mode & 0o7777)
            building.rename(place)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
    return Instance(place)


def resolved(folder: Path) -> Path:
    """The folder's place without links; raises BadInput for links that lead to themselves."""
    try:
        return folder.resolve()
    except (OSError, RuntimeError) as error:
        raise BadInput(f"{folder} leads to itself through links; choose another place") from error


def config_text(name: str, model: str, port: int) -> str:
    """A rucher.toml with explanations. `model` is embedded, compatible or scripted."""
    return _CONFIG.format(name=name, port=port) + _MODELS[model]


def _free(folder: Path) -> Path:
    place = resolved(folder)
    if (place / CONFIG).exists():
        raise BadInput(f"{place} is an instance already; start it with `rucher up`, or choose another folder")
    if place.exists() and not place.is_dir():
        raise BadInput(f"{place} is not a folder; choose another place")
    with _complained(place):
        if place.is_dir() and any(place.iterdir()):
            raise BadInput(f"{place} is not empty; choose a folder that is empty or does not exist yet")
    return place


@contextmanager
def _complained(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _OCCUPIED:
            raise BadInput(f"{place} is in use or below a file; choose another place") from error
        raise BadInput(
            f"{place} cannot be made ({error.strerror}); choose another place, or make room for it"
        ) from error


def _fill(instance: Instance, contents: Contents, entropy: Entropy) -> None:
    instance.root.mkdir()
    instance.config.write_text(contents.config, "utf-8")
    instance.rules.write_text(contents.rules, "utf-8")
    instance.agents.parent.symlink_to(KERNEL, target_is_directory=True)
    for folder in (instance.state, instance.sessions, instance.surfaces):
        folder.mkdir(_PRIVATE)
    instance_token(instance.token, entropy)


_CONFIG = """\
# Settings of this Rucher instance. After a change: stop the daemon and start it again with `rucher up`.

[instance]
name = "{name}"
# tenant = "local"        # the second part of every event's subject
# owner = "owner"         # who you are: the principal of what you send is owner:<this>
# unknown_senders = "ask" # strict: dropped; ask: held until you say `rucher users admit`; public: heard like anybody
# zone = "Europe/Paris"   # the time zone of schedules that name none; else the machine's own

[daemon]
port = {port}               # on the loopback address only; commands find it here
# concurrent_runs = 16    # sessions that may work at the same time

"""
_MODELS = {
    "embedded": """\
[model]
kind = "embedded"         # runs on this machine and needs no key; its weights are fetched once, about 1.1 GB
name = "qwen2.5-coder-1.5b"
# name = "qwen2.5-coder-0.5b"   # 0.5 GB: faster, and weaker
# path = ""               # weights that you have already
""",
    "compatible": """\
[model]
kind = "compatible"       # any endpoint that speaks OpenAI's chat completions: put yours here
name = "the-model"
base_url = "http://127.0.0.1:8080/v1"
# key_env = "MY_KEY"      # the environment variable that holds its key
# tools = "native"        # "constrained" for small models that cannot call tools by themselves
# context_tokens = 32768
""",
    "scripted": """\
[model]
kind = "scripted"         # no model: answers by a script, for tests and demonstrations
script = "echo"           # a built-in script, or the path of one
""",
}
MODELS = tuple(_MODELS)
"""The kinds of model that an instance can begin with."""
