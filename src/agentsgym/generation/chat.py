"""Models behind OpenAI-compatible chat endpoints, text in, text out.

Their tokens and probabilities are unknown, so they cannot be trained. Many sessions are played at
once, limited by the engine's capacity.
"""

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agentsgym.generation.http import Refused, Retries, Unreachable
from agentsgym.generation.remote import RemoteEngine
from agentsgym.generation.settings import EngineParts, EngineSettings, read_key
from agentsgym.types import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    Message,
    SamplingParams,
    session_seed,
)
from agentsgym.types.text import mask_secrets

DEFAULT_CAPACITY = 16
_PROBE_SECONDS = 30.0
_LONGEST_TEXT = 1_000_000  # characters of an answer
_HINTS = dict.fromkeys((401, 403), " (is the key right? key_env names its variable)")
_HINTS[404] = " (are URL and model right?)"


class EndpointError(RuntimeError):
    """An endpoint gave no usable answer; the message names it, the number of attempts and the
    last problem."""


class ChatEngine(RemoteEngine):
    """An `agentsgym.types.Engine` over one model of one endpoint, whose results are only text: no
    token ids, no logprobs. It has no tokenizer, so environments are played by text.

    `complete` may be called from many threads at once.

    Args:
        url: the endpoint's base, with or without `/v1` and `/chat/completions`.
        model: the model's name there.
        key_env: name of the environment variable that holds the key; None sends none.
        capacity: requests in flight at once.
        request_timeout: seconds that one request may take.
        retries: number of attempts and the pauses between them.

    Raises MissingKey if the variable is unset or empty.
    """

    tokenizer: Any = None

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str | None = "OPENAI_API_KEY",
        capacity: int = DEFAULT_CAPACITY,
        request_timeout: float = 120.0,
        retries: Retries | None = None,
    ) -> None:
        key = read_key(key_env)
        super().__init__(capacity, key=key, timeout=request_timeout, retries=retries)
        self.url = completions_url(url)
        self.model = model
        self._in_flight = asyncio.Semaphore(capacity)

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "ChatEngine":
        """Called by the factory: `engine.capacity` limits the requests in flight. Raises
        MissingKey, ValueError for several URLs, and EndpointError if nothing answers."""
        url, *more = settings.urls
        if more:
            raise ValueError(f"engine 'chat' asks one endpoint, got {1 + len(more)} URLs")
        made = cls(
            url,
            settings.served_model or "",
            key_env=settings.key_env,
            **settings.capacity_option,
        )
        try:
            made.check()
        except BaseException:
            made.close()
            raise
        return made

    def complete(self, messages: Sequence[Message], sampling: SamplingParams | None = None) -> str:
        """The model's answer to a conversation. Blocks. Raises EndpointError."""
        return self._loop.run(self._reply(messages, sampling or SamplingParams(), seed=0))[0]

    def check(self) -> None:
        """Find out at once whether anything answers at the address. Raises EndpointError."""
        base = self.url.partition("/chat/completions")[0]
        try:
            self._loop.run(self._http.get(f"{base}/models", _PROBE_SECONDS))
        except Refused:
            return  # it answers; not every endpoint lists its models
        except Unreachable as error:
            if error.status is None:
                raise EndpointError(f"nothing answers at {self.url}: {error.reason}") from None

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        seed = session_seed(request.seed, len(request.messages))
        text, reason = await self._reply(request.messages, request.sampling, seed)
        return GenerationResult(request.session_id, None, None, text, reason)

    async def _reply(
        self, messages: Sequence[Message], sampling: SamplingParams, seed: int
    ) -> tuple[str, FinishReason]:
        body = self._body(messages, sampling, seed)

        async def attempt() -> tuple[str, FinishReason]:
            async with self._in_flight:
                answer = await self._http.post(self.url, body, self._timeout)
            return self._read(answer)

        try:
            return await self._ask(attempt)
        except Unreachable as error:
            tries = self._retries.attempts
            raise EndpointError(
                f"{error.url} gave no answer (attempts: {tries}); the last: {error.reason}"
            ) from None
        except Refused as error:
            hint = _HINTS.get(error.status or 0, "")
            raise EndpointError(f"{error}{hint}") from None

    def _body(
        self, messages: Sequence[Message], sampling: SamplingParams, seed: int
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "seed": seed & 0x7FFFFFFF,
        }
        if sampling.top_p < 1:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        return body

    def _read(self, answer: Any) -> tuple[str, FinishReason]:
        try:
            choice = answer["choices"][0]
            text = _text(choice["message"]["content"])
            if len(text) > _LONGEST_TEXT:
                raise TypeError("the text is too long")
        except (KeyError, IndexError, TypeError):
            # A proxy's error page instead of an answer; a retry may help.
            raise Unreachable(self.url, f"no chat completion: {str(answer)[:200]}") from None
        usage = answer.get("usage")
        self._totals["read"] += _count(usage, "prompt_tokens")
        self._totals["sampled"] += _count(usage, "completion_tokens")
        is_cut = choice.get("finish_reason") == "length"
        return mask_secrets(text), "length" if is_cut else "stop"


def _text(content: Any) -> str:
    """A message's text: a string, None, or OpenAI's list of text parts. Raises TypeError."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(_text(part["text"]) for part in content)
    raise TypeError("the content is neither text nor a list of text parts")


def _count(usage: Any, name: str) -> int:
    """A number of tokens that an endpoint reports; 0 if it reports none."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and value > 0 else 0


def completions_url(url: str) -> str:
    """The address of chat completions below an endpoint's base; its query is kept."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path or '/v1'}/chat/completions"
    return urlunsplit(parts._replace(path=path))
