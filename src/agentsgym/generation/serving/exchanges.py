"""Calls and their answers: a request that a client repeats gets the answer of its first try.

Clients say that they repeat one: those of OpenAI and Anthropic, and what is built on them, count
the tries in `X-Stainless-Retry-Count`; others name a request in `Idempotency-Key`. A repetition has
the same body. Calls that failed are made again.
"""

import asyncio
import hashlib
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentsgym.types import Answer

_PER_KEY = 64  # answers that are kept for a key; the oldest go
_KEYS = 4096  # a backend that takes any key gets no more


@dataclass(frozen=True, eq=False)
class CallTask:
    """A call of the backend: the task that answers, and what its replies have in common."""

    task: asyncio.Task[Answer]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created: int = field(default_factory=lambda: int(time.time()))


class Exchanges:
    """The calls of a server. Belongs to its event loop; `forget` may be called from any thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, OrderedDict[str, CallTask]] = OrderedDict()

    def begin(
        self,
        key: str,
        headers: Mapping[str, str],
        body: bytes,
        answer: Callable[[], Coroutine[Any, Any, Answer]],
    ) -> CallTask:
        """The call that a request of the client with this `key` repeats, or a new one. Of several
        with the same body it repeats the last."""
        named = headers.get("idempotency-key", "")
        name = f"{named} {hashlib.sha256(body).hexdigest()}"
        kept = self._kept.setdefault(key, OrderedDict())
        if len(self._kept) > _KEYS:
            self._kept.popitem(last=False)
        if name in kept and (named or headers.get("x-stainless-retry-count", "0") != "0"):
            return kept[name]
        made = CallTask(asyncio.get_running_loop().create_task(answer()))
        kept[name] = made
        kept.move_to_end(name)
        if len(kept) > _PER_KEY:
            kept.popitem(last=False)

        def drop_failed(task: asyncio.Task[Answer]) -> None:
            # The error is read in any case: asyncio logs those that nobody read.
            if (task.cancelled() or task.exception()) and kept.get(name) is made:
                del kept[name]

        made.task.add_done_callback(drop_failed)
        return made

    def forget(self, key: str) -> None:
        """Drop what is kept for a key; calls that run go on."""
        self._kept.pop(key, None)
