"""The model that the settings ask for, behind the Model port."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol, assert_never

import structlog

from rucher.daemon.offers import offered
from rucher.daemon.settings import (
    CompatibleModelSettings,
    EmbeddedModelSettings,
    ModelSettings,
    ScriptedModelSettings,
    model_key,
    weights_folder,
)
from rucher.engine.models.chat import ChatModel, ToolMode
from rucher.engine.models.embedded import EmbeddedModel
from rucher.engine.models.scripted import ScriptedModel
from rucher.engine.weights import TABLE, Progress, ensure, own
from rucher.instance.agents import AgentFile
from rucher.instance.layout import Instance
from rucher.protocol.errors import Permanent, Retryable
from rucher.protocol.ports import Model

log = structlog.get_logger()


class OpenModel(Model, Protocol):
    """A model that holds something until it is closed."""

    async def close(self) -> None:
        """Let go of it."""
        ...


def weights_of(settings: EmbeddedModelSettings, on_progress: Progress) -> Path:
    """The weights that the settings name, fetched if this user has none yet; blocks, for minutes the first time."""
    if settings.path:
        return own(Path(settings.path).expanduser())
    return ensure(TABLE[settings.name], weights_folder(), on_progress)


def fetch_weights(settings: ModelSettings, on_progress: Progress) -> None:
    """Have the weights on this machine before the daemon starts; raises Retryable or BadInput when they cannot be had."""
    if isinstance(settings, EmbeddedModelSettings):
        weights_of(settings, on_progress)


@asynccontextmanager
async def open_model(settings: ModelSettings, instance: Instance) -> AsyncIterator[OpenModel]:
    """The model, closed when it is left. Raises BadInput when its key, script or weights cannot be had."""
    model = await asyncio.to_thread(_made, settings, instance)
    try:
        yield model
    finally:
        await model.close()


async def warm_quietly(model: OpenModel, agent: AgentFile | None) -> None:
    """Load an embedded model before its first message comes, with what it will read first; other kinds need no warming."""
    if isinstance(model, EmbeddedModel) and agent is not None:
        try:
            await model.warm(agent.persona, offered(agent))
        except (Retryable, Permanent) as error:
            log.warning("the embedded model is not ready; it is tried again at the first message", reason=str(error))


def _made(settings: ModelSettings, instance: Instance) -> OpenModel:
    match settings:
        case EmbeddedModelSettings():
            return EmbeddedModel(weights_of(settings, lambda *_: None), instance.state / "model.log")
        case CompatibleModelSettings():
            key, mode = model_key(settings), ToolMode(settings.tools)
            return ChatModel(settings.name, settings.base_url, key, mode, settings.context_tokens)
        case ScriptedModelSettings():
            return ScriptedModel.load(settings.script)
        case _:
            assert_never(settings)
