"""Settings of an instance: `rucher.toml`, and the few environment variables that Rucher knows, all read here.

| variable           | meaning                                                             |
|--------------------|---------------------------------------------------------------------|
| `RUCHER_INSTANCE`  | the instance that commands speak to, instead of the current folder  |
| `RUCHER_STORE_URL` | the PostgreSQL database of the journal, instead of `store.url`         |
| `TZ`               | the time zone of schedules, where neither they nor `instance.zone` name one |
| `RUCHER_CACHE`     | where weights and the launch kit are kept, instead of the user's cache |
| `RUCHER_WEIGHTS`   | a folder that holds the weights already, or shall                   |
| the one named by `model.key_env` | the key of a model's endpoint                         |
| the one named by `otel.headers_env` | headers for the receiver of OpenTelemetry spans    |
"""

import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from rucher.instance.layout import CONFIG, Instance
from rucher.instance.text import text_of
from rucher.journal.store import Place
from rucher.protocol.errors import BadInput
from rucher.surfaces.schedules.times import zone_named

MEND = "mend it, or put a backup of the file in its place"
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(r"[\x20-\x7e]+")
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,60}$")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EmbeddedModelSettings(_Strict):
    """The model that needs no key: its weights run on this machine."""

    kind: Literal["embedded"] = "embedded"
    name: Literal["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"] = "qwen2.5-coder-1.5b"
    path: str = ""


class CompatibleModelSettings(_Strict):
    """Any endpoint that speaks OpenAI's chat completions. `key_env` names the variable that holds its key."""

    kind: Literal["compatible"]
    name: Annotated[str, Field(min_length=1)]
    base_url: Annotated[str, Field(pattern=r"^https?://")]
    key_env: str = ""
    tools: Literal["native", "constrained"] = "native"
    context_tokens: Annotated[int, Field(ge=1024)] = 32_768


class ScriptedModelSettings(_Strict):
    """A model that follows a script, for tests and demonstrations."""

    kind: Literal["scripted"]
    script: str = "echo"


ModelSettings = Annotated[
    EmbeddedModelSettings | CompatibleModelSettings | ScriptedModelSettings, Field(discriminator="kind")
]


class InstanceSettings(_Strict):
    """Who this instance is and whom it serves. `unknown_senders`: what becomes of them in rooms that do not say it. `zone` is
    the time zone of schedules that name none.
    """

    name: Name
    tenant: Name = "local"
    owner: Name = "owner"
    unknown_senders: Literal["strict", "ask", "public"] = "ask"
    zone: str = ""

    @field_validator("zone")
    @classmethod
    def _demand_zone(cls, told: str) -> str:
        if told:
            try:
                zone_named(told)
            except BadInput as error:
                raise PydanticCustomError(
                    "zone", "{reason}", {"reason": f"{error}; write one as in Europe/Paris"}
                ) from error
        return told


class DaemonSettings(_Strict):
    """How the daemon runs. Runs at once: of one process, of one agent, of one mission; the last two over all processes."""

    port: Annotated[int, Field(ge=1, le=65535)] = 7474
    concurrent_runs: Annotated[int, Field(ge=1, le=256)] = 16
    concurrent_runs_per_agent: Annotated[int, Field(ge=1)] | None = None
    concurrent_runs_per_mission: Annotated[int, Field(ge=1)] | None = None


class StoreSettings(_Strict):
    """Where the journal is kept: a PostgreSQL database by its URL, else the file state/rucher.db.

    Events older than `keep_days` are archived once a day; when it is not set, none are.
    """

    url: Annotated[str, Field(pattern=r"^(postgres(ql)?://.*)?$")] = ""
    keep_days: Annotated[int, Field(ge=1, le=36_500)] | None = None


class BudgetSettings(_Strict):
    """What one run may use at most; what is not set has no limit. `minutes` counts only time at work.

    The kernel knows dollars, too; but as long as no model says its price, a limit in dollars would be a promise not kept.
    """

    tokens: Annotated[int, Field(ge=1)] | None = None
    turns: Annotated[int, Field(ge=1)] | None = None
    tool_calls: Annotated[int, Field(ge=1)] | None = None
    minutes: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_dollars(cls, told: object) -> object:
        if isinstance(told, dict) and "dollars" in told:
            raise PydanticCustomError(
                "unpriced",
                "no model says its price, so `dollars` cannot limit anything; use tokens, turns or minutes instead",
            )
        return told

    @property
    def ceilings(self) -> dict[str, int]:
        """The limits by the kernel's measures."""
        given: dict[str, int | None] = {
            "tokens": self.tokens, "turns": self.turns, "tool_calls": self.tool_calls,
            "wall_us": None if self.minutes is None else max(1, round(self.minutes * 60e6)),
        }  # fmt: skip
        return {measure: ceiling for measure, ceiling in given.items() if ceiling is not None}


class OtelSettings(_Strict):
    """Where traces are sent as OpenTelemetry spans by OTLP/HTTP; nowhere when `endpoint` is empty.

    `headers_env` names the variable that holds headers for it, as in `authorization=Bearer%20abc,x-team=ops`. What people and
    models wrote is sent only with `content`.
    """

    endpoint: Annotated[str, Field(pattern=r"^(https?://[^\s/?#]+[^\s?#]*)?$")] = ""
    headers_env: str = ""
    content: bool = False


class Settings(_Strict):
    """All of rucher.toml."""

    instance: InstanceSettings
    daemon: DaemonSettings = DaemonSettings()
    store: StoreSettings = StoreSettings()
    budget: BudgetSettings = BudgetSettings()
    model: ModelSettings = EmbeddedModelSettings()
    otel: OtelSettings = OtelSettings()


def find_instance(given: Path | None) -> Instance:
    """The instance that is meant: the folder given, that of RUCHER_INSTANCE, or the nearest around the current folder."""
    named = given or (Path(os.environ["RUCHER_INSTANCE"]) if os.environ.get("RUCHER_INSTANCE") else None)
    if named is not None:
        if (named / CONFIG).is_file():
            return Instance(named.absolute())
        raise BadInput(f"there is no instance at {named} (no {CONFIG} there); make one with `rucher new {named}`")
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / CONFIG).is_file():
            return Instance(folder)
    raise BadInput(
        f"there is no instance in {here}; make one with `rucher new DIR`, or name one with `rucher --dir DIR ...`"
    )


def load_settings(instance: Instance) -> Settings:
    """The instance's settings; raises BadInput naming the file, the place and the mend."""
    path = instance.config
    try:
        return Settings.model_validate(tomllib.loads(text_of(path, MEND)))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}; mend it and try again") from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(str(part) for part in fault["loc"])
        raise BadInput(f"{path}: {where}: {fault['msg']}; mend it and try again") from error


def zone_of(settings: Settings, localtime: Path = Path("/etc/localtime")) -> str:
    """The time zone of schedules that name none: the settings', else the machine's own; empty when it tells none by name.

    A mere offset is no zone: it would be wrong for half of the year. `localtime` is as in localtime(5).
    """
    if settings.instance.zone:
        return settings.instance.zone
    told = os.environ.get("TZ", "").removeprefix(":") or str(localtime.resolve())
    try:
        return zone_named(told.partition("/zoneinfo/")[2] or told).key
    except BadInput:
        return ""


def store_place(instance: Instance, settings: Settings) -> Place:
    """Where the instance's journal is kept."""
    url = os.environ.get("RUCHER_STORE_URL") or settings.store.url
    if url and not url.startswith(("postgres://", "postgresql://")):
        raise BadInput("RUCHER_STORE_URL is no PostgreSQL URL; write postgresql://USER@HOST/DATABASE")
    return url or instance.journal


def model_key(settings: CompatibleModelSettings) -> SecretStr | None:
    """The key of the endpoint, from the variable that the settings name; raises BadInput when that one is not set."""
    if not settings.key_env:
        return None
    key = os.environ.get(settings.key_env, "")
    if not key:
        raise BadInput(
            f"the model's key is not set: put it in the environment variable {settings.key_env} and start again"
        )
    return SecretStr(key)


def otel_headers(settings: OtelSettings) -> Mapping[str, str]:
    """The headers for the receiver of spans, from the variable that the settings name; raises BadInput without showing them.

    Written as OTEL_EXPORTER_OTLP_HEADERS is: https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
    """
    if not settings.endpoint or not settings.headers_env:
        return {}
    given = os.environ.get(settings.headers_env, "")
    pairs = [part.partition("=") for part in given.split(",") if part.strip()]
    headers = {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}
    if not headers or not all(_HEADER.fullmatch(name) and _VALUE.fullmatch(value) for name, value in headers.items()):
        raise BadInput(
            f"the environment variable {settings.headers_env} (otel.headers_env) holds no headers; "
            "write it as NAME=VALUE,NAME=VALUE and start again"
        )
    return headers


def cache_folder() -> Path:
    """Where this user's downloads and the launch kit are kept."""
    if given := os.environ.get("RUCHER_CACHE"):
        return Path(given).absolute()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).absolute() / "rucher"
    try:
        home = Path.home()
    except RuntimeError as error:
        raise BadInput("this user has no home folder; set HOME, or RUCHER_CACHE to a folder for downloads") from error
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "rucher"


def weights_folder() -> Path:
    """Where model weights are kept."""
    given = os.environ.get("RUCHER_WEIGHTS")
    return Path(given).absolute() if given else cache_folder() / "weights"


def kit_folder() -> Path:
    """Where launch kits are kept: for root, a folder that the tools' own user can reach too."""
    return Path("/var/cache/rucher") if os.geteuid() == 0 else cache_folder() / "kits"
