"""Models behind chat endpoints as agents, for evaluation with any provider.

Such an agent only returns text: its tokens and their probabilities are unknown, so it cannot be
trained. Many sessions are played at once, limited by the engine's capacity.
"""

from typing import Any

from agentsgym.generation.chat.client import DEFAULT_CONCURRENCY, ChatClient, EndpointError
from agentsgym.generation.http.engine import RemoteEngine, request_seed
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.types import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
)


class ChatEngine(RemoteEngine):
    """An `agentsgym.types.Engine` whose results are only text: no token ids, no logprobs.

    It has no tokenizer, so environments are played by text. `stats.extra` has `Usage`'s fields.
    """

    tokenizer: Any = None

    def __init__(self, client: ChatClient) -> None:
        super().__init__("agentsgym-chat", client.concurrency, loop=client.loop)
        self.client = client

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "ChatEngine":
        """Called by the factory: `engine_capacity` limits the requests in flight. Raises
        MissingKey, ValueError for several URLs, and EndpointError if nothing answers."""
        url, *more = settings.engine_urls
        if more:
            raise ValueError(f"engine 'chat' asks one endpoint, got {1 + len(more)} URLs")
        capacity = settings.engine_capacity or DEFAULT_CONCURRENCY
        client = ChatClient(
            url, settings.served_model or "", key_env=settings.key_env, concurrency=capacity
        )
        try:
            client.check()
        except BaseException:
            client.close()
            raise
        return cls(client)

    def close(self) -> None:
        """Close the connections; the client cannot be used afterwards."""
        super().close()
        self.client.close()

    @property
    def stats(self) -> EngineStats:
        """Token counts reported by the endpoint."""
        usage = self.client.usage
        return EngineStats(
            sampled_tokens=usage.completion_tokens,
            read_tokens=usage.prompt_tokens,
            extra={
                "requests": float(usage.requests),
                "retries": float(usage.retries),
                "cost": usage.cost,
            },
        )

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        seed = request_seed(request.seed, len(request.messages))
        try:
            reply = await self.client.reply(request.messages, request.sampling, seed)
        except EndpointError as error:
            return GenerationResult(request.session_id, finish_reason="error", error=str(error))
        return GenerationResult(
            request.session_id, text=reply.text, finish_reason=reply.finish_reason
        )


class ChatAgent:
    """An agent that uses a chat endpoint; rollouts play many of its sessions at once."""

    def __init__(self, engine: ChatEngine, sampling: SamplingParams | None = None) -> None:
        self.engine = engine
        self.sampling = sampling or SamplingParams(max_tokens=512)

    def get_action(self, messages: list[Message], agent_state: Any) -> tuple[str, Any]:
        """One answer, for callers that play a single session. Raises EndpointError."""
        text = self.engine.client.complete(messages, self.sampling, seed=len(messages))
        return text, agent_state


def chat_agent(
    url: str,
    model: str,
    key_env: str | None = "OPENAI_API_KEY",
    *,
    sampling: SamplingParams | None = None,
    **options: Any,
) -> ChatAgent:
    """An agent that uses `model` at the OpenAI-compatible endpoint `url`.

    `key_env` names the environment variable that holds the key (None: no key); `options` are
    `ChatClient`'s. Raises MissingKey.
    """
    client = ChatClient(url, model, key_env=key_env, **options)
    return ChatAgent(ChatEngine(client), sampling)
