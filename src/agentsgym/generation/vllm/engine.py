"""An engine over one or many running `vllm serve` servers, by HTTP.

The invariant: a result's `policy_version` is the version of the weights that sampled it.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agentsgym.generation.http.client import HttpError, JsonClient, Refused, Retries, Unreachable
from agentsgym.generation.http.engine import RemoteEngine
from agentsgym.generation.http.keys import read_key
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm.pool import EngineUnavailable, Fleet
from agentsgym.generation.vllm.protocol import MalformedAnswer, completion_body, read_completion
from agentsgym.generation.vllm.servers import Server
from agentsgym.generation.vllm.weight_files import WeightFiles
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.tokens import ActionText
from agentsgym.types import EngineStats, GenerationRequest, GenerationResult, WeightUpdate
from agentsgym.types.secrets import remember_secret

_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    retries: int = 0
    failures: int = 0
    sampled_tokens: int = 0
    context_tokens: int = 0
    seconds: float = 0.0


class VLLMEngine(RemoteEngine):
    """An `agentsgym.types.TrainableEngine` over vLLM servers that serve the same model.

    Token ids go in, and token ids with log-probabilities come out; text is decoded here. Sessions
    are spread over the servers and stay with their server for its prefix cache. If a server dies,
    its sessions move to the others, which read the history again: nothing is lost, because every
    request carries its whole context. If no server answers, requests come back as errors.

    Args:
        urls: base URLs, without `/v1`.
        tokenizer: the model's tokenizer, to decode actions and for its end-of-turn id.
        model: the served name of the base model (None: the servers' first).
        capacity: sessions that a scheduler keeps open, over all servers.
        request_timeout: seconds that one action may take, waiting in the server's queue included.
        retries: number of attempts and the pauses between them.
        stop_token_ids: ids that end an action, besides those of the server's own generation
            config (None: the tokenizer's end of sequence).
        api_key: sent as bearer token, for servers started with `--api-key`.
        vocab_size: ids that the model can read, for a model with more than the tokenizer has
            (None: the tokenizer's length). A server that answers with another id is refused.

    Raises EngineUnavailable if no server answers, serves another model, or returns
    log-probabilities other than those of `--logprobs-mode processed_logprobs`.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        tokenizer: Any,
        *,
        model: str | None = None,
        capacity: int = 256,
        request_timeout: float = 300.0,
        retries: Retries | None = None,
        stop_token_ids: Sequence[int] | None = None,
        api_key: str | None = None,
        vocab_size: int | None = None,
    ) -> None:
        super().__init__("agentsgym-vllm", capacity)
        self.tokenizer = tokenizer
        self._timeout = request_timeout
        self._retries = retries or Retries()
        self._stop_ids = _end_ids(tokenizer) if stop_token_ids is None else stop_token_ids
        self._action_text = ActionText(tokenizer, self._stop_ids)
        self._counts = _Counts()
        self._files = WeightFiles()
        self._vocab_size = vocab_size or len(tokenizer)
        remember_secret(api_key or "")
        self._client = JsonClient({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._loop.at_end(self._client.close)
        self.fleet = Fleet(
            [urls] if isinstance(urls, str) else urls,
            self._client,
            model=model,
            probe_ids=tokenizer.encode("The number is", add_special_tokens=False)[:3],
        )
        try:
            self._run(self.fleet.prepare_all())
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "VLLMEngine":
        """Called by the factory. Raises MissingKey and EngineUnavailable."""
        return cls(
            settings.engine_urls,
            parts.tokenizer(),
            model=settings.served_model,
            stop_token_ids=parts.stop_token_ids,
            api_key=read_key(settings.key_env),
            vocab_size=parts.vocab_size(),
            **settings.capacity,
        )

    @property
    def policy_version(self) -> int:
        """Version of the weights that new requests use; 0 before any were loaded."""
        return self.fleet.weights.version if self.fleet.weights else 0

    @property
    def base_model(self) -> str:
        """The name under which the servers serve their own weights."""
        return self.fleet.base or ""

    can_generate_ahead = True

    def update_weights(self, update: WeightUpdate) -> None:
        """Bring the weights to the servers through the disk: rank 0 writes them and lets the
        servers load them; the other ranks use the same servers.

        Raises WeightSyncError if servers cannot load them, EngineUnavailable if none answers, and
        OSError if the directory cannot be written; on every rank.
        """
        if not update.changed:
            return
        weights, error = self._publish(update) if update.rank == 0 else (None, None)
        problem = "" if error is None else str(error) or type(error).__name__
        shared, problem = update.gather([(weights, problem)])[0]
        if error is not None:
            raise error
        if problem:
            raise WeightSyncError(f"rank 0: {problem}")
        if update.rank != 0:
            self.adopt(shared)

    def _publish(self, update: WeightUpdate) -> tuple[Weights | None, Exception | None]:
        """Write the weights and let the servers load them. Errors are returned, so that no rank
        waits for another forever."""
        try:
            weights = self._files.write(
                update.model, update.version, update.directory, self.base_model
            )
            self.load(weights)
            self._files.prune()
        except Exception as error:
            return None, error
        return weights, None

    def finish(self) -> None:
        """Nothing to do: each rank uses the servers on its own."""

    def load(self, weights: Weights) -> None:
        """Serve other weights from now on, from a directory that the servers can read.

        Raises ValueError while requests are open, WeightSyncError if a server cannot load them, and
        EngineUnavailable if none answers. Servers that do not answer are left out; they get the
        weights before they are used again.
        """
        if self._open:
            raise ValueError(f"{len(self._open)} requests are open; their weights must not change")
        self.fleet.weights = weights
        self._run(self.fleet.prepare_all())

    def adopt(self, weights: Weights) -> None:
        """Use weights that another process of this run has already loaded into the servers."""
        self.fleet.weights = weights
        for server in self.fleet.pool.servers:
            server.weights = weights

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        super().release(session_ids)
        for session_id in session_ids:
            self.fleet.pool.forget(session_id)

    @property
    def stats(self) -> EngineStats:
        """Totals since construction. `read_tokens` counts whole contexts; the part that a prefix
        cache saved is only known to the server. `extra`: `requests`, `retries`, `failures` (error
        results), `moved` (sessions that left a dead server), `servers` (alive now), `seconds`
        (mean time of an answered request)."""
        counts = self._counts
        answered = max(1, counts.requests - counts.failures)
        extra = {
            "requests": counts.requests,
            "retries": counts.retries,
            "failures": counts.failures,
            "moved": self.fleet.pool.moved,
            "servers": len(self.fleet.pool.alive),
            "seconds": counts.seconds / answered,
        }
        return EngineStats(
            sampled_tokens=counts.sampled_tokens,
            read_tokens=counts.context_tokens,
            extra={name: float(value) for name, value in extra.items()},
        )

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        self._counts.requests += 1
        problem = self._problem(request)
        if problem is None:
            try:
                return await self._persist(request)
            except (HttpError, WeightSyncError, MalformedAnswer, EngineUnavailable) as error:
                problem = str(error)
        self._counts.failures += 1
        return GenerationResult(
            request.session_id,
            finish_reason="error",
            error=f"session {request.session_id!r}: {problem}",
            policy_version=self.policy_version,
        )

    def _problem(self, request: GenerationRequest) -> str | None:
        """The reason why a request can never be served, or None."""
        longest = self.fleet.max_model_len
        if not request.token_ids:
            return "the context is empty"
        if longest is not None and len(request.token_ids) >= longest:
            return (
                f"the context of {len(request.token_ids)} tokens leaves no room in the servers' "
                f"max_model_len of {longest}"
            )
        if request.sampling.truncates:
            return (
                "vLLM gives the log-probabilities of what top_p and top_k leave, not of the whole "
                "distribution; leave them off"
            )
        return None

    async def _persist(self, request: GenerationRequest) -> GenerationResult:
        """Repeat the request until a server answers or the attempts are used up."""
        delays = self._retries.delays()
        while True:
            try:
                return await self._ask(self.fleet.server_for(request.session_id), request)
            except Unreachable as error:
                delay = pause_after(error, delays)
            self._counts.retries += 1
            await asyncio.sleep(delay)

    async def _ask(self, server: Server, request: GenerationRequest) -> GenerationResult:
        """One attempt on one server. Raises Unreachable, Refused or MalformedAnswer."""
        weights = await self.fleet.prepare(server)
        body = completion_body(
            request,
            weights.model,
            max_model_len=self.fleet.max_model_len,
            stop_token_ids=self._stop_ids,
        )
        sent_at = time.monotonic()
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
        return self._result(request, weights, answer, time.monotonic() - sent_at)

    def _result(
        self, request: GenerationRequest, weights: Weights, answer: Any, seconds: float
    ) -> GenerationResult:
        ids, logprobs, reason = read_completion(
            answer, vocab_size=self._vocab_size, max_tokens=request.sampling.max_tokens
        )
        self._counts.sampled_tokens += len(ids)
        self._counts.context_tokens += len(request.token_ids)
        self._counts.seconds += seconds
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


def _end_ids(tokenizer: Any) -> Sequence[int]:
    end: int | None = getattr(tokenizer, "eos_token_id", None)
    return () if end is None else (end,)
