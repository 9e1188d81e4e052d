"""An engine over one or many running `vllm serve` servers, by HTTP.

The invariant: a result's `policy_version` is the version of the weights that sampled it.

Weights may be updated from another thread than the one that samples.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentsgym.generation.http import Refused, Retries, Unreachable
from agentsgym.generation.models import EngineUnavailable
from agentsgym.generation.remote import RemoteEngine
from agentsgym.generation.settings import EngineParts, EngineSettings, read_key
from agentsgym.generation.vllm.holding import Holder, VLLMServer
from agentsgym.generation.vllm.launcher import VLLMServers, find_program, launched
from agentsgym.generation.vllm.protocol import (
    MOST_ALLOWED,
    MalformedAnswer,
    completion_body,
    read_completion,
    read_prompt_logprobs,
    read_supports,
    refusal,
)
from agentsgym.generation.vllm.servers import ServerPool
from agentsgym.generation.vllm.weight_files import WeightFiles
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.tokens import ActionText
from agentsgym.tokens.plain import end_of_text
from agentsgym.types import (
    FinishReason,
    GenerationRequest,
    GenerationResult,
    SamplingParams,
    WeightUpdate,
)
from agentsgym.types.choices import Answers
from agentsgym.types.supports import NO_SUPPORTS, Ids, Supports
from agentsgym.types.text import remember_secret

_PROBE = "The quick brown fox [guess] said: 'No? 3,141.59!' (and_so on)\n"


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
        api_key: sent as bearer token, for servers started with `--api-key`.
        vocab_size: ids that the model can read, for a model with more than the tokenizer has
            (None: the tokenizer's length). A server that answers with another id is refused.
        dtype: the torch dtype in which matrices of more bits are written for the servers (None: in
            the model's).
        servers: servers of this process; they are ended when the engine is closed.
        take_over: load weights also into servers that another training holds, which ends then.
        seeds: whether each request has a seed of its session; without, servers draw their own.
        holder: the training, as its other processes name it (None: one of this engine alone).

    Raises EngineUnavailable if no server answers, serves another model, or returns
    log-probabilities other than those of `--logprobs-mode processed_logprobs`, and ServerHeld if
    another training has one.
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
        api_key: str | None = None,
        vocab_size: int | None = None,
        dtype: Any = None,
        servers: VLLMServers | None = None,
        take_over: bool = False,
        seeds: bool = True,
        holder: str | None = None,
    ) -> None:
        super().__init__(capacity, key=api_key, timeout=request_timeout, retries=retries)
        self._servers = servers
        self.tokenizer = tokenizer
        self._seeds = seeds
        self._files = WeightFiles(dtype)
        remember_secret(api_key or "")
        urls = [urls] if isinstance(urls, str) else list(urls)
        self._stops = end_of_text(tokenizer)  # besides those of the server's generation config
        self._vocab_size = vocab_size or len(tokenizer)
        self._action_text = ActionText(tokenizer, self._stops)
        self._holder = Holder(self._http, holder, take_over)
        self._loop.at_end(self._holder.let_go)
        self.elsewhere = partial(
            VLLMEngine,
            urls,
            model=model,
            request_timeout=request_timeout,
            retries=retries,
            api_key=api_key,
            vocab_size=self._vocab_size,
            seeds=seeds,
            holder=self._holder.name,
        )
        """Makes an engine over the same servers in another process, from a tokenizer."""
        self.pool = ServerPool(
            urls,
            self._http,
            self._holder,
            model=model,
            probe_ids=tokenizer.encode("The number is larger", add_special_tokens=False),
        )
        try:
            self._loop.run(self.pool.prepare_all())
        except BaseException:
            self.close()
            raise

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "VLLMEngine":
        """Called by the factory. Raises MissingKey, EngineUnavailable, and LaunchFailed for servers
        that it shall start itself, which end with it, and that do not come up."""
        urls: Sequence[str]
        urls, key, servers = settings.urls, read_key(settings.key_env), None
        if settings.launch:
            urls, key, servers = launched(settings, parts)
        try:
            return cls(
                urls,
                parts.tokenizer(),
                model=settings.served_model,
                api_key=key,
                vocab_size=parts.vocab_size(),
                dtype=parts.dtype,
                servers=servers,
                take_over=settings.take_over,
                seeds=settings.seeds,
                holder=parts.gather([secrets.token_hex(8)])[0],
                **settings.capacity_option,
            )
        except BaseException:
            if servers is not None:
                servers.close()
            raise

    @staticmethod
    def check_command(command: str | None) -> None:
        """Raise ConfigError if there is no such program to start servers with."""
        find_program(command)

    @property
    def policy_version(self) -> int:
        """Version of the weights that new requests use; 0 before any were loaded."""
        return self.pool.weights.version if self.pool.weights else 0

    @property
    def weights(self) -> Weights | None:
        """The weights that new requests use, for another process to `adopt`."""
        return self.pool.weights

    @property
    def base_model(self) -> str:
        """The name under which the servers serve their own weights."""
        return self.pool.base or ""

    can_generate_ahead = True

    chooses_listed = True

    @property
    def records_supports(self) -> bool:
        """Whether the servers follow grammars, and say what tokens were chosen from: those of
        serve-model do, vLLM does not."""
        return self.pool.records_supports

    def update_weights(self, update: WeightUpdate) -> None:
        """Bring the weights to the servers through the disk: rank 0 writes them and lets the
        servers load them; the other ranks use the same servers. Returns when all that answer have
        them; the others get them before they are used again. To replace full weights each server
        is paused: it answers what is open with the old ones and holds back the rest.

        Raises WeightSyncError if servers cannot load them, ServerHeld if another training has one,
        EngineUnavailable if none answers, and OSError if the directory cannot be written; on every
        rank.
        """
        if not update.changed:
            return
        update.gather([update.rank])
        weights, error = self._publish(update)
        problem = "" if error is None else str(error) or type(error).__name__
        outcomes = update.gather([(weights, problem)])
        if error is not None:
            raise error
        for rank, (_, problem) in enumerate(outcomes):
            if problem:
                raise WeightSyncError(f"rank {rank}: {problem}")
        if update.rank != 0:
            self.adopt(outcomes[0][0])

    def _publish(self, update: WeightUpdate) -> tuple[Weights | None, Exception | None]:
        """Write the weights and let the servers load them, on rank 0; the other ranks help to
        gather sharded weights. Errors are returned, so that no rank waits for another forever."""
        try:
            weights = self._files.write(
                update.model,
                update.version,
                update.directory,
                self.base_model,
                writes=update.rank == 0,
            )
            if weights is None:
                return None, None
            self.load(weights)
            self._files.prune(weights)
        except Exception as error:
            return None, error
        return self.weights, None

    def load(self, weights: Weights) -> None:
        """Serve other weights from now on, from a directory that the servers can read. Open
        requests are answered with their old weights.

        Raises WeightSyncError if a server cannot load them, ServerHeld if another training has it,
        and EngineUnavailable if none answers. Servers that do not answer are left out; they get the
        weights before they are used again.
        """
        self._loop.run(self.pool.load(weights))

    def close(self) -> None:
        """Cancel all requests, close the connections, and end servers of this engine's own; it
        cannot be used afterwards."""
        super().close()
        if self._servers is not None:
            self._servers.close()

    def adopt(self, weights: Weights) -> None:
        """Use weights that another process of this training has loaded into the servers, and may
        replace at any time."""
        self._loop.run(self.pool.follow(weights))

    def check_tokenizer(self) -> None:
        """Raise EngineUnavailable if a server encodes a text into other ids."""
        body = {"model": self.base_model, "prompt": _PROBE, "add_special_tokens": False}
        for server in self.pool.servers:
            answer = self._loop.run(self._http.post(f"{server.url}/tokenize", body, self._timeout))
            ids = answer.get("tokens") if isinstance(answer, dict) else None
            if ids != self.tokenizer.encode(_PROBE, add_special_tokens=False):
                raise EngineUnavailable(
                    f"{server.url} has another tokenizer: its ids of {_PROBE!r} are "
                    f"{str(ids)[:200]}; it would score other texts"
                )

    def score(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """The log-probabilities (nats, at temperature 1) of the token ids of each row, T numbers
        for T ids, of which the first is 0. Nothing is sampled.

        Raises ValueError for a row that the servers cannot read, and HttpError or MalformedAnswer
        where none answers, or without `prompt_logprobs`.
        """
        return self._loop.run(self._score_all(rows))

    async def _score_all(self, rows: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        open_requests = asyncio.Semaphore(self.capacity)

        async def score(number: int, ids: Sequence[int]) -> tuple[float, ...]:
            request = GenerationRequest(f"score-{number}", ids, SamplingParams(max_tokens=1))
            if (problem := refusal(request, self.pool.max_model_len)) is not None:
                raise ValueError(problem)
            async with open_requests:
                return await self._ask(lambda: attempt(request))

        async def attempt(request: GenerationRequest) -> tuple[float, ...]:
            server = self.pool.server_for(request.session_id)
            weights = await self.pool.prepare(server)
            body = completion_body(request, weights.model, max_model_len=None, stop_token_ids=())
            answer = await self._send(server, body | {"prompt_logprobs": 0})
            await self.pool.confirm(server, weights)
            return read_prompt_logprobs(answer, request.token_ids)

        return await asyncio.gather(*(score(number, ids) for number, ids in enumerate(rows)))

    def poll(self) -> list[GenerationResult]:
        """As any engine. Raises ServerHeld once another training has a server."""
        results = super().poll()
        if self._holder.lost is not None:
            raise self._holder.lost
        return results

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        records = self.records_supports
        problem = refusal(request, self.pool.max_model_len, records_supports=records)
        if problem is not None:
            raise ValueError(problem)
        return await self._ask(lambda: self._try(request))

    async def _try(self, request: GenerationRequest) -> GenerationResult:
        """One attempt on the session's server."""
        server = self.pool.server_for(request.session_id)
        weights = await self.pool.prepare(server)
        choices, records = request.choices, self.records_supports
        if choices is None or records:
            ids, logprobs, reason, answer = await self._complete(server, weights, request)
            supports = read_supports(answer, ids) if records else NO_SUPPORTS
        else:
            ids, logprobs, reason, supports = await self._choose(server, weights, request, choices)
        await self.pool.confirm(server, weights)
        return GenerationResult(
            request.session_id,
            token_ids=ids,
            logprobs=logprobs,
            text=self._action_text(ids, request.sampling.stop_token_ids),
            finish_reason=reason,
            policy_version=weights.version,
            supports=supports,
        )

    async def _complete(
        self, server: VLLMServer, weights: Weights, request: GenerationRequest, **more: Any
    ) -> tuple[tuple[int, ...], tuple[float, ...], FinishReason, Any]:
        """Ids, log-probabilities and finish reason of a completion, and all of its answer."""
        body = completion_body(
            request,
            weights.model,
            max_model_len=self.pool.max_model_len,
            stop_token_ids=sorted({*self._stops, *request.sampling.stop_token_ids}),
        )
        if not self._seeds:
            del body["seed"]
        answer = await self._send(server, body | more)
        ids, logprobs, reason = read_completion(
            answer, vocab_size=self._vocab_size, max_tokens=request.sampling.max_tokens
        )
        self._totals["sampled"] += len(ids)
        self._totals["read"] += len(request.token_ids)
        return ids, logprobs, reason, answer

    async def _choose(
        self, server: VLLMServer, weights: Weights, request: GenerationRequest, choices: Answers
    ) -> tuple[tuple[int, ...], tuple[float, ...], FinishReason, Supports]:
        """A listed answer: vLLM is asked for each of its tokens that is a choice, among the ids
        that may come next, so that we know what it was chosen from."""
        walk, sampling = choices.walk(self.tokenizer, self._vocab_size), request.sampling
        ids: list[int] = []
        logprobs: list[float] = []
        supports: list[Ids] = []
        while len(walk.allowed) and len(ids) < sampling.max_tokens:
            supports.append(walk.allowed)
            allowed = walk.allowed.tolist()
            if len(allowed) > MOST_ALLOWED:
                raise ValueError(f"vLLM chooses among {MOST_ALLOWED} ids, not {len(allowed)}")
            token, logprob = allowed[0], 0.0
            if len(allowed) > 1:
                one = replace(
                    request,
                    token_ids=[*request.token_ids, *ids],
                    sampling=replace(sampling, max_tokens=1),
                    sampled_before=request.sampled_before + len(ids),
                    choices=None,
                )
                said = await self._complete(server, weights, one, allowed_token_ids=allowed)
                token, logprob = said[0][0], said[1][0]
            if token not in allowed:
                raise MalformedAnswer(f"token id {token} is none of the allowed_token_ids")
            walk.take(token)
            ids.append(token)
            logprobs.append(logprob)
        reason: FinishReason = "length" if len(walk.allowed) else "stop"
        return tuple(ids), tuple(logprobs), reason, Supports.of(enumerate(supports))

    async def _send(self, server: VLLMServer, body: dict[str, Any]) -> Any:
        where = f"{server.url}/v1/completions"
        try:
            return await self._http.post(where, body, self._timeout)
        except Unreachable:
            server.checked = False
            raise
        except Refused as error:
            if error.status != 404:
                raise
            server.checked = False  # it was restarted, without our adapter
            raise Unreachable(error.url, error.reason) from None
