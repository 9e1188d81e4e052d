"""JSON over HTTP, with errors classified by whether a retry can help, and its event loop.

The invariant: every problem becomes `Unreachable` (a retry, or another server, may help) or
`Refused` (it will not). No exception of the HTTP library gets through, and no message contains a
key. A server is not trusted: it cannot redirect us, and the size of its answers is limited.
"""

import asyncio
import contextlib
import json
import math
import os
import random
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from agentsgym.types.names import install_command
from agentsgym.types.text import mask_secrets, remember_secret, visible

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
CleanUp = Callable[[], Awaitable[None]]

MAX_BODY_BYTES = 32 * 2**20
"""Limit for one answer; far more than the tokens of one action need."""

_PIECE = 64 * 2**10
# Temporary answers: "slow down", and proxies' codes for "try later".
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHOWN = 500  # characters of an error's body in messages
_LONGEST_WAIT = 60.0  # the longest Retry-After, in seconds, that is obeyed
_JOIN_SECONDS = 2.0
_WATCH_SECONDS = 0.5


def printable(text: str) -> str:
    """The beginning of what a server wrote, without secrets and escape sequences. Cut first: a
    server may send megabytes, and the event loop waits."""
    return visible(mask_secrets(text[: 4 * _SHOWN]))[:_SHOWN]


class HttpError(RuntimeError):
    """A request got no usable answer; `url` is the address, `status` is None without an answer."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        self.url = mask_secrets(url[: 4 * _SHOWN])
        self.reason = printable(reason)
        self.status = status
        super().__init__(f"{self.url}: {self.reason}")


class Unreachable(HttpError):
    """Refused, broken or timed-out connections, and "try later" answers.

    `wait` is the pause that the server requested, in seconds.
    """

    def __init__(
        self, url: str, reason: str, status: int | None = None, wait: float | None = None
    ) -> None:
        super().__init__(url, reason, status)
        self.wait = wait


class Refused(HttpError):
    """The server answered with a permanent error: bad request, wrong key, unknown model."""


@dataclass(frozen=True, slots=True)
class Retries:
    """Number of attempts and the pauses between them.

    At most `attempts` attempts; the pause after attempt k is `first_delay` · 2^k seconds, at most
    `longest_delay`, times a random factor between 0.5 and 1, so that clients do not retry at the
    same moment.
    """

    attempts: int = 5
    first_delay: float = 0.25
    longest_delay: float = 8.0

    def delays(self) -> Iterator[float]:
        """The `attempts` − 1 pauses between the attempts, in seconds."""
        for attempt in range(self.attempts - 1):
            delay = min(self.first_delay * 2.0**attempt, self.longest_delay)
            yield delay * random.uniform(0.5, 1.0)


async def with_retries(
    attempt: Callable[[], Awaitable[T]], retries: Retries, on_retry: Callable[[], None]
) -> T:
    """The result of `attempt`, which is made again after Unreachable, later if the server requested
    it. Raises its last error."""
    delays = retries.delays()
    while True:
        try:
            return await attempt()
        except Unreachable as error:
            delay = next(delays, None)
            if delay is None:
                raise
            delay = max(delay, min(error.wait or 0.0, _LONGEST_WAIT))
        on_retry()
        await asyncio.sleep(delay)


class JsonClient:
    """Sends and receives JSON; to be used inside one event loop.

    `headers` are sent with every request. Raises ImportError, with the command that installs it, if
    aiohttp is missing.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._aiohttp = require_aiohttp()
        self._headers = dict(headers or {})
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: Mapping[str, Any], timeout: float) -> Any:
        """Send `body`; return the answer's JSON (its text if it is not JSON).

        `timeout` limits the whole exchange, in seconds. Raises Unreachable or Refused.
        """
        return await self._exchange("POST", url, body, timeout)

    async def get(self, url: str, timeout: float) -> Any:
        """As `post`, without a body."""
        return await self._exchange("GET", url, None, timeout)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(
        self, method: str, url: str, body: Mapping[str, Any] | None, timeout: float
    ) -> Any:
        limit = self._aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._open().request(
                method, url, json=body, timeout=limit, allow_redirects=False
            ) as answer:
                if answer.status in _REDIRECTS:
                    raise Refused(url, _redirected(answer), answer.status)
                encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
                if encoding not in ("identity", ""):
                    raise ValueError(f"its body is encoded as {encoding!r}; we asked for none")
                received = bytearray()
                async for piece in answer.content.iter_chunked(_PIECE):
                    received += piece
                    if len(received) > MAX_BODY_BYTES:
                        raise ValueError(f"its body exceeds {MAX_BODY_BYTES // 2**20} MiB")
                text = received.decode("utf-8", errors="replace")
                return _read(url, answer.status, answer.headers, text)
        except TimeoutError:
            raise Unreachable(url, f"no answer within {timeout:g} s") from None
        except (self._aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(url, str(error) or type(error).__name__) from None

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            self._session = self._aiohttp.ClientSession(
                headers={"Accept-Encoding": "identity", **self._headers},
                connector=self._aiohttp.TCPConnector(limit=0),
                auto_decompress=False,  # a small body could become a huge one
            )
        return self._session


def _redirected(answer: "aiohttp.ClientResponse") -> str:
    target = answer.headers.get("Location", "nowhere")
    return (
        f"HTTP {answer.status}: the server sends us to {target[:_SHOWN]}; redirects are not "
        "followed, since they would hand over the conversation: give that address if you trust it"
    )


def _read(url: str, status: int, headers: Mapping[str, str], text: str) -> Any:
    if status >= 400:
        reason = f"HTTP {status}: {_message(text)}"
        if status in _BUSY:
            raise Unreachable(url, reason, status, _seconds(headers.get("Retry-After")))
        raise Refused(url, reason, status)
    return _parsed(text)


def _parsed(text: str) -> Any:
    """The JSON in a text; the text itself if it is not JSON or too deeply nested."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _message(text: str) -> str:
    """The message in an error's body; OpenAI's and FastAPI's formats are recognized."""
    content = _parsed(text)
    if isinstance(content, dict):
        error = content.get("error", content.get("detail", content.get("message", text)))
        content = error.get("message", error) if isinstance(error, dict) else error
    return str(content)[:_SHOWN]


def _seconds(retry_after: str | None) -> float | None:
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        return None  # a date; our own back-off is enough
    return max(0.0, seconds) if math.isfinite(seconds) else None


def require_aiohttp() -> Any:
    """The aiohttp module. Raises ImportError with the command that installs it."""
    try:
        import aiohttp
    except ImportError:
        raise ImportError(
            f"engines over HTTP need aiohttp; install it with: {install_command('http')}"
        ) from None
    return aiohttp


class MissingKey(RuntimeError):
    """The environment variable that should hold an endpoint's key is not set."""


def read_key(key_env: str | None) -> str | None:
    """The key in the environment variable `key_env`, masked from now on; None for None.

    Raises MissingKey if the variable is unset or empty.
    """
    if key_env is None:
        return None
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise MissingKey(
            f"the endpoint's key is missing: set the environment variable {key_env}, or name none "
            "(key_env) for an endpoint that needs no key"
        )
    remember_secret(key)
    return key


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
        """Await `clean_up()` when the loop ends, after all other work was cancelled. It must not
        refer to this object."""
        self._clean_ups.append(clean_up)

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work`; the future can be cancelled from any thread. Raises LoopDied."""
        if not self.alive:
            work.close()
        self.check()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T], watch: Callable[[], None] = lambda: None) -> T:
        """Run `work` to its end and return its result; its exceptions are not caught.

        An interrupt of the waiting thread (Ctrl-C), and an exception of `watch`, which is called
        now and then, cancel the work. Raises LoopDied.
        """
        future = self.start(work)
        try:
            while not wait([future], _WATCH_SECONDS).done:
                watch()
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
    await asyncio.gather(*(clean_up() for clean_up in clean_ups), return_exceptions=True)


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(loop.stop)
    if threading.current_thread() is not thread:
        thread.join(_JOIN_SECONDS)
