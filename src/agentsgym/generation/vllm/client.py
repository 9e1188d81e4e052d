"""One action from the servers, asked until one of them answers."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.generation.http import JsonClient, Refused, Retries, Unreachable
from agentsgym.generation.vllm.pool import ServerPool
from agentsgym.generation.vllm.protocol import completion_body, read_completion
from agentsgym.generation.vllm.servers import Server
from agentsgym.generation.vllm.weights import Weights
from agentsgym.tokens import ActionText
from agentsgym.types import GenerationRequest, GenerationResult

_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed


@dataclass(slots=True)
class Counts:
    """Running totals; `seconds` are those of answered requests."""

    requests: int = 0
    retries: int = 0
    failures: int = 0
    sampled_tokens: int = 0
    read_tokens: int = 0
    seconds: float = 0.0


class CompletionsClient:
    """Asks the pool's servers for actions.

    `timeout` is in seconds and of one try. `vocab_size` bounds the ids that a server may answer
    with.
    """

    def __init__(
        self,
        pool: ServerPool,
        http: JsonClient,
        tokenizer: Any,
        *,
        stop_token_ids: Sequence[int],
        vocab_size: int,
        timeout: float,
        retries: Retries,
    ) -> None:
        self.counts = Counts()
        self._pool = pool
        self._client = http
        self._timeout = timeout
        self._retries = retries
        self._stop_ids = stop_token_ids
        self._action_text = ActionText(tokenizer, stop_token_ids)
        self._vocab_size = vocab_size

    async def ask(self, request: GenerationRequest) -> GenerationResult:
        """Ask until a server answers or the tries are used up. Raises HttpError, WeightSyncError,
        MalformedAnswer or EngineUnavailable."""
        delays = self._retries.delays()
        while True:
            try:
                return await self._try(self._pool.server_for(request.session_id), request)
            except Unreachable as error:
                delay = pause_after(error, delays)
            self.counts.retries += 1
            await asyncio.sleep(delay)

    async def _try(self, server: Server, request: GenerationRequest) -> GenerationResult:
        """One attempt on one server. Raises Unreachable, Refused or MalformedAnswer."""
        weights = await self._pool.prepare(server)
        body = completion_body(
            request,
            weights.model,
            max_model_len=self._pool.max_model_len,
            stop_token_ids=self._stop_ids,
        )
        sent_at = time.monotonic()
        with server.using(weights):
            answer = await self._send(server, body, sent_at)
            await self._pool.confirm(server, weights)
        return self._result(request, weights, answer, time.monotonic() - sent_at)

    async def _send(self, server: Server, body: dict[str, Any], sent_at: float) -> Any:
        try:
            answer = await self._client.post(f"{server.url}/v1/completions", body, self._timeout)
        except Unreachable as error:
            server.failed(sent_at, answered=error.status is not None)
            raise
        except Refused as error:
            if error.status != 404:
                raise
            server.failed(sent_at, answered=False)  # it was restarted, without our adapter
            raise Unreachable(error.url, error.reason) from None
        server.answered()
        return answer

    def _result(
        self, request: GenerationRequest, weights: Weights, answer: Any, seconds: float
    ) -> GenerationResult:
        ids, logprobs, reason = read_completion(
            answer, vocab_size=self._vocab_size, max_tokens=request.sampling.max_tokens
        )
        self.counts.sampled_tokens += len(ids)
        self.counts.read_tokens += len(request.token_ids)
        self.counts.seconds += seconds
        return GenerationResult(
            request.session_id,
            token_ids=ids,
            logprobs=logprobs,
            text=self._action_text(ids),
            finish_reason=reason,
            policy_version=weights.version,
        )


def pause_after(error: Unreachable, delays: Iterator[float]) -> float:
    """Seconds until the next attempt, longer if the server requested it; raises the error if the
    attempts are used up."""
    delay = next(delays, None)
    if delay is None:
        raise error
    return delay if error.wait is None else max(delay, min(error.wait, _LONGEST_WAIT))
