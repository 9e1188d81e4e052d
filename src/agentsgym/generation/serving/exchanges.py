"""Calls and their answers: a retry gets the answer of the call that it repeats.

The invariant: an answer that reached no client is given to the next identical request of the same
key, once; identical requests whose connections live are calls of their own. Calls that failed are
not kept.
"""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from agentsgym.generation.serving.calls import ModelAnswer

_PER_KEY = 64  # answers that are kept for a key; the oldest go
_KEYS = 4096  # a backend that takes any key gets no more


@dataclass(frozen=True, eq=False)
class CallTask:
    """A call of the backend: the request's digest, the task that answers, and what its replies have
    in common."""

    key: str
    digest: bytes
    task: asyncio.Task[ModelAnswer]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))


class Exchanges:
    """The calls of a server. Belongs to its event loop; `forget` may be called from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, list[CallTask]] = OrderedDict()
        self._running: set[asyncio.Task[ModelAnswer]] = set()

    def begin(
        self, key: str, digest: bytes, answer: Callable[[], Coroutine[Any, Any, ModelAnswer]]
    ) -> CallTask:
        """The call that a request repeats, or a new one."""
        for exchange in self._kept.get(key, ()):
            if exchange.digest == digest:
                self._kept[key].remove(exchange)
                return exchange
        self._kept.setdefault(key, [])
        if len(self._kept) > _KEYS:
            self._kept.popitem(last=False)
        made = CallTask(key, digest, asyncio.get_running_loop().create_task(answer()))
        self._running.add(made.task)
        made.task.add_done_callback(lambda _: self._ended(made))
        return made

    def left(self, exchange: CallTask) -> None:
        """The client of this exchange has gone before it got the answer."""
        kept = self._kept.get(exchange.key)  # none if the key was forgotten meanwhile
        if kept is not None and not _failed(exchange.task):
            kept.append(exchange)
            del kept[:-_PER_KEY]

    def forget(self, key: str) -> None:
        """Drop what is kept for a key; calls that run go on."""
        self._kept.pop(key, None)

    def _ended(self, exchange: CallTask) -> None:
        self._running.discard(exchange.task)
        failed = _failed(exchange.task)  # always read: asyncio logs errors that nobody read
        kept = self._kept.get(exchange.key, [])
        if failed and exchange in kept:
            kept.remove(exchange)


def _failed(task: asyncio.Task[ModelAnswer]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
