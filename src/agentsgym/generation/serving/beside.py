"""Work on bodies, beside the event loop: large ones wait for each other, and no small one for
them."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_LARGE = 2**18  # bytes or characters
_LARGE_ONES = ThreadPoolExecutor(1, "agentsgym-large-bodies")


async def beside_the_loop(size: int, work: Callable[[], T]) -> T:
    """What `work`, on a body of this size, returns or raises in a thread."""
    threads = _LARGE_ONES if size > _LARGE else None
    return await asyncio.get_running_loop().run_in_executor(threads, work)
