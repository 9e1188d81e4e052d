"""A coroutine of another framework that calls a model, played as one of our sessions.

The other framework owns its loop: it asks a model and goes on with the answer. An environment of
ours asks the agent instead: `_initialize_episode` starts an Exchange and waits for its first
messages, `_step_episode` says the action and waits for the next ones, and `_end_episode` closes it.
The coroutine runs in a `LoopThread`, one for any number of sessions.
"""

import asyncio
import queue
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from agentsgym.generation.loop_thread import LoopDied, LoopThread
from agentsgym.rollout.threads import check_abandoned

T = TypeVar("T")

_WATCH_SECONDS = 0.2

__all__ = ["Exchange", "ExchangeEnded", "ExchangeError", "LoopDied", "LoopThread"]


class ExchangeEnded(Exception):
    """Raised in a coroutine that asks: no more answers will come."""


class ExchangeError(RuntimeError):
    """The coroutine failed, or did not ask in time. `__cause__` is its exception."""


class Exchange(Generic[T]):
    """One session's conversation with a coroutine.

    `ask` belongs to the coroutine, all else to the session. Nothing here waits for ever: `wait`
    raises as soon as the loop's thread is dead, the coroutine has raised an exception (SystemExit
    too), `timeout` seconds have passed, or the run that the session belongs to has ended.

    Args:
        loop: where the coroutine runs.
        play: gets this object and returns the coroutine.
        timeout: seconds that the coroutine may take between two questions.

    Raises LoopDied if the loop's thread is dead.
    """

    def __init__(
        self,
        loop: LoopThread,
        play: Callable[["Exchange[T]"], Awaitable[T]],
        *,
        timeout: float = 600.0,
    ) -> None:
        self._loop = loop
        self._timeout = timeout
        # Messages to answer; None at the end, when there is a result or an error.
        self._requests: queue.SimpleQueue[list[Mapping[str, Any]] | None] = queue.SimpleQueue()
        self._question: asyncio.Future[str] | None = None
        self._ended = False
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._future = loop.start(self._play(play))

    # -- for the coroutine, in its loop ---------------------------------------------------------

    async def ask(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The agent's answer to a conversation. Raises ExchangeEnded if there will be none, and
        RuntimeError while another question is open."""
        if self._ended:
            raise ExchangeEnded("the session has ended")
        if self._question is not None:
            raise RuntimeError("one session can only answer one question at a time")
        self._question = asyncio.get_running_loop().create_future()
        self._requests.put([dict(message) for message in messages])
        try:
            return await self._question
        finally:
            self._question = None

    # -- for the session, in any other thread ---------------------------------------------------

    def wait(self) -> list[Mapping[str, Any]] | None:
        """The messages that the coroutine asks about; None when it has returned (`result`).

        Raises ExchangeError with the coroutine's exception, or if it takes too long; LoopDied; and
        Abandoned in a run that has ended.
        """
        messages = None if self._results else self._next()
        if messages is not None or self._error is None:
            return messages
        if isinstance(self._error, asyncio.CancelledError):
            self._loop.check()  # a loop that dies cancels all that runs in it
        raise ExchangeError(f"{type(self._error).__name__}: {self._error}") from self._error

    def say(self, text: str) -> None:
        """Answer the open question. Raises LoopDied."""
        self._loop.call_soon(self._answer, text)

    def end(self) -> None:
        """Refuse the open question and all further ones. The coroutine may still return a result,
        for which `wait` waits. Raises LoopDied."""
        self._loop.call_soon(self._refuse)

    def close(self) -> None:
        """Cancel the coroutine if it still runs, without waiting for it; may be called twice."""
        self._future.cancel()

    @property
    def over(self) -> bool:
        """Whether the coroutine has returned."""
        return bool(self._results)

    @property
    def result(self) -> T:
        """What the coroutine returned. Raises RuntimeError before that."""
        if not self._results:
            raise RuntimeError("the coroutine has not returned yet")
        return self._results[0]

    # -- inside ---------------------------------------------------------------------------------

    async def _play(self, play: Callable[["Exchange[T]"], Awaitable[T]]) -> None:
        try:
            self._results.append(await play(self))
        except BaseException as error:
            self._error = error
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self._requests.put(None)

    def _next(self) -> list[Mapping[str, Any]] | None:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() <= deadline:
            try:
                return self._requests.get(timeout=_WATCH_SECONDS)
            except queue.Empty:
                check_abandoned()
                if self._requests.empty():
                    self._loop.check()
        raise ExchangeError(f"no question within {self._timeout:g} seconds")

    def _answer(self, text: str) -> None:
        if self._question is not None and not self._question.done():
            self._question.set_result(text)

    def _refuse(self) -> None:
        self._ended = True
        if self._question is not None and not self._question.done():
            self._question.set_exception(ExchangeEnded("the session has ended"))
