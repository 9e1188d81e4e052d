"""OpenEnv's protocol as its servers speak it: JSON over a WebSocket, one session per connection.

A server is not trusted: it cannot redirect us, and the size of its messages is limited. Nothing
here waits for ever, and every problem is a `WireError`, whose kind says whether another try can
help.
"""

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Mapping
from concurrent.futures import wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from agentsgym.generation.http import (
    MAX_BODY_BYTES,
    HttpError,
    JsonClient,
    LoopThread,
    Refused,
    require_aiohttp,
)
from agentsgym.rollout.threads import check_wanted
from agentsgym.types.text import mask_secrets, visible

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_WATCH_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_FINAL = (400, 401, 403, 404)  # another try does not help
_SHOWN = 500  # characters of a server's message in ours


class WireError(RuntimeError):
    """A server gave no usable answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(visible(mask_secrets(reason)))


class Unreachable(WireError):
    """There is no connection, or not any more."""


class Silent(WireError):
    """A session's server gave no answer in time; another try would wait as long again."""


class Full(WireError):
    """All places of the server are taken."""


class NotAccepted(WireError):
    """The server refused an action because of its form; the session goes on."""


class Faulty(WireError):
    """The server reported an error, or answered in another way than OpenEnv does."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A server's answer to `reset` or `step`. `told` has the observation's fields over those of the
    metadata."""

    observation: Mapping[str, Any]
    told: Mapping[str, Any]
    reward: float
    done: bool


class Wire:
    """A server at `url`, from any number of threads; `key` is sent as a bearer token.

    `timeout` limits each answer, in seconds. The event loop starts with the first request.
    """

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self._aiohttp = require_aiohttp()
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout
        self._loop = LoopThread("agentsgym-openenv")
        self._client = JsonClient(self._headers)
        self._session: aiohttp.ClientSession | None = None
        self._loop.at_end(self._client.close)

    def get(self, page: str) -> Any:
        """The JSON of a page of the server. Raises Unreachable."""
        return self._fetched(self._client.get(f"{self._url}/{page}", self._timeout))

    def post(self, page: str, body: Mapping[str, Any]) -> Any:
        """The answer to a request with a body. Raises Unreachable."""
        return self._fetched(self._client.post(f"{self._url}/{page}", body, self._timeout))

    def open(self) -> "Line":
        """A new connection. Raises Unreachable."""
        return Line(self, self.run(self._opened()))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work in the event loop; ends with the run that this thread belongs to."""
        future = self._loop.start(work)
        try:
            while not wait([future], _WATCH_SECONDS).done:
                check_wanted()
                self._loop.check()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def leave(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        """Close a connection without waiting for it."""
        self._loop.start(_closed(socket))

    def _fetched(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self.run(work)
        except Refused as error:
            raise Faulty(str(error)) from None
        except HttpError as error:
            raise Unreachable(str(error)) from None

    async def _opened(self) -> "aiohttp.ClientWebSocketResponse":
        http = self._aiohttp
        if self._session is None:
            self._session = self._new_session()
            self._loop.at_end(self._session.close)
        address = f"ws{self._url.removeprefix('http')}/ws"
        try:
            return await asyncio.wait_for(
                self._session.ws_connect(address, max_msg_size=MAX_BODY_BYTES), self._timeout
            )
        except TimeoutError:
            raise Unreachable(f"{self._url}: no answer within {self._timeout:g} s") from None
        except http.WSServerHandshakeError as error:
            problem = f"{self._url}: it opens no session (HTTP {error.status})"
            raise (Faulty if error.status in _FINAL else Unreachable)(problem) from None
        except (http.ClientError, OSError, ValueError) as error:
            raise Unreachable(f"{self._url}: {error or type(error).__name__}") from None

    def _new_session(self) -> "aiohttp.ClientSession":
        http = self._aiohttp
        watch = http.TraceConfig()
        watch.on_request_redirect.append(_refuse_redirect)
        made: aiohttp.ClientSession = http.ClientSession(
            headers=self._headers,
            trace_configs=[watch],
            connector=http.TCPConnector(limit=0),
            timeout=http.ClientTimeout(total=None),
        )
        return made

    async def exchanged(
        self, socket: "aiohttp.ClientWebSocketResponse", message: Mapping[str, Any]
    ) -> str:
        """Send a message and return the answer's text. Raises Unreachable or Silent."""
        kinds = self._aiohttp.WSMsgType
        # Where sending fails, the socket is closing, and what it said before stands in the queue.
        with contextlib.suppress(self._aiohttp.ClientError, OSError, RuntimeError):
            await socket.send_str(json.dumps(message))
        try:
            answer = await socket.receive(self._timeout)
        except TimeoutError:
            raise Silent(f"{self._url}: no answer within {self._timeout:g} s") from None
        if answer.type != kinds.TEXT:
            raise Unreachable(f"{self._url}: the server ended the connection")
        return str(answer.data)


class Line:
    """One session on a server. Only one thread may use it at a time."""

    def __init__(self, wire: Wire, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._wire = wire
        self._socket = socket

    def ask(self, kind: str, data: Mapping[str, Any]) -> Seen:
        """The answer to a message "reset" or "step". Raises a WireError."""
        sent = {"type": kind, "data": data}
        return _read(self._wire.run(self._wire.exchanged(self._socket, sent)))

    def close(self) -> None:
        """End the session, without waiting for the server; may be called twice."""
        self._wire.leave(self._socket)


def _read(text: str) -> Seen:
    try:
        message = json.loads(text)
        kind, data = message["type"], message["data"]
        if kind == "error":
            _raise(data)
        observation = data["observation"]
        metadata = data.get("metadata") or observation.get("metadata") or {}
        reward = data.get("reward")
        return Seen(
            observation,
            {**metadata, **observation},
            0.0 if reward is None else reward,
            bool(data.get("done")),
        )
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise Faulty(f"the server's answer is none of OpenEnv: {text[:_SHOWN]}") from None


def _raise(data: Mapping[str, Any]) -> NoReturn:
    code, message = data.get("code"), str(data.get("message"))[:_SHOWN]
    if code == "CAPACITY_REACHED":
        raise Full(f"the server is full ({message})")
    if code == "VALIDATION_ERROR":
        raise NotAccepted(_problems(data) or message)
    raise Faulty(f"the server says {code}: {message}")


def _problems(data: Mapping[str, Any]) -> str:
    """The sentences of pydantic's list of errors."""
    found = data.get("errors")
    told = [str(each.get("msg", "")) for each in found] if isinstance(found, list) else []
    return "; ".join(filter(None, told))[:_SHOWN]


async def _refuse_redirect(session: Any, context: Any, parameters: Any) -> None:
    target = str(parameters.response.headers.get("Location", "nowhere"))[:_SHOWN]
    raise Faulty(
        f"the server sends us to {target}; redirects are not followed: give that address if you "
        "trust it"
    )


async def _closed(socket: "aiohttp.ClientWebSocketResponse") -> None:
    try:
        await asyncio.wait_for(socket.close(), _CLOSE_SECONDS)
    except (OSError, RuntimeError, TimeoutError):
        return
