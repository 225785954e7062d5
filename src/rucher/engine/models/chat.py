"""Any endpoint that speaks chat completions: a provider with a key, or one's own llama.cpp, vLLM, Ollama and so on.

Built by `rucher.daemon` from `[model] kind = "compatible"`. It never retries and never runs a tool.
"""

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum

from pydantic import SecretStr

from rucher.engine.models.wire import constrained, native
from rucher.engine.models.wire.endpoint import Endpoint
from rucher.protocol.conversation import Conversation, ModelEvent, ModelOptions, ToolSpec


class ToolMode(StrEnum):
    """How a model is asked for tool calls."""

    NATIVE = "native"
    """By the wire's own tool calls; right for models trained for them."""
    CONSTRAINED = "constrained"
    """By a JSON schema that the server enforces while it samples; right for small models on llama.cpp's server."""


class ChatModel:
    """A model behind a chat-completions endpoint.

    `base_url` is what `/chat/completions` is added to, `context_tokens` what the model can read: in constrained mode
    the oldest messages are left out to stay below it. Raises BadInput for a URL or key that cannot be one.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        key: SecretStr | None = None,
        mode: ToolMode = ToolMode.NATIVE,
        context_tokens: int = 8192,
    ) -> None:
        self.name = name
        self._mode = mode
        self._context_tokens = context_tokens
        self._endpoint = Endpoint(base_url, key)

    def stream(
        self, conversation: Conversation, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> AsyncIterator[ModelEvent]:
        """One answer as events, ending with Finished; see the port for what it raises."""
        match self._mode:
            case ToolMode.NATIVE:
                body = native.render(self.name, conversation, tools, options)
                return self._endpoint.stream(body, native.NativeReader(conversation), options.timeout_s)
            case ToolMode.CONSTRAINED:
                body = constrained.render(self.name, conversation, tools, options, self._context_tokens)
                return self._endpoint.stream(body, constrained.ConstrainedReader(conversation), options.timeout_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._endpoint.close()
