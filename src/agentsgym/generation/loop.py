"""An asyncio event loop in a thread of its own, so that callers stay synchronous.

`asyncio.run` fails inside notebooks and other running loops; this does not.
"""

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in a daemon thread that ends with `close` or with this object."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_serve, args=(self._loop,), name=name, daemon=True)
        thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._loop)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`; the future can be cancelled from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end and return what it returns; its exceptions pass through.

        An interrupt of the waiting thread (Ctrl-C) cancels the work.
        """
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Cancel what runs and end the thread; harmless if done twice."""
        self._finalizer()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    finally:
        loop.close()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
