"""Whose a server is: a training marks it as its own, renews the mark, and lets it go at its end.

The invariant: who finds another's mark on a server, or other weights than expected, uses no answer
of it. A mark that stays the same for a minute is of a training that was killed. Marks can be read
and written, not compared and swapped; so who marks a server reads the mark again a moment later,
and of two that come at once the last one has it (Fischer's algorithm).
"""

import asyncio
import logging
import math
import secrets
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from agentsgym.generation.http import HttpError, JsonClient, Unreachable
from agentsgym.generation.models import EngineUnavailable
from agentsgym.generation.vllm.weights import (
    UNKNOWN,
    ServerMark,
    Weights,
    WeightSyncError,
    read_mark,
    write_mark,
)

logger = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
"""A mark is renewed so often."""
WATCH_BEATS = 12
"""A mark that stays the same for so many beats is of a training that was killed."""
SETTLE_SECONDS = 0.5
"""Longer than it takes to write a mark after it was read."""
_TAKE_OVERS = 5
"""One that renews its mark at the same moment writes over ours, and sees ours the next time."""
_END_SECONDS = 10.0


class ServerHeld(EngineUnavailable):
    """Another training has a server; the message names both."""


@dataclass(slots=True)
class VLLMServer:
    """A server at `url` (without a trailing slash).

    `checked`: since its last failure it was asked what it is, and found to suit us; a server that
    fails that is not `alive` until it is tried again, last at `tried_at` (monotonic seconds).
    `weights` are those that new requests ask for, None where unknown, and `mark` is the one that
    went with them, None if it takes none.
    """

    url: str
    alive: bool = True
    checked: bool = False
    weights: Weights | None = None
    tried_at: float = -math.inf
    mark: ServerMark | None = None
    next_look: "asyncio.Task[ServerMark | None] | None" = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)


class Holder:
    """Marks servers for the training `name` (None: a new one); `take_over` ones that others hold
    too. `lost` says that another training has one of ours."""

    def __init__(self, client: JsonClient, name: str | None, take_over: bool) -> None:
        self.name = name or secrets.token_hex(8)
        self.lost: ServerHeld | None = None
        self._client = client
        self._take_over = take_over
        self._kept: dict[str, tuple[VLLMServer, asyncio.Task[None]]] = {}

    async def look(self, server: VLLMServer) -> ServerMark | None:
        """A server's mark after this call. All who wait for a look to begin get the same one."""
        server.next_look = server.next_look or asyncio.create_task(self._look(server))
        return await asyncio.shield(server.next_look)

    async def _look(self, server: VLLMServer) -> ServerMark | None:
        async with server.looking:
            server.next_look = None
            return await read_mark(self._client, server.url)

    def is_foreign(self, mark: ServerMark | None) -> bool:
        """Whether a mark is another training's."""
        return mark is not None and mark.holder not in ("", self.name)

    def refuse(self, server: VLLMServer, mark: ServerMark | None) -> NoReturn:
        """Raise ServerHeld."""
        self.lost = ServerHeld(
            f"{server.url} is held by {mark}: wait until that has ended, name another server in "
            "engine.urls, or set engine.take_over=true, which ends that training"
        )
        raise self.lost

    async def find(self, server: VLLMServer) -> None:
        """Read a server's mark. Raises ServerHeld if it is of another training that still runs, or
        that took the server from this one."""
        mark = await read_mark(self._client, server.url)
        if self.is_foreign(mark) and server.mark is not None and server.mark.holder == self.name:
            self.refuse(server, mark)
        if self.is_foreign(mark) and not self._take_over and mark != server.mark:
            logger.warning("%s is held by %s; looking whether that still runs", server.url, mark)
            for _ in range(WATCH_BEATS):
                await asyncio.sleep(BEAT_SECONDS)
                before, mark = mark, await read_mark(self._client, server.url)
                if mark != before and self.is_foreign(mark):
                    self.refuse(server, mark)
        server.mark = mark

    async def claim(self, server: VLLMServer, path: str) -> None:
        """Mark a server, unless it takes no marks, for a training that writes to the folder above
        that of `path`, and keep the mark fresh. Raises ServerHeld."""
        await self.find(server)
        if server.mark is not None and server.mark.holder != self.name:
            where = f"{socket.gethostname()}:{Path(path).parent.parent}"
            ours = server.mark.model_copy(update={"holder": self.name, "where": where, "beat": 0})
            for _ in range(_TAKE_OVERS if self._take_over else 1):
                await write_mark(self._client, server.url, ours)
                await asyncio.sleep(SETTLE_SECONDS)
                server.mark = await read_mark(self._client, server.url)
                if not self.is_foreign(server.mark):
                    break
            else:
                self.refuse(server, server.mark)
        if server.mark is not None and server.url not in self._kept:
            self._kept[server.url] = server, asyncio.create_task(self._keep(server))

    async def renew(self, server: VLLMServer, **changes: Any) -> None:
        """Write our mark anew. Raises ServerHeld, Unreachable if the server was started again, and
        WeightSyncError."""
        async with server.looking:
            mark = await read_mark(self._client, server.url)
            if self.is_foreign(mark):
                self.refuse(server, mark)
            if mark is None or not mark.holder:
                raise Unreachable(server.url, "it was started again, or taken meanwhile")
            asked = time.monotonic()
            server.mark = mark.model_copy(update={"beat": mark.beat + 1, **changes})
            await write_mark(self._client, server.url, server.mark)
            if time.monotonic() - asked > BEAT_SECONDS * WATCH_BEATS / 2:
                # We were stopped meanwhile, and may have written over the mark of another.
                server.mark = server.mark.model_copy(update={"path": UNKNOWN})
                await write_mark(self._client, server.url, server.mark)

    async def _keep(self, server: VLLMServer) -> None:
        while self.lost is None:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(HttpError, WeightSyncError, ServerHeld):
                async with server.lock:
                    await self.renew(server)

    async def let_go(self) -> None:
        """Take our marks away; the servers keep their weights."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                renewals = (self.renew(server, holder="") for server, _ in self._kept.values())
                await asyncio.gather(*renewals, return_exceptions=True)
