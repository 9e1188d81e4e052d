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
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from agentsgym.generation.http import LoopDied, LoopThread
from agentsgym.rollout.threads import check_wanted

T = TypeVar("T")

_WATCH_SECONDS = 0.2

__all__ = ["Exchange", "ExchangeEnded", "ExchangeError", "LoopDied", "LoopThread"]


class ExchangeEnded(Exception):
    """Raised in a coroutine that asks: no more answers will come."""


class ExchangeError(RuntimeError):
    """The coroutine failed, or did not ask in time. `__cause__` is its exception."""


@dataclass(frozen=True, slots=True)
class _Asked:
    messages: list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Returned(Generic[T]):
    result: T


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
        self._events: queue.SimpleQueue[_Asked | _Failed | _Returned[T]] = queue.SimpleQueue()
        self._question: asyncio.Future[str] | None = None
        self._no_more: BaseException | None = None
        self._returned: _Returned[T] | None = None
        self._future = loop.start(self._play(play))

    # -- for the coroutine, in its loop ---------------------------------------------------------

    async def ask(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The agent's answer to a conversation. Raises ExchangeEnded, or the error that `end` was
        given, if there will be none; and RuntimeError while another question is open."""
        if self._no_more is not None:
            raise self._no_more
        if self._question is not None:
            raise RuntimeError("one session can only answer one question at a time")
        self._question = asyncio.get_running_loop().create_future()
        self._events.put(_Asked([dict(message) for message in messages]))
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
        if self._returned is not None:
            return None
        event = self._next_event()
        if isinstance(event, _Asked):
            return event.messages
        if isinstance(event, _Failed):
            raise self._failure(event.error) from event.error
        self._returned = event
        return None

    def say(self, text: str) -> None:
        """Answer the open question. Raises LoopDied."""
        self._loop.call_soon(self._answer, text)

    def end(self, error: BaseException | None = None) -> None:
        """Refuse the open question and all further ones with `error` (default: ExchangeEnded). The
        coroutine may still return a result, for which `wait` waits. Raises LoopDied."""
        self._loop.call_soon(self._refuse, error or ExchangeEnded("the session has ended"))

    def close(self) -> None:
        """Cancel the coroutine if it still runs, without waiting for it; may be called twice."""
        self._future.cancel()

    @property
    def over(self) -> bool:
        """Whether `wait` has returned None."""
        return self._returned is not None

    @property
    def result(self) -> T:
        """What the coroutine returned. Raises RuntimeError before `wait` has returned None."""
        if self._returned is None:
            raise RuntimeError("the coroutine has not returned yet")
        return self._returned.result

    # -- inside ---------------------------------------------------------------------------------

    async def _play(self, play: Callable[["Exchange[T]"], Awaitable[T]]) -> None:
        try:
            self._events.put(_Returned(await play(self)))
        except BaseException as error:
            self._events.put(_Failed(error))
            if isinstance(error, asyncio.CancelledError):
                raise

    def _failure(self, error: BaseException) -> ExchangeError:
        if isinstance(error, asyncio.CancelledError):
            self._loop.check()  # a loop that dies cancels all that runs in it
            return ExchangeError("the coroutine was cancelled")
        return ExchangeError(f"{type(error).__name__}: {error}")

    def _next_event(self) -> _Asked | _Failed | _Returned[T]:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._events.get(timeout=_WATCH_SECONDS)
            except queue.Empty:
                check_wanted()
                if self._events.empty():
                    self._loop.check()
            if time.monotonic() > deadline:
                raise ExchangeError(f"no question within {self._timeout:g} seconds")

    def _answer(self, text: str) -> None:
        if self._question is not None and not self._question.done():
            self._question.set_result(text)

    def _refuse(self, error: BaseException) -> None:
        self._no_more = error
        if self._question is not None and not self._question.done():
            self._question.set_exception(error)
