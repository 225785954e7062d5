"""Where the files of an instance lie. Pure paths; nothing is read or made here."""

from dataclasses import dataclass
from pathlib import Path

CONFIG = "rucher.toml"


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance: the folder that holds its configuration, and under `state/` all that the daemon writes."""

    root: Path

    @property
    def config(self) -> Path:
        """Settings of this instance."""
        return self.root / CONFIG

    @property
    def rules(self) -> Path:
        """Who wakes for what."""
        return self.root / "rules.toml"

    @property
    def sources(self) -> Path:
        """Who may hand events in from outside, and how that is verified."""
        return self.root / "sources.toml"

    @property
    def secrets(self) -> Path:
        """One folder a kind of secret (`sources`, `webhooks`), and in it one file a name."""
        return self.state / "secrets"

    @property
    def destinations(self) -> Path:
        """Webhooks, files and other instances that rules may send to."""
        return self.root / "destinations.toml"

    @property
    def schedules(self) -> Path:
        """What is said when, by the clock; there need be none."""
        return self.root / "schedules.toml"

    @property
    def agents(self) -> Path:
        """The kernel's agent definitions, one Markdown file an agent."""
        return self.root / "kernel" / "agents"

    @property
    def state(self) -> Path:
        """Everything the daemon writes."""
        return self.root / "state"

    @property
    def journal(self) -> Path:
        """The journal and its views."""
        return self.state / "rucher.db"

    @property
    def artifacts(self) -> Path:
        """Large results, each named by its hash."""
        return self.state / "artifacts"

    @property
    def archive(self) -> Path:
        """Segments of the journal that were moved out of the store."""
        return self.state / "archive"

    @property
    def workers(self) -> Path:
        """One file a worker process, locked while it lives."""
        return self.state / "workers"

    @property
    def sessions(self) -> Path:
        """One folder a session: its two mailbox files, its heartbeat and its workspace."""
        return self.state / "sessions"

    @property
    def surfaces(self) -> Path:
        """What was delivered on this machine, one folder a surface."""
        return self.state / "surfaces"

    @property
    def lock(self) -> Path:
        """Held by the one daemon that may write this instance."""
        return self.state / "daemon.lock"

    @property
    def token(self) -> Path:
        """What a command shows the daemon to be let in."""
        return self.state / "token"

    @property
    def node_key(self) -> Path:
        """The key that signs this node's seals."""
        return self.state / "node.key"

    @property
    def seal_head(self) -> Path:
        """Which seal of the journal is the newest."""
        return self.state / "seal.head"

    @property
    def log(self) -> Path:
        """What the daemon says, one JSON object a line."""
        return self.state / "daemon.log"
