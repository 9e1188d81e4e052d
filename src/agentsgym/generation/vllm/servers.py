"""Several vLLM servers: which one a session asks, and that it has the right model and weights.

The invariant: an answer is sampled by the weights that `prepare` returned before it was asked for,
or `confirm` raises. All weights of a server are replaced while it is paused; an adapter has a name
of its own in each version, so it needs no pause.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from operator import attrgetter

from agentsgym.generation.http import HttpError, JsonClient, Refused, Unreachable, printable
from agentsgym.generation.models import EngineUnavailable
from agentsgym.generation.vllm.holding import Holder, VLLMServer
from agentsgym.generation.vllm.protocol import check_sampling, served_models
from agentsgym.generation.vllm.weights import (
    UNKNOWN,
    ServerMark,
    Weights,
    WeightSyncError,
    command,
    load_adapter,
    load_checkpoint,
    paused,
    read_mark,
)

logger = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5  # between two attempts to bring a dead server back


class ServerPool:
    """vLLM servers that serve the same model; all coroutines must run in one event loop. A session
    stays with its server, whose prefix cache has its history, while the server is alive.

    `base` is the base model's served name (None: the first server's first). `holder` is the
    training that asks. `probe_ids` are token ids for requests that find out how a server samples.
    """

    def __init__(
        self,
        urls: Sequence[str],
        client: JsonClient,
        holder: Holder,
        *,
        model: str | None,
        probe_ids: Sequence[int],
    ) -> None:
        if not urls:
            raise ValueError("at least one server's URL is needed")
        self.servers = [VLLMServer(url.rstrip("/")) for url in dict.fromkeys(urls)]
        self.client = client
        self.holder = holder
        self.base = model
        self.weights: Weights | None = None
        self.max_model_len: int | None = None
        self.records_supports = True
        """Whether all servers say what tokens were chosen from, as those of serve-model do."""
        self._probe_ids = probe_ids
        self._loads = False
        self._follows = False  # another process loads the weights, at any time
        self._read: tuple[int, str] | None = None  # what all servers have that we give no weights

    @property
    def alive(self) -> list[VLLMServer]:
        """Servers that may get requests."""
        return [server for server in self.servers if server.alive]

    def server_for(self, session_id: str) -> VLLMServer:
        """The session's server: of those that are alive the one to which its id gives the highest
        rank, so only a dead server's sessions move. If all are dead, the one that was tried longest
        ago."""

        def rank(server: VLLMServer) -> bytes:
            return hashlib.blake2b(f"{session_id} {server.url}".encode()).digest()

        return max(self.alive or [min(self.servers, key=attrgetter("tried_at"))], key=rank)

    async def prepare(self, server: VLLMServer) -> Weights:
        """Make sure that a server answers, is suitable and has the current weights; return them.

        Raises Unreachable, Refused, WeightSyncError or EngineUnavailable.
        """
        if not self._is_ready(server):
            async with server.lock:
                if not self._is_ready(server):
                    await self._ensure_ready(server)
        assert server.weights is not None
        return server.weights

    async def prepare_all(self) -> None:
        """Prepare all servers at once. Servers that do not answer are left out until next time.

        Raises the first error other than a missing answer; EngineUnavailable if none answers.
        """
        self._try_all_again()
        outcomes = await asyncio.gather(*map(self.prepare, self.servers), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Unreachable):
                logger.warning("vLLM server left out: %s", outcome)
            elif isinstance(outcome, Refused):
                raise EngineUnavailable(str(outcome)) from outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        if not self.alive:
            reasons = "; ".join(str(outcome) for outcome in outcomes)
            raise EngineUnavailable(f"no vLLM server answers: {reasons}")

    async def confirm(self, server: VLLMServer, weights: Weights) -> None:
        """Make sure that `weights` sampled an answer that has just come. Raises Unreachable if
        others of this training may have, so that the request is repeated, ServerHeld if those of
        another, and as `prepare`."""
        before = server.mark
        if before is None:  # nobody can replace its weights
            return
        mark = await self.holder.look(server) or ServerMark()
        if self.holder.is_foreign(mark) and mark.holder != before.holder:
            self.holder.refuse(server, mark)
        if weights.kind == "base":
            self._read = self._read or before.content
            if mark.content == before.content == self._read:
                return
            raise EngineUnavailable(f"{server.url} got other weights while it was asked")
        ours = mark.holder == self.holder.name
        if ours and weights.content in (None, mark.content):
            return
        server.weights, server.checked = None, ours
        raise Unreachable(server.url, "its weights were replaced while it answered")

    async def load(self, weights: Weights) -> None:
        """Let all servers load other weights, and wait for those that answer. Open requests, also
        those of other processes, are answered with their old weights. Raises as `prepare_all`, and
        ServerHeld if another training has a server."""
        self.weights, self._loads = replace(weights, holder=self.holder.name), True
        await self.prepare_all()

    async def follow(self, weights: Weights) -> None:
        """Use weights that another process has loaded into the servers, or may load at any time.
        Each server is asked which weights it has before it is used."""
        self.weights, self._follows = weights, True
        self.holder.name = weights.holder
        self._try_all_again()
        for server in self.servers:
            server.weights = None

    def _try_all_again(self) -> None:
        """Let servers that were left out get requests again."""
        for server in self.servers:
            server.alive = True

    def _is_ready(self, server: VLLMServer) -> bool:
        if self._asks_for_weights:
            return server.checked and server.weights is not None
        return server.checked and server.weights == self.weights

    @property
    def _asks_for_weights(self) -> bool:
        """Whether another process loads full weights, so that only the servers know which."""
        return self._follows and self.weights is not None and self.weights.kind == "checkpoint"

    async def _ensure_ready(self, server: VLLMServer) -> None:
        left = _RETRY_SECONDS - (time.monotonic() - server.tried_at)
        if not server.alive and left > 0:
            raise Unreachable(server.url, "it is down; its log says why", wait=left)
        server.tried_at = time.monotonic()
        try:
            if not server.checked:
                await self._check(server)
            await self._bring(server)
        except BaseException:
            server.alive = False
            raise
        server.checked = server.alive = True

    async def _bring(self, server: VLLMServer) -> None:
        """Give a server the current weights, or find out which another process has given it."""
        weights = self.weights
        assert weights is not None
        if self._asks_for_weights:
            weights = await self._held_by(server)
        elif self._loads:
            await self.holder.claim(server, weights.path)
        if weights.kind == "adapter":
            if server.mark is not None and server.mark.path:
                raise WeightSyncError(
                    f"{server.url} has the weights of {printable(server.mark.path)}, not those of "
                    "the model that the adapter belongs to; start it again"
                )
            await load_adapter(self.client, server.url, weights)
        elif self._loads and (server.mark is None or server.mark.content != weights.content):
            await self._replace(server, weights)
        server.weights = weights

    async def _replace(self, server: VLLMServer, weights: Weights) -> None:
        """Load full weights into a server."""
        async with paused(self.client, server.url):
            server.weights = None  # an answer that comes from now on may be of either
            await self.holder.renew(server, path=UNKNOWN)
            await load_checkpoint(self.client, server.url, weights)
            await self.holder.renew(server, version=weights.version, path=weights.path)

    async def _held_by(self, server: VLLMServer) -> Weights:
        """The weights that another process has loaded into a server. Raises Unreachable if it has
        none of this training, and ServerHeld if it has those of another."""
        assert self.weights is not None
        server.mark = mark = await read_mark(self.client, server.url)
        if self.holder.is_foreign(mark):
            self.holder.refuse(server, mark)
        if mark is None or not mark.holder or mark.path in ("", UNKNOWN):
            raise Unreachable(server.url, "it has not the weights of this training")
        return replace(self.weights, version=mark.version, path=mark.path)

    async def _check(self, server: VLLMServer) -> None:
        """Check the server's model and its log-probability mode."""
        models = await served_models(self.client, server.url)
        self.base = self.base or next(iter(models), None)
        if self.base is None or self.base not in models:
            known = ", ".join(models) or "none"
            raise EngineUnavailable(
                f"{server.url} serves no model {self.base!r}, but {known}; say under which name it "
                "serves the model (engine.served_model)"
            )
        if models[self.base].get("records_supports") is not True:
            self.records_supports = False
        length = models[self.base].get("max_model_len")
        if length is not None:
            self.max_model_len = min(length, self.max_model_len or length)
        await self.holder.find(server)
        if self._loads or (server.mark or ServerMark()).holder != self.holder.name:
            # A learner that was killed within a reload has left it paused.
            with suppress(HttpError, WeightSyncError):  # outside development mode it cannot be
                await command(self.client, server.url, "resume")
        await check_sampling(self.client, server.url, self.base, self._probe_ids)
        self.weights = self.weights or Weights(0, "base", self.base)
