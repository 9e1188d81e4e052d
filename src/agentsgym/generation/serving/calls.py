"""What stands behind the endpoint: the protocol of a backend, its refusals, what calls demand of an
answer, calls that a client repeats, and work beside the event loop."""

import asyncio
import hashlib
import json
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from agentsgym.types import Answer, ModelCall
from agentsgym.types.requests import Form


class CallRefused(Exception):
    """A call gets an error with this HTTP `status`; the message says what was wrong. `kind` is the
    error's type, `code` its code and `param` the part of the body, in the words of OpenAI's API."""

    def __init__(
        self,
        message: str,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class Backend(Protocol):
    """What answers the calls. `key` is the client's bearer key, "" without one. Each method raises
    CallRefused, for a wrong key with the status 401."""

    async def models(self, key: str) -> Sequence[str]:
        """The names of the models; any other name of a call is refused, unless there are none."""
        ...

    async def answer(self, key: str, call: ModelCall) -> Answer:
        """Answer a call. If the client disconnects, the coroutine goes on and its answer waits for
        the client's next try."""
        ...

    async def reward(self, key: str, session: str, value: float) -> None:
        """Reward the last answered call of the key's session. `session` is its id or its key, from
        the path; a client without a bearer key has the latter only, then both are equal."""
        ...


# -- what calls demand of an answer ----------------------------------------------------------------


_PLACES = ("response_format", "text.format", "output_config.format", "output_format")


def demanded_call(tools: Sequence[str], choice: Any) -> Form | None:
    """The call that a `tool_choice` demands of these tools."""
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if not tools or kind not in ("required", "any", "function", "tool"):
        return None
    inner = choice.get("function", choice) if isinstance(choice, dict) else None
    name = inner.get("name") if isinstance(inner, dict) else None
    if name is not None and name not in tools:
        why = f"tool_choice names {str(name)[:100]!r}, which is none of the tools"
        raise CallRefused(why, param="tool_choice")
    return "call", name or ""


def demanded_format(body: Any) -> Form | None:
    """The format that a body demands: a JSON schema where the APIs have it or, as in vLLM, a
    regular expression. Raises CallRefused."""
    regex = _inner(body.structured_outputs, "regex")
    if isinstance(regex, str):
        return "regex", regex
    for place in _PLACES:
        key, _, inner = place.partition(".")
        wanted = getattr(body, key)
        wanted = _inner(wanted, inner) if inner else wanted
        if wanted and wanted != {"type": "text"}:
            return "json", json.dumps(_schema(place, wanted))
    return None


def _inner(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _schema(place: str, wanted: Any) -> Any:
    """The JSON schema of a format."""
    kind = _inner(wanted, "type")
    if kind == "json_object":
        return {"type": "object"}
    schema = _inner(wanted.get("json_schema", wanted), "schema") if kind == "json_schema" else None
    if not isinstance(schema, dict):
        why = f"{place} must be text, json_object, or json_schema with a schema that is an object"
        raise CallRefused(why, param=place)
    return schema


# -- repeated calls --------------------------------------------------------------------------------
#
# Clients say that they repeat one: those of OpenAI and Anthropic, and what is built on them, count
# the tries in `X-Stainless-Retry-Count`; others name a request in `Idempotency-Key`. A repetition
# has the same body. Calls that failed are made again.


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


# -- beside the event loop -------------------------------------------------------------------------


T = TypeVar("T")
_LARGE = 2**18  # bytes or characters
_LARGE_ONES = ThreadPoolExecutor(1, "agentsgym-large-bodies")


async def beside_the_loop(size: int, work: Callable[[], T]) -> T:
    """What `work`, on a body of this size, returns or raises in a thread."""
    threads = _LARGE_ONES if size > _LARGE else None
    return await asyncio.get_running_loop().run_in_executor(threads, work)
