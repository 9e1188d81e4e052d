"""JSON over HTTP, with errors classified by whether a retry can help.

The invariant: every problem becomes `Unreachable` (a retry, or another server, may help) or
`Refused` (it will not). No exception of the HTTP library gets through, and no message contains a
key. A server is not trusted: it cannot redirect us, and the size of its answers is limited.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.generation.http.body import BadBody, read_body
from agentsgym.types.names import install_command
from agentsgym.types.text import mask_secrets, visible

if TYPE_CHECKING:
    import aiohttp

# Temporary answers: "slow down", and proxies' codes for "try later".
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHOWN = 500  # characters of an error's body in messages


class HttpError(RuntimeError):
    """A request got no usable answer; `url` is the address, `status` is None without an answer."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        self.url = mask_secrets(url)
        self.reason = visible(mask_secrets(reason))
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
    same moment. Raises ValueError for values outside their range.
    """

    attempts: int = 5
    first_delay: float = 0.25
    longest_delay: float = 8.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")
        if self.first_delay < 0 or self.longest_delay < 0:
            raise ValueError(f"delays must not be negative, got {self}")

    def delays(self) -> Iterator[float]:
        """The `attempts` − 1 pauses between the attempts, in seconds."""
        for attempt in range(self.attempts - 1):
            delay = min(self.first_delay * 2.0**attempt, self.longest_delay)
            yield delay * random.uniform(0.5, 1.0)


class JsonClient:
    """Sends and receives JSON; to be used inside one event loop.

    `headers` are sent with every request. `connections` limits open connections (0: no limit).
    Raises ImportError, with the command that installs it, if aiohttp is missing.
    """

    def __init__(self, headers: Mapping[str, str] | None = None, connections: int = 0) -> None:
        self._aiohttp = require_aiohttp()
        self._headers = dict(headers or {})
        self._connections = connections
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
                return _read(url, answer.status, answer.headers, await read_body(answer))
        except TimeoutError:
            raise Unreachable(url, f"no answer within {timeout:g} s") from None
        except BadBody as error:
            raise Unreachable(url, str(error)) from None
        except (self._aiohttp.ClientError, OSError, ValueError) as error:
            raise Unreachable(url, str(error) or type(error).__name__) from None

    def _open(self) -> "aiohttp.ClientSession":
        if self._session is None:
            self._session = self._aiohttp.ClientSession(
                headers={"Accept-Encoding": "gzip", **self._headers},
                connector=self._aiohttp.TCPConnector(limit=self._connections),
                auto_decompress=False,  # `read_body` does, with a size limit
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
    said = _parsed(text)
    if isinstance(said, dict):
        error = said.get("error", said.get("detail", said.get("message", text)))
        said = error.get("message", error) if isinstance(error, dict) else error
    return str(said)[:_SHOWN]


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
