"""OpenAI-compatible chat completions: text in, text out."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from agentsgym.generation.chat.usage import Meter, Prices, Usage
from agentsgym.generation.http.client import HttpError, JsonClient, Refused, Retries, Unreachable
from agentsgym.generation.http.event_loop import LoopThread
from agentsgym.generation.http.keys import MissingKey as MissingKey
from agentsgym.generation.http.keys import read_key
from agentsgym.types import FinishReason, Message, SamplingParams
from agentsgym.types.text import mask_secrets

DEFAULT_CONCURRENCY = 16
_PROBE_SECONDS = 30.0
_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed


class EndpointError(RuntimeError):
    """An endpoint gave no usable answer; the message names it, the number of attempts and the
    last problem."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A chat completion's text and its finish reason."""

    text: str
    finish_reason: FinishReason


class ChatClient:
    """Sends requests to one model of one endpoint; may be used from many threads at once.

    Args:
        url: the endpoint's base, with or without `/v1` and `/chat/completions`.
        model: the model's name there.
        key_env: name of the environment variable that holds the key; None sends none.
        concurrency: requests in flight at once.
        request_timeout: seconds that one request may take.
        retries: number of attempts and the pauses between them.
        prices: per million tokens, for the cost.
        extra: more fields of the request's body, for instance `{"reasoning_effort": "low"}`; a
            field with the value None is removed (some models reject `temperature`).

    Raises MissingKey if the variable is unset or empty.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        key_env: str | None = "OPENAI_API_KEY",
        concurrency: int = DEFAULT_CONCURRENCY,
        request_timeout: float = 120.0,
        retries: Retries | None = None,
        prices: Prices | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, got {concurrency}")
        self.url = completions_url(url)
        self.model = model
        self.concurrency = concurrency
        self._timeout = request_timeout
        self._retries = retries or Retries()
        self._meter = Meter(prices or Prices())
        self._extra = dict(extra or {})
        key = read_key(key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = JsonClient(headers, connections=concurrency)
        self._in_flight = asyncio.Semaphore(concurrency)
        self._loop = LoopThread("agentsgym-chat")
        self._loop.at_end(self._http.close)

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost so far."""
        return self._meter.total

    @property
    def loop(self) -> LoopThread:
        """The loop in which `reply` runs."""
        return self._loop

    def complete(
        self, messages: Sequence[Message], sampling: SamplingParams | None = None, seed: int = 0
    ) -> str:
        """The model's answer to a conversation. Blocks. Raises EndpointError."""
        work = self.reply(messages, sampling or SamplingParams(), seed)
        return self._loop.run(work).text

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

    async def reply(
        self, messages: Sequence[Message], sampling: SamplingParams, seed: int = 0
    ) -> Reply:
        """As `complete`, inside the client's loop."""
        body = self._body(messages, sampling, seed)
        started = time.monotonic()
        attempts = 1
        delays = self._retries.delays()
        while True:
            try:
                async with self._in_flight:
                    answer = await self._http.post(self.url, body, self._timeout)
                return self._read(answer)
            except Unreachable as error:
                delay = next(delays, None)
                if delay is None:
                    raise self._gave_up(error, attempts, time.monotonic() - started) from None
                delay = max(delay, min(error.wait or 0.0, _LONGEST_WAIT))
            except Refused as error:
                raise EndpointError(f"{error}{_hint(error)}") from None
            attempts += 1
            self._meter.tried_again()
            await asyncio.sleep(delay)

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._loop.close()

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
        return {name: value for name, value in (body | self._extra).items() if value is not None}

    def _read(self, answer: Any) -> Reply:
        try:
            choice = answer["choices"][0]
            text = _text(choice["message"]["content"])
        except (KeyError, IndexError, TypeError):
            # A proxy's error page instead of an answer; a retry may help.
            raise Unreachable(self.url, f"no chat completion: {str(answer)[:200]}") from None
        usage = answer.get("usage")
        self._meter.answered(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))
        reason = choice.get("finish_reason")
        return Reply(mask_secrets(text), "length" if reason == "length" else "stop")

    def _gave_up(self, error: HttpError, attempts: int, seconds: float) -> EndpointError:
        tries = "1 try" if attempts == 1 else f"{attempts} tries"
        return EndpointError(
            f"{error.url} gave no answer in {tries} over {seconds:.1f} s; the last: {error.reason}"
        )


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


def _hint(error: Refused) -> str:
    if error.status in (401, 403):
        return " (is the key right? key_env, on the command line --key-env, names its variable)"
    return " (are URL and model right?)" if error.status == 404 else ""
