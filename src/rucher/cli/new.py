"""`rucher new`: an instance in a folder, ready to be started."""

import re
import shlex
import socket
import tomllib
from pathlib import Path

import click
from pydantic import ValidationError

from rucher.cli.show import clean
from rucher.daemon.rulebook import SURFACES, destinations
from rucher.daemon.settings import Settings, load_settings
from rucher.instance.agents import load_agents
from rucher.instance.create import KERNEL, MODELS, Contents, config_text, create, resolved
from rucher.instance.layout import Instance
from rucher.protocol.clock import SystemEntropy
from rucher.protocol.errors import BadInput
from rucher.router.generated import ensure_generated
from rucher.router.parse import parse, validate

FIRST_PORT = 7474
PORTS_TRIED = 200
DEFAULT_AGENT = "scribe"

RULES = f"""\
# Who wakes for what. The first rule whose match holds takes an event; with `continue = true` later ones see it too.
# A change is taken while the daemon runs, as a whole or not at all; ask `rucher rules check` first.

default = "agent:{DEFAULT_AGENT}"   # where a message goes that no rule matches

# [[rule]]
# id = "r-chat"                    # shown in traces
# match = {{ group = "chat" }}       # also: subject, source, type, principal, trust, addressed_to, text, body
# to = "agent:talker"              # or a list
# engage = "mention"               # always, mention, mention-sticky, pattern: when the agent is woken
# otherwise = "context"            # what it is not woken by it reads before its next turn

# Below stand rules that Rucher adds for each agent and surface that lacks one. They are yours to change.
"""


@click.command(name="new")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", help="The instance's name; that of the folder if not given.")
@click.option(
    "--model",
    type=click.Choice(MODELS),
    default="embedded",
    show_default=True,
    help="The kind of model it begins with.",
)
@click.option("--port", type=click.IntRange(1, 65535), help=f"The daemon's port; the first free one from {FIRST_PORT}.")
def new(folder: Path, name: str | None, model: str, port: int | None) -> None:
    """Make a new instance in DIR, which must not exist or be empty."""
    instance = make(folder, name=name or _named_after(folder), model=model, port=port)
    settings, agents = load_settings(instance), load_agents(instance.agents)
    said = f"made {settings.instance.name} in {instance.root}, port {settings.daemon.port}, agents {', '.join(agents)}"
    click.echo(clean(said))
    if model == "compatible":
        click.echo(f"first say which model and where: edit {clean(str(instance.config))}")
    click.echo("next:")
    click.echo(f"  cd {clean(shlex.quote(str(instance.root)))}")
    click.echo("  rucher up                        # in one terminal: runs until Ctrl-C")
    click.echo('  rucher send --wait "hello"       # in another')


def make(folder: Path, *, name: str, model: str, port: int | None) -> Instance:
    """An instance that the daemon takes as it is, with the kernel's agents; `port` is the first free one if not given.

    Raises BadInput, with nothing changed, for a name or a folder that cannot be used.
    """
    agents = load_agents(KERNEL / "agents")
    config = config_text(name, model, port or _free_port())
    _check(config)
    rules = ensure_generated(RULES, agents, SURFACES)
    validate(parse(rules, "rules.toml"), destinations(agents))
    return create(folder, Contents(config, rules), SystemEntropy())


def _named_after(folder: Path) -> str:
    name = re.sub(r"[^a-z0-9._-]+", "-", resolved(folder).name.lower()).strip("._-")
    if not name:
        raise BadInput(f"{folder} gives no name for the instance; give one with --name")
    return name[:60]


def _check(config: str) -> None:
    try:
        Settings.model_validate(tomllib.loads(config))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise BadInput(
            "--name takes up to 61 small letters, digits, dots, dashes and underscores, first a letter or digit"
        ) from error


def _free_port() -> int:
    """The first port that nobody listens on now."""
    for port in range(FIRST_PORT, FIRST_PORT + PORTS_TRIED):
        if is_free(port):
            return port
    raise BadInput(f"no port from {FIRST_PORT} to {FIRST_PORT + PORTS_TRIED - 1} is free; give one with --port")


def is_free(port: int) -> bool:
    """Whether this port of the loopback address can be listened on now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
