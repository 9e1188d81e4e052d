"""JSON over HTTP, with errors sorted by what can be done about them.

The invariant: whatever goes wrong on the way comes out as `Unreachable` (another try, or another
server, may help) or `Refused` (it will not); nothing of the HTTP library gets through, and no
message holds a key. A server is not trusted: it can't send us elsewhere, and what it says is
bounded.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentsgym.generation.http.body import BadBody, read_body
from agentsgym.types.install import install_command
from agentsgym.types.secrets import mask_secrets
from agentsgym.types.visible import visible

if TYPE_CHECKING:
    import aiohttp

# What a server says for a moment only: slow down, and the proxies' words for "not now".
_BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SHOWN = 500  # characters of an error's body in messages


class HttpError(RuntimeError):
    """A request got no usable answer; `url` says from where, `status` is None without an answer."""

    def __init__(self, url: str, reason: str, status: int | None = None) -> None:
        self.url = mask_secrets(url)
        self.reason = visible(mask_secrets(reason))
        self.status = status
        super().__init__(f"{self.url}: {self.reason}")


class Unreachable(HttpError):
    """Refused, cut or timed-out connections, and answers that mean "not now".

    `wait` is how long the server asked us to stay away, in seconds.
    """

    def __init__(
        self, url: str, reason: str, status: int | None = None, wait: float | None = None
    ) -> None:
        super().__init__(url, reason, status)
        self.wait = wait


class Refused(HttpError):
    """The server understood and said no: bad request, wrong key, unknown model."""


@dataclass(frozen=True, slots=True)
class Retries:
    """How often, and how long apart.

    At most `attempts` tries; the pause after try k is `first_delay` · 2^k seconds, at most
    `longest_delay`, times a random factor between 0.5 and 1 so that clients do not come back in
    step. Raises ValueError for values outside their range.
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
        """The pauses between the tries, `attempts` − 1 of them, in seconds."""
        for attempt in range(self.attempts - 1):
            delay = min(self.first_delay * 2.0**attempt, self.longest_delay)
            yield delay * random.uniform(0.5, 1.0)


class JsonClient:
    """Sends and receives JSON; to be used inside one event loop.

    `headers` go with every request. `connections` bounds those that are open at once (0: no
    bound). Raises ImportError, with the command that helps, where aiohttp is not installed.
    """

    def __init__(self, headers: Mapping[str, str] | None = None, connections: int = 0) -> None:
        self._aiohttp = require_aiohttp()
        self._headers = dict(headers or {})
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: Mapping[str, Any], timeout: float) -> Any:
        """Send `body`, return the answer's JSON (its text where it is none).

        `timeout` bounds the whole exchange, in seconds. Raises Unreachable or Refused.
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
                auto_decompress=False,  # `read_body` does, within a bound
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
    """The JSON in a text; the text itself where it is none, or nested too deep to be an answer."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _message(text: str) -> str:
    """What an error's body says; OpenAI's and FastAPI's shapes are taken apart."""
    said = _parsed(text)
    if isinstance(said, dict):
        error = said.get("error", said.get("detail", said.get("message", text)))
        said = error.get("message", error) if isinstance(error, dict) else error
    return str(said)[:_SHOWN]


def _seconds(retry_after: str | None) -> float | None:
    try:
        seconds = float(retry_after or "nan")
    except ValueError:
        return None  # a date; our own back-off will do
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
