"""JSON over HTTP, with errors classified by whether a retry can help.

The invariant: every problem becomes `Unreachable` (a retry, or another server, may help) or
`Refused` (it will not). No exception of the HTTP library gets through, and no message contains a
key. A server is not trusted: it cannot redirect us, and the size of its answers is limited.
"""

import asyncio
import contextlib
import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json

from agentsgym.types.text import mask_secrets, visible

MAX_BODY_BYTES = 32 * 2**20
"""Limit for one answer; far more than the tokens of one action need."""

_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
_HEADERS = {
    "User-Agent": "agentsgym",
    "Accept": "application/json",
    "Accept-Encoding": "identity",  # a small body could become a huge one
    "Content-Type": "application/json",
}
# Temporary answers: "slow down", and proxies' codes for "try later".
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHOWN = 500  # characters of an error's body in messages


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


class JsonClient:
    """Sends and receives JSON; to be used inside one event loop. `headers` are sent with every
    request."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._headers = _HEADERS | dict(headers or {})

    async def post(self, url: str, body: Mapping[str, Any], timeout: float) -> Any:
        """Send `body`; return the answer's JSON (its text if it is not JSON).

        `timeout` limits the whole exchange, in seconds. Raises Unreachable or Refused.
        """
        try:
            data = to_json(body)
        except ValueError:  # half a surrogate pair; JSON can spell it
            data = json.dumps(body).encode()
        return await self._exchange("POST", url, data, timeout)

    async def get(self, url: str, timeout: float) -> Any:
        """As `post`, without a body."""
        return await self._exchange("GET", url, None, timeout)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._headers,
            timeout=_NO_TIMEOUT,
            auto_decompress=False,
        )

    async def _exchange(self, method: str, url: str, data: bytes | None, timeout: float) -> Any:
        try:
            async with (
                asyncio.timeout(timeout),
                self._session.request(method, url, data=data, allow_redirects=False) as answer,
            ):
                body = bytearray()
                async for part in answer.content.iter_any():
                    body += part
                    if len(body) > MAX_BODY_BYTES:
                        raise ValueError(f"its body exceeds {MAX_BODY_BYTES // 2**20} MiB")
        except TimeoutError:
            raise Unreachable(url, f"no answer within {timeout:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(url, str(error) or type(error).__name__) from None
        return _read(url, answer.status, answer.headers, bytes(body))


def _read(url: str, status: int, headers: Mapping[str, str], body: bytes) -> Any:
    if status in _REDIRECTS:
        target = headers.get("location", "nowhere")[:_SHOWN]
        reason = (
            f"HTTP {status}: the server sends us to {target}; redirects are not followed, since "
            "they would hand over the conversation: give that address if you trust it"
        )
        raise Refused(url, reason, status)
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ("identity", ""):
        reason = f"its body is encoded as {encoding!r}; we asked for none"
        raise Unreachable(url, reason, status)
    if status >= 400:
        reason = f"HTTP {status}: {_message(body)}"
        if status in _BUSY:
            raise Unreachable(url, reason, status, _seconds(headers.get("retry-after")))
        raise Refused(url, reason, status)
    return _parsed(body)


def _parsed(body: bytes) -> Any:
    """The JSON in a body; its text if it is not JSON or too deeply nested."""
    with contextlib.suppress(ValueError):
        return from_json(body)
    text = body.decode("utf-8", errors="replace")
    try:
        return json.loads(text)  # half a surrogate pair, or a byte that is no UTF-8
    except (ValueError, RecursionError):
        return text


def _message(body: bytes) -> str:
    """The message in an error's body; OpenAI's and FastAPI's formats are recognized."""
    content = _parsed(body)
    if isinstance(content, dict):
        text = body.decode("utf-8", errors="replace")
        error = content.get("error", content.get("detail", content.get("message", text)))
        content = error.get("message", error) if isinstance(error, dict) else error
    return str(content)[:_SHOWN]


def _seconds(retry_after: str | None) -> float | None:
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        return None  # a date; our own back-off is enough
    return max(0.0, seconds) if math.isfinite(seconds) else None
