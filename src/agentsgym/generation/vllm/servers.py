"""Assigns sessions to servers: balanced, sticky, and without dead servers."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

from agentsgym.generation.vllm.weights import Weights

# A server counts as dead after two incidents in a row without an answer, or eight with a "try
# later" answer.
_DEAD_AT = 8
_NO_ANSWER = 4
_NOT_NOW = 1


@dataclass(slots=True)
class Server:
    """A server at `url` (without a trailing slash).

    `checked`: since its last failure it was asked what it is, and found to suit us. `weights` are
    those that new requests ask for, None where unknown, `loading` those that it reads right now.
    `adapters` are loaded, the newest last. `open` counts its open requests by the weights that
    sample them, `load_seconds` is how long the last weights took. `failures` weighs what went wrong
    since its last good answer, the last of it at `failed_at` (monotonic seconds).
    """

    url: str
    alive: bool = True
    checked: bool = False
    weights: Weights | None = None
    failures: int = 0
    failed_at: float = -math.inf
    load_seconds: float = 0.0
    loading: Weights | None = None
    adapters: list[Weights] = field(default_factory=list)
    open: Counter[Weights] = field(default_factory=Counter)
    _left: asyncio.Event = field(default_factory=asyncio.Event)

    @contextmanager
    def using(self, weights: Weights) -> Iterator[None]:
        """A request is open that `weights` sample."""
        self.open[weights] += 1
        try:
            yield
        finally:
            self.open[weights] -= 1
            if not self.open[weights]:
                del self.open[weights]
                self._left.set()

    async def drained(self, weights: Weights) -> None:
        """Wait until no open request is sampled from other weights than these."""
        while set(self.open) - {weights}:
            self._left.clear()
            await self._left.wait()

    def failed(self, sent_at: float, *, answered: bool) -> None:
        """A request sent at `sent_at` (monotonic seconds) failed; `answered` says whether the
        server answered with an error. If not, it may have been restarted, so its weights are
        unknown. Requests that were open at the last failure belong to the same incident."""
        self.checked = self.checked and answered
        if sent_at <= self.failed_at:
            return
        self.failed_at = time.monotonic()
        self.failures += _NOT_NOW if answered else _NO_ANSWER
        if self.failures >= _DEAD_AT:
            self.checked = self.alive = False

    def answered(self) -> None:
        """A request got a good answer."""
        self.failures = 0


class SessionRouter:
    """The servers of an engine. A session stays with its server, whose prefix cache has its
    history, while the server is alive; a new session goes to the server with the fewest.

    A thread asks for servers, and another one may forget sessions at the same time."""

    def __init__(self, urls: Sequence[str]) -> None:
        if not urls:
            raise ValueError("at least one server's URL is needed")
        self.servers = [Server(url.rstrip("/")) for url in dict.fromkeys(urls)]
        self._home: dict[str, Server] = {}
        self._sessions = dict.fromkeys((server.url for server in self.servers), 0)
        self._lock = Lock()
        self.moved = 0
        """How many times a session had to leave a dead server."""

    @property
    def alive(self) -> list[Server]:
        """Servers that may get requests."""
        return [server for server in self.servers if server.alive]

    def server_for(self, session_id: str) -> Server | None:
        """The session's server; None if all are dead."""
        home = self._home.get(session_id)
        if home is not None and home.alive:
            return home
        alive = self.alive
        if not alive:
            return None
        self.moved += home is not None
        with self._lock:
            self._leave(session_id)
            best = min(alive, key=lambda server: self._sessions[server.url])
            self._home[session_id] = best
            self._sessions[best.url] += 1
        return best

    def forget(self, session_id: str) -> None:
        """Remove a session that has ended."""
        with self._lock:
            self._leave(session_id)

    def _leave(self, session_id: str) -> None:
        home = self._home.pop(session_id, None)
        if home is not None:
            self._sessions[home.url] -= 1
