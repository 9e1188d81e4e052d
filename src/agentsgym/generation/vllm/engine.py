"""An engine over one or many running `vllm serve` servers, by HTTP.

The invariant: a result's `policy_version` is the version of the weights that sampled it.

Weights may be updated from another thread than the one that samples.
"""

from collections.abc import Collection, Sequence
from typing import Any

from agentsgym.generation.http import HttpError, JsonClient, Retries, read_key
from agentsgym.generation.remote import RemoteEngine
from agentsgym.generation.settings import EngineParts, EngineSettings
from agentsgym.generation.vllm.client import CompletionsClient
from agentsgym.generation.vllm.launched import launched
from agentsgym.generation.vllm.launcher import VLLMServers
from agentsgym.generation.vllm.pool import ServerPool
from agentsgym.generation.vllm.protocol import MalformedAnswer, refusal
from agentsgym.generation.vllm.server_access import ServerAccess
from agentsgym.generation.vllm.server_check import EngineUnavailable
from agentsgym.generation.vllm.weight_files import WeightFiles
from agentsgym.generation.vllm.weights import Weights, WeightSyncError
from agentsgym.types import (
    EngineStats,
    GenerationRequest,
    GenerationResult,
    WeightTransfer,
    WeightUpdate,
)
from agentsgym.types.text import remember_secret


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
        servers: servers of this process; they are ended when the engine is closed.
        resume_paused: this is the only process of its run that pauses the servers, to load weights;
            so one that stays paused for a minute was left by a learner that ended, and is resumed.
            Other processes wait for it.

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
        servers: VLLMServers | None = None,
        resume_paused: bool = False,
    ) -> None:
        super().__init__("agentsgym-vllm", capacity)
        self._servers = servers
        self.tokenizer = tokenizer
        self._files = WeightFiles()
        self._shared = self._lent = False
        self._lacking: tuple[str, ...] = ()
        remember_secret(api_key or "")
        self.access = ServerAccess(
            urls=[urls] if isinstance(urls, str) else list(urls),
            model=model,
            stop_token_ids=_end_ids(tokenizer) if stop_token_ids is None else stop_token_ids,
            vocab_size=vocab_size or len(tokenizer),
            request_timeout=request_timeout,
            retries=retries or Retries(),
            api_key=api_key,
        )
        http = JsonClient({"Authorization": f"Bearer {api_key}"} if api_key else {})
        self._loop.at_end(http.close)
        self.pool = ServerPool(
            self.access.urls,
            http,
            model=model,
            probe_ids=tokenizer.encode("The number is", add_special_tokens=False)[:3],
            resume_paused=resume_paused,
        )
        self._client = CompletionsClient(
            self.pool,
            http,
            tokenizer,
            stop_token_ids=self.access.stop_token_ids,
            vocab_size=self.access.vocab_size,
            timeout=request_timeout,
            retries=self.access.retries,
        )
        try:
            self._run(self.pool.prepare_all())
        except BaseException:
            self.close()
            raise

    @classmethod
    def reaching(cls, access: ServerAccess, tokenizer: Any, capacity: int) -> "VLLMEngine":
        """An engine over the servers of another process's engine, which has this `access`."""
        return cls(
            access.urls,
            tokenizer,
            model=access.model,
            capacity=capacity,
            request_timeout=access.request_timeout,
            retries=access.retries,
            stop_token_ids=access.stop_token_ids,
            api_key=access.api_key,
            vocab_size=access.vocab_size,
        )

    @classmethod
    def from_settings(cls, settings: EngineSettings, parts: EngineParts) -> "VLLMEngine":
        """Called by the factory. Raises MissingKey, EngineUnavailable, and LaunchFailed for servers
        that it shall start itself and that do not come up."""
        if settings.launch:
            return cls._launched(settings, parts)
        return cls(
            settings.engine_urls,
            parts.tokenizer(),
            model=settings.served_model,
            stop_token_ids=parts.stop_token_ids,
            api_key=read_key(settings.key_env),
            vocab_size=parts.vocab_size(),
            resume_paused=parts.learns and parts.rank == 0,
            **settings.capacity,
        )

    @classmethod
    def _launched(cls, settings: EngineSettings, parts: EngineParts) -> "VLLMEngine":
        """An engine with servers of its own, which end with it."""
        found = launched(settings, parts)
        try:
            return cls(
                found.urls,
                parts.tokenizer(),
                stop_token_ids=parts.stop_token_ids,
                api_key=found.key,
                vocab_size=parts.vocab_size(),
                servers=found.servers,
                **settings.capacity,
            )
        except BaseException:
            if found.servers is not None:
                found.servers.close()
            raise

    @property
    def policy_version(self) -> int:
        """Version of the weights that new requests use; 0 before any were loaded."""
        return self.pool.weights.version if self.pool.weights else 0

    def share_servers(self) -> None:
        """Other processes, such as rollout workers, ask the same servers from now on."""
        self._lent = True

    @property
    def weights(self) -> Weights | None:
        """The weights that new requests use, for another process to `adopt`."""
        return self.pool.weights

    @property
    def lacking(self) -> tuple[str, ...]:
        """The addresses of the servers that did not have the weights of the last update when it
        returned, for another process to `adopt`."""
        return self._lacking

    @property
    def base_model(self) -> str:
        """The name under which the servers serve their own weights."""
        return self.pool.base or ""

    can_generate_ahead = True
    can_update_while_sampling = True

    def update_weights(self, update: WeightUpdate) -> None:
        """Bring the weights to the servers through the disk: rank 0 writes them and lets the
        servers load them; the other ranks use the same servers. While requests are open
        (`update.sampling`), each server takes them on its own, and this returns before.

        Raises WeightSyncError if servers cannot load them, EngineUnavailable if none answers, and
        OSError if the directory cannot be written; on every rank.
        """
        if not update.changed:
            return
        if update.sampling and update.rank != 0:
            self.expect_others_weights()  # before `gather`, so before rank 0 loads them
        self._shared = self._lent or len(update.gather([update.rank])) > 1
        weights, error = self._publish(update)
        problem = "" if error is None else str(error) or type(error).__name__
        told = update.gather([(weights, problem, self.pool.lacking)])
        if error is not None:
            raise error
        for rank, (_, problem, _) in enumerate(told):
            if problem:
                raise WeightSyncError(f"rank {rank}: {problem}")
        shared, _, lacking = told[0]
        self._lacking = tuple(lacking)
        if update.rank != 0:
            self.adopt(shared, loaded=not update.sampling, lacking=lacking)

    def _publish(self, update: WeightUpdate) -> tuple[Weights | None, Exception | None]:
        """Write the weights and let the servers load them, on rank 0; the other ranks help to
        gather sharded weights. Errors are returned, so that no rank waits for another forever."""
        try:
            weights = self._files.write(
                update.model,
                update.version,
                update.directory,
                self.base_model,
                copy_tied=self.pool.maybe_on_cpu,
                dtype=self.pool.dtype,
                writes=update.rank == 0,
            )
            if weights is None:
                return None, None
            if update.sampling:
                self.replace(weights)
            else:
                self.load(weights)
            self._files.prune(self._run(self.pool.used_paths()))
        except Exception as error:
            return None, error
        return weights, None

    @property
    def weight_transfer(self) -> WeightTransfer | None:
        """What the last update took; None in a process that writes no weights."""
        if self._files.bytes is None:
            return None
        slowest = max(server.load_seconds for server in self.pool.router.servers)
        return WeightTransfer(self._files.bytes, slowest)

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
        self._run(self.pool.replace(weights, shared=self._shared))

    def replace(self, weights: Weights) -> None:
        """Serve other weights as soon as each server has them, while requests are open.

        Open requests are answered with their old weights, and requests of sessions on a server
        that is loading wait for it. Servers that cannot load them are left out until the next
        weights. Raises EngineUnavailable if no server could load the previous ones.
        """
        self._run(self.pool.start_replacing(weights, shared=self._shared))

    def close(self) -> None:
        """Cancel all requests, close the connections, and end servers of this engine's own; it
        cannot be used afterwards."""
        super().close()
        if self._servers is not None:
            self._servers.close()

    def adopt(
        self, weights: Weights, *, loaded: bool = True, lacking: Collection[str] = ()
    ) -> None:
        """Use weights that another process of this run has loaded into the servers, all but those
        at the addresses `lacking`, or is loading right now (`loaded=False`)."""
        self._run(self.pool.follow(weights, loaded=loaded, lacking=lacking))

    def expect_others_weights(self) -> None:
        """Another process is going to load weights while requests are open: from now on the servers
        are asked which ones sampled an answer."""
        if self.weights is not None:
            self.adopt(self.weights, loaded=False)

    def release(self, session_ids: Sequence[str]) -> None:
        """Drop sessions and their unread results."""
        super().release(session_ids)
        for session_id in session_ids:
            self.pool.router.forget(session_id)

    @property
    def stats(self) -> EngineStats:
        """Totals since construction. `read_tokens` counts whole contexts; the part that a prefix
        cache saved is only known to the server. `extra`: `requests`, `retries`, `failures` (error
        results), `moved` (sessions that left a dead server), `servers` (alive now), `seconds`
        (mean time of an answered request)."""
        counts = self._client.counts
        answered = max(1, counts.requests - counts.failures)
        extra = {
            "requests": counts.requests,
            "retries": counts.retries,
            "failures": counts.failures,
            "moved": self.pool.router.moved,
            "servers": len(self.pool.router.alive),
            "seconds": counts.seconds / answered,
        }
        return EngineStats(
            sampled_tokens=counts.sampled_tokens,
            read_tokens=counts.read_tokens,
            extra={name: float(value) for name, value in extra.items()},
        )

    async def _answer(self, request: GenerationRequest) -> GenerationResult:
        counts = self._client.counts
        counts.requests += 1
        problem = refusal(request, self.pool.max_model_len)
        if problem is None:
            try:
                return await self._client.ask(request)
            except (HttpError, WeightSyncError, MalformedAnswer, EngineUnavailable) as error:
                problem = str(error)
        counts.failures += 1
        return GenerationResult(
            request.session_id,
            finish_reason="error",
            error=f"session {request.session_id!r}: {problem}",
            policy_version=self.policy_version,
        )


def _end_ids(tokenizer: Any) -> Sequence[int]:
    end: int | None = getattr(tokenizer, "eos_token_id", None)
    return () if end is None else (end,)
