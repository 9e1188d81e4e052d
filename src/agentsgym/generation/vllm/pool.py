"""Keeps several vLLM servers usable: the right model, the right mode, the current weights.

The invariant: a server has the weights that `prepare` returns, which are those that `weights` named
when it began. A server that has failed since then is inspected again, and gets the weights that it
lacks, before it is used.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any

from agentsgym.generation.http import HttpError, JsonClient, Refused, Unreachable
from agentsgym.generation.vllm.pausing import await_running
from agentsgym.generation.vllm.server_check import (
    MEND,
    EngineUnavailable,
    check_logprobs,
    device_of,
    dies_of_chunks,
    dtype_of,
    server_config,
)
from agentsgym.generation.vllm.servers import Server, SessionRouter
from agentsgym.generation.vllm.weights import (
    Weights,
    WeightSyncError,
    load_weights,
    served_models,
    tagged,
    unload_adapter,
    weight_tag,
)

logger = logging.getLogger(__name__)

_PAUSE = 0.5  # seconds between two attempts to bring a dead server back


class ServerPool:
    """vLLM servers that serve the same model; all coroutines must run in one event loop.

    `model` is the base model's served name (None: the first server's first). `probe_ids` are
    token ids for the request that finds out the server's log-probability mode. `maybe_on_cpu`
    says that a server runs on a CPU, or did not report where (a busy one may answer too late).
    `resume_paused`: no other process of this run pauses these servers.
    """

    def __init__(
        self,
        urls: Sequence[str],
        client: JsonClient,
        *,
        model: str | None,
        probe_ids: Sequence[int],
        resume_paused: bool = False,
    ) -> None:
        self.router = SessionRouter(urls)
        self.client = client
        self.base = model
        self.weights: Weights | None = None
        self.max_model_len: int | None = None
        self.maybe_on_cpu = False
        self._dtypes: set[str | None] = set()
        self._probe_ids = probe_ids
        self._resume_paused = resume_paused
        self._locks = {server.url: asyncio.Lock() for server in self.router.servers}
        self._tried = dict.fromkeys(self._locks, -_PAUSE)
        self._swaps: dict[str, asyncio.Task[Exception | None]] = {}
        self._sampling = self._shared = self._others_load = False

    @property
    def dtype(self) -> Any:
        """The torch dtype in which all servers keep their weights; None if it is unknown."""
        names = {name for name in self._dtypes if name in ("bfloat16", "float16")}
        if len(names) != 1 or names != self._dtypes:
            return None
        import torch

        return getattr(torch, names.pop())

    def server_for(self, session_id: str) -> Server:
        """The session's server; if all are dead, the one that failed longest ago."""
        found = self.router.server_for(session_id)
        return found or min(self.router.servers, key=lambda server: self._tried[server.url])

    async def prepare(self, server: Server) -> Weights:
        """Make sure that a server answers, is suitable and has the current weights; return them.

        Raises Unreachable, Refused, WeightSyncError or EngineUnavailable.
        """
        if not self._is_ready(server):
            async with self._locks[server.url]:
                if not self._is_ready(server):
                    await self._ensure_ready(server)
        assert server.weights is not None
        return server.weights

    async def prepare_all(self) -> None:
        """Prepare all servers at once. Servers that do not answer count as dead.

        Raises the first error other than a missing answer; EngineUnavailable if none answers.
        """
        self._forget_failures()
        outcomes = await asyncio.gather(
            *(self.prepare(server) for server in self.router.servers), return_exceptions=True
        )
        for outcome in outcomes:
            if isinstance(outcome, Unreachable):
                logger.warning("vLLM server left out: %s", outcome)
            elif isinstance(outcome, Refused):
                raise EngineUnavailable(str(outcome)) from outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        if not self.router.alive:
            reasons = "; ".join(str(outcome) for outcome in outcomes)
            raise EngineUnavailable(f"no vLLM server answers: {reasons}")

    async def confirm(self, server: Server, weights: Weights) -> None:
        """Make sure that `weights` sampled an answer that has just come. Only where other processes
        replace full weights may they have changed meanwhile; then this raises Unreachable, so that
        the request is repeated. Raises as `prepare` too."""
        if self._watches and await self._held_by(server) != weights:
            raise Unreachable(server.url, "its weights were replaced while it answered")

    async def replace(self, weights: Weights, *, shared: bool) -> None:
        """Let all servers load other weights, and wait for those that answer; no request may be
        open. `shared`: other processes ask these servers too. Raises as `prepare_all`."""
        self.weights, self._sampling, self._shared = weights, False, shared
        await self.prepare_all()

    async def start_replacing(self, weights: Weights, *, shared: bool) -> None:
        """Let each server load other weights on its own, while requests are open.

        A request goes to a server only when that has the newest weights. An adapter is loaded
        beside those that open requests use; before all weights are replaced, the server's own open
        requests are answered. Servers that cannot load them are left out until the next call.
        Raises the reason if all servers failed to load the previous weights.
        """
        self._raise_if_all_failed()
        self.weights, self._sampling, self._shared = weights, True, shared
        self._forget_failures()
        for server in self.router.servers:
            self._start_swap(server)

    async def follow(
        self, weights: Weights, *, loaded: bool, lacking: Collection[str] = ()
    ) -> None:
        """Use weights that another process loads into the servers; `loaded`: they have them, but
        for the servers at the addresses `lacking`, which are left out until they have them too.

        Each server is asked which weights it has before it is used, because it may have been
        restarted since; one that was left out is tried again.
        """
        self.weights, self._sampling = weights, not loaded
        self._others_load = self._shared = True
        self._forget_failures()
        for server in self.router.servers:
            if loaded:
                server.weights = None
            if loaded and server.url in lacking:
                server.alive = False
            elif not server.alive:
                server.weights, server.checked = None, False
                self._start_swap(server)

    @property
    def lacking(self) -> list[str]:
        """The addresses of the servers that do not have the current weights."""
        return [server.url for server in self.router.servers if server.weights != self.weights]

    async def used_paths(self) -> set[str]:
        """The directories that servers may still read."""
        return {
            weights.path
            for server in self.router.servers
            for weights in (*server.adapters, *server.open, server.loading, self.weights)
            if weights is not None
        }

    def _start_swap(self, server: Server) -> None:
        found = self._swaps.get(server.url)
        if found is None or found.done():
            self._swaps[server.url] = asyncio.create_task(self._swap(server))

    async def _swap(self, server: Server) -> Exception | None:
        """Bring a server to the newest weights; the error if that fails."""
        while not self._is_ready(server):
            try:
                await self.prepare(server)
            except (HttpError, WeightSyncError, EngineUnavailable) as error:
                logger.warning("vLLM server left out: %s", error)
                return error
        return None

    def _raise_if_all_failed(self) -> None:
        done = [task.result() for task in self._swaps.values() if task.done()]
        errors = [error for error in done if error is not None]
        if errors and not self.router.alive:
            reasons = "; ".join(str(error) for error in errors)
            raise EngineUnavailable(f"no vLLM server took the last weights: {reasons}")

    def _forget_failures(self) -> None:
        self._tried = dict.fromkeys(self._locks, -_PAUSE)

    @property
    def _watches(self) -> bool:
        """Whether another process may replace full weights at any time."""
        full = self.weights is not None and self.weights.kind == "checkpoint"
        return full and self._others_load and self._sampling

    def _is_ready(self, server: Server) -> bool:
        if self._watches:
            return server.checked and server.weights is not None
        return server.checked and server.weights == self.weights

    async def _held_by(self, server: Server) -> Weights:
        """The weights that another process has loaded into a server."""
        assert self.weights is not None
        server.weights = tagged(await weight_tag(self.client, server.url), self.weights)
        if server.weights is None:
            raise WeightSyncError(f"{server.url} has weights of another run")
        return server.weights

    async def _is_said_to_hold(self, server: Server, weights: Weights) -> bool:
        """Whether a server has weights that another process has loaded. One that cannot tell has
        them, unless it was not known until now, or did not answer."""
        try:
            return await weight_tag(self.client, server.url) == weights.tag
        except WeightSyncError:
            return server.checked

    async def _ensure_ready(self, server: Server) -> None:
        left = _PAUSE - (time.monotonic() - self._tried[server.url])
        if not server.alive and left > 0:
            raise Unreachable(server.url, f"it is down; its log says why ({MEND})", wait=left)
        self._tried[server.url] = time.monotonic()
        try:
            await self._make_ready(server)
        except Exception:
            server.alive = False
            raise

    async def _make_ready(self, server: Server) -> None:
        started = time.monotonic()
        if not server.checked:
            await self._check(server)
        weights = server.loading = self.weights
        assert weights is not None
        try:
            weights = await self._loaded(server, weights)
        finally:
            server.loading = None
        server.weights, server.checked = weights, True
        server.alive, server.failures = True, 0
        server.load_seconds = time.monotonic() - started
        await self._unload_unused(server, weights)

    async def _loaded(self, server: Server, weights: Weights) -> Weights:
        """The weights that a server has after it was brought to `weights`."""
        if self._watches:
            return await self._held_by(server)
        if weights.kind == "checkpoint":
            if self._others_load and await self._is_said_to_hold(server, weights):
                return weights
            await server.drained(weights)
        await load_weights(
            self.client, server.url, weights, shared=self._shared, sampling=self._sampling
        )
        return weights

    async def _unload_unused(self, server: Server, weights: Weights) -> None:
        """Unload the adapters that no request uses, the newest aside. While requests are open the
        previous one stays, which other processes may still name. They unload none."""
        if weights.kind != "adapter":
            return
        held = [old for old in server.adapters if old != weights] + [weights]
        unused = [old for old in held[: -2 if self._sampling else -1] if old not in server.open]
        server.adapters = [old for old in held if old not in unused]
        if not self._others_load:
            for old in unused:
                await unload_adapter(self.client, server.url, old)

    async def _check(self, server: Server) -> None:
        """Check the server's model and its log-probability mode, when it is not paused."""
        models = await served_models(self.client, server.url)
        self.base = self.base or next(iter(models), None)
        if self.base is None or self.base not in models:
            known = ", ".join(models) or "none"
            raise EngineUnavailable(
                f"{server.url} serves no model {self.base!r}, but {known}; say under which name it "
                "serves the model (model=, on the command line --served-model)"
            )
        length = models[self.base].get("max_model_len")
        if length is not None:
            self.max_model_len = min(length, self.max_model_len or length)
        await await_running(self.client, server.url, resume=self._resume_paused)
        _, config = await asyncio.gather(
            check_logprobs(self.client, server.url, self.base, self._probe_ids),
            server_config(self.client, server.url),
        )
        self.maybe_on_cpu = self.maybe_on_cpu or device_of(config) in ("cpu", None)
        self._dtypes.add(dtype_of(config))
        if dies_of_chunks(config):
            logger.warning(
                "%s runs on a CPU and may split long prefills, which makes vLLM crash if requests "
                "have seeds, as ours do: %s",
                server.url,
                MEND,
            )
        server.weights = None
        server.adapters = [known for known in server.adapters if known.model in models]
        self.weights = self.weights or Weights(0, "base", self.base)
