"""An event loop in a daemon thread, which runs coroutines for synchronous callers."""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
CleanUp = Callable[[], Awaitable[None]]

_JOIN_SECONDS = 2.0


class LoopThread:
    """Runs coroutines in a daemon thread that ends with `close` or with this object.

    A SystemExit in any of its tasks ends it too (asyncio does so), and cancels all others.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._clean_ups: list[CleanUp] = []
        self._thread = threading.Thread(
            target=_serve, args=(self._loop, self._clean_ups), name=name, daemon=True
        )
        self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop, self._thread)

    def at_end(self, clean_up: CleanUp) -> None:
        """Await `clean_up()` when the loop ends, after all other work was cancelled. It must not
        refer to this object."""
        self._clean_ups.append(clean_up)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`; the future can be cancelled from any thread. Raises RuntimeError if the
        loop has ended."""
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return its result; its exceptions are not caught.

        An interrupt of the waiting thread (Ctrl-C) cancels the work. Raises CancelledError if the
        loop ends meanwhile, RuntimeError if it has ended.
        """
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call a function in the loop's thread, as soon as possible. Raises RuntimeError if it has
        ended."""
        self._loop.call_soon_threadsafe(callback, *arguments)

    @property
    def alive(self) -> bool:
        """Whether the loop goes on."""
        return not self._loop.is_closed()

    def close(self) -> None:
        """Cancel all work and end the thread; may be called twice."""
        self._finalizer()


def _serve(loop: asyncio.AbstractEventLoop, clean_ups: list[CleanUp]) -> None:
    asyncio.set_event_loop(loop)
    try:
        with contextlib.suppress(BaseException):  # SystemExit too
            loop.run_forever()
        with contextlib.suppress(RuntimeError):  # a loop that ended by itself is stopped as well
            loop.run_until_complete(_wind_up(clean_ups))
    finally:
        loop.close()


async def _wind_up(clean_ups: list[CleanUp]) -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*(clean_up() for clean_up in clean_ups), return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(_JOIN_SECONDS)
