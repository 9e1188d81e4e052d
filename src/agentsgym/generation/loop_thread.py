"""An event loop in a daemon thread, which runs coroutines for synchronous callers."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from typing import Any, TypeVar

T = TypeVar("T")
CleanUp = Callable[[], Awaitable[None]]

_JOIN_SECONDS = 5.0
_WATCH_SECONDS = 0.5


class LoopDied(RuntimeError):
    """An event loop has ended, so that nothing in it goes on. `__cause__` is the exception that
    ended it, if there was one."""


class LoopThread:
    """Runs coroutines in a daemon thread that ends with `close` or with this object.

    A SystemExit in any of its tasks ends it too (asyncio does so); then nothing in it goes on.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._clean_ups: list[CleanUp] = []
        self._ends: list[BaseException | None] = []
        self._thread = threading.Thread(
            target=_serve,
            args=(self._loop, self._clean_ups, self._ends),
            name=name,
            daemon=True,
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop, self._thread)

    def at_end(self, clean_up: CleanUp) -> None:
        """Await `clean_up()` when the loop ends, after all other work was cancelled; the last one
        comes first. It must not refer to this object."""
        self._clean_ups.append(clean_up)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`; the future can be cancelled from any thread. Raises LoopDied."""
        if not self.alive:
            work.close()
        self.check()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return its result; its exceptions are not caught.

        An interrupt of the waiting thread (Ctrl-C) cancels the work. Raises LoopDied.
        """
        future = self.start(work)
        try:
            while not wait([future], _WATCH_SECONDS).done:
                self.check()
            if future.cancelled():
                self.check()  # a loop that ends cancels its work
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop's thread, as soon as possible. Raises LoopDied."""
        self.check()
        self._loop.call_soon_threadsafe(callback, *arguments)

    @property
    def alive(self) -> bool:
        """Whether the loop goes on: the thread runs, and nothing has stopped the loop in it."""
        return self._thread.is_alive() and not self._ends

    def check(self) -> None:
        """Raise LoopDied if the loop has ended."""
        if self.alive:
            return
        end = self._ends[0] if self._ends else None
        how = f"with {end!r}" if end else "without an error"
        raise LoopDied(f"the event loop {self._thread.name} has ended {how}") from end

    def close(self) -> None:
        """Cancel all work and end the thread; may be called twice."""
        self._finalizer()


def _serve(
    loop: asyncio.AbstractEventLoop, clean_ups: list[CleanUp], ends: list[BaseException | None]
) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        ends.append(None)
    except BaseException as error:  # SystemExit too: the thread ends in any case
        ends.append(error)
    try:
        with contextlib.suppress(RuntimeError):  # a loop that died is told to stop as well
            loop.run_until_complete(_wind_up(clean_ups))
    finally:
        loop.close()


async def _wind_up(clean_ups: list[CleanUp]) -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for clean_up in reversed(clean_ups):
        await asyncio.gather(clean_up(), return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(_JOIN_SECONDS)
