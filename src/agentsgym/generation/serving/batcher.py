"""The requests of many connections, sampled together by one engine in a thread of its own.

The invariant: whoever waits gets a result or an error, also if the engine fails. Weights change
only while no request is open, so each answer is sampled by one version of them.
"""

import asyncio
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from agentsgym.generation.serving.calls import CallRefused
from agentsgym.types import Engine, GenerationRequest, GenerationResult
from agentsgym.types.protocols import records_supports

T = TypeVar("T")
_JOIN_SECONDS = 5.0


class EngineDied(CallRefused):
    """The thread that samples has ended; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 500, "server_error")


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request for an answer of `model`, and who waits for it."""

    request: GenerationRequest
    model: str
    future: Future[GenerationResult]


class Batcher:
    """Samples with `engine`. Its coroutines may be called in any event loop.

    A session keeps its cache in the engine until that needs the room. `select` prepares the engine
    for a model's name when the next request is for another one than the last. Requests begin in
    their order, so one for another model holds back those that come after it until all that are
    open are answered.
    """

    def __init__(self, engine: Engine, select: Callable[[str], None] = lambda model: None) -> None:
        self._engine = engine
        self._select = select
        self.records_supports = records_supports(engine)
        """Whether the engine can hold an answer to a form."""
        self.paused = False
        """Whether new requests wait; see `pause`."""
        self.failure: BaseException | None = None
        """What ended the thread."""
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        # The rest belongs to the thread, which carries out what comes in.
        self._model: str | None = None
        self._numbers = itertools.count()
        self._waiting: deque[_Waiting] = deque()
        self._actions: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._open: dict[str, _Waiting] = {}
        self._interrupt: Callable[[], object] = getattr(engine, "interrupt", lambda: None)
        self._thread = threading.Thread(target=self._run, name="agentsgym-batcher", daemon=True)
        self._thread.start()

    async def ask(self, request: GenerationRequest, model: str = "") -> GenerationResult:
        """The answer; a request that the engine refuses comes back with its error. Whoever stops
        waiting takes the request back. A session with an open request gets another name.

        Raises EngineDied, and what `select` and the engine's `submit` raise.
        """
        waiting = _Waiting(request, model, Future())
        try:
            return await self._outcome(partial(self._waiting.append, waiting), waiting.future)
        except asyncio.CancelledError:
            self._tell(partial(self._drop, waiting))
            raise

    async def between(self, call: Callable[[], T]) -> T:
        """What `call` returns or raises, in the thread, when all open requests were answered;
        others wait for it."""
        future: Future[T] = Future()
        return await self._outcome(partial(self._actions.append, (call, future)), future)

    async def pause(self) -> None:
        """Hold new requests back until `resume`; returns when all open ones were answered."""
        self.paused = True
        await self.between(lambda: None)

    def resume(self) -> None:
        """End a pause."""
        self.paused = False
        self._tell(lambda: None)

    def check(self) -> None:
        """Raise EngineDied if the thread has ended."""
        if self.failure is not None:
            raise self._died()

    def close(self) -> None:
        """End the thread, with an error for all who wait."""
        self.failure = self.failure or EngineDied("the server ends")
        self._tell(lambda: None)
        self._thread.join(_JOIN_SECONDS)

    async def _outcome(self, what: Callable[[], object], future: Future[T]) -> T:
        self._tell(what)
        self.check()  # from now on the thread answers, also if it ends
        return await asyncio.wrap_future(future)

    def _tell(self, what: Callable[[], object]) -> None:
        self._inbox.put(what)
        self._interrupt()

    def _died(self) -> EngineDied:
        error = self.failure
        if isinstance(error, EngineDied):
            return error
        return EngineDied(f"the engine failed: {type(error).__name__}: {error}")

    # -- in the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._next():
                if self._open:
                    for result in self._engine.poll():
                        _settle(self._open.pop(result.session_id).future, result)
        except BaseException as error:  # whatever it was, nobody may wait forever
            self.failure = self.failure or error
        self._receive()
        waiting = [one.future for one in (*self._open.values(), *self._waiting)]
        for future in (*waiting, *(future for _, future in self._actions)):
            _settle(future, error=self._died())

    def _next(self) -> bool:
        """Wait for something to do, and begin it; False at the end."""
        self._receive()
        if self.failure is not None:
            return False
        if self._actions and not self._open:
            call, future = self._actions.popleft()
            try:
                _settle(future, call())
            except Exception as error:  # it belongs to who waits for the action
                _settle(future, error=error)
            self._model = None  # it may have changed the weights
        elif not self._actions:
            for one in self._admissible():
                self._begin(one)
        return True

    def _receive(self) -> None:
        """Carry out what came in; wait for it if there is nothing else to do."""
        while True:
            try:
                self._inbox.get(block=self._is_idle())()
            except queue.Empty:
                return

    def _is_idle(self) -> bool:
        waiting = self._waiting and not self.paused
        return not (waiting or self._open or self._actions or self.failure)

    def _admissible(self) -> list[_Waiting]:
        """The requests that may begin now: those for the model that is being sampled from, or else
        for the next one."""
        if self.paused or not self._waiting:
            return []
        model = self._model if self._open else self._waiting[0].model
        chosen = list(itertools.takewhile(lambda one: one.model == model, self._waiting))
        for _ in chosen:
            self._waiting.popleft()
        return chosen

    def _begin(self, waiting: _Waiting) -> None:
        name = waiting.request.session_id
        if not name or name in self._open:
            name = f"{name}#{next(self._numbers)}"
            waiting.request = replace(waiting.request, session_id=name)
        try:
            if waiting.model != self._model:
                self._model = None
                self._select(waiting.model)
                self._model = waiting.model
            self._engine.submit([waiting.request])
        except Exception as error:  # a fault of one request must not end the others
            _settle(waiting.future, error=error)
        else:
            self._open[name] = waiting

    def _drop(self, waiting: _Waiting) -> None:
        """Forget a request for which nobody waits any more, unless it was answered meanwhile."""
        name = waiting.request.session_id
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        elif self._open.get(name) is waiting and self.failure is None:
            self._engine.release([name])
            del self._open[name]


def _settle(
    future: Future[Any], result: object = None, *, error: BaseException | None = None
) -> None:
    """Set the result or the error, unless nobody waits for it any more."""
    if not future.set_running_or_notify_cancel():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
