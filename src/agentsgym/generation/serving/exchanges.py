"""Calls and their answers: a retry gets the answer of the call that it repeats.

The invariant: an answer that reached no client is given to the next identical request of the same
key, once; identical requests whose connections live are calls of their own. A request that names an
`Idempotency-Key` gets the answer of the first that named it. Calls that failed are not kept.
"""

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from agentsgym.generation.serving.calls import CallRefused, ModelAnswer

_PER_KEY = 64  # answers that are kept for a key, and as many under names; the oldest go
_KEYS = 4096  # a backend that takes any key gets no more


@dataclass(frozen=True, eq=False)
class CallTask:
    """A call of the backend: the request's digest and name, the task that answers, and what its
    replies have in common."""

    key: str
    digest: bytes
    name: str | None
    task: asyncio.Task[ModelAnswer]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))


@dataclass(frozen=True)
class _Kept:
    named: OrderedDict[str, CallTask] = field(default_factory=OrderedDict)
    left: list[CallTask] = field(default_factory=list)


class Exchanges:
    """The calls of a server. Belongs to its event loop; `forget` may be called from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._running: set[asyncio.Task[ModelAnswer]] = set()

    def begin(
        self,
        key: str,
        digest: bytes,
        name: str | None,
        answer: Callable[[], Coroutine[Any, Any, ModelAnswer]],
    ) -> CallTask:
        """The call that a request repeats, or a new one. `name` is its idempotency key. Raises
        CallRefused if another request has that name."""
        kept = self._of(key)
        if name is not None and (known := kept.named.get(name)):
            if known.digest != digest:
                raise CallRefused("this idempotency key belongs to another request", status=422)
            return known
        for exchange in kept.left:
            if name is None and exchange.digest == digest:
                kept.left.remove(exchange)
                return exchange
        made = CallTask(key, digest, name, asyncio.get_running_loop().create_task(answer()))
        self._running.add(made.task)
        made.task.add_done_callback(lambda _: self._ended(made))
        if name is not None:
            kept.named[name] = made
            if len(kept.named) > _PER_KEY:
                kept.named.popitem(last=False)
        return made

    def left(self, exchange: CallTask) -> None:
        """The client of this exchange has gone before it got the answer."""
        kept = self._kept.get(exchange.key)  # none if the key was forgotten meanwhile
        if kept is not None and exchange.name is None and not _failed(exchange.task):
            kept.left.append(exchange)
            del kept.left[:-_PER_KEY]

    def forget(self, key: str) -> None:
        """Drop what is kept for a key; calls that run go on."""
        self._kept.pop(key, None)

    def _of(self, key: str) -> _Kept:
        kept = self._kept.setdefault(key, _Kept())
        if len(self._kept) > _KEYS:
            self._kept.popitem(last=False)
        return kept

    def _ended(self, exchange: CallTask) -> None:
        self._running.discard(exchange.task)
        failed = _failed(exchange.task)  # always read: asyncio logs errors that nobody read
        kept = self._kept.get(exchange.key)
        if kept is None or not failed:
            return
        if exchange in kept.left:
            kept.left.remove(exchange)
        if exchange.name is not None and kept.named.get(exchange.name) is exchange:
            del kept.named[exchange.name]


def _failed(task: asyncio.Task[ModelAnswer]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
