"""A server of the OpenEnv protocol and this program's sessions on it: JSON over a WebSocket, one
session per connection.

A server is not trusted: it cannot redirect us, and the size of its messages is limited. Nothing
here waits for ever, and every problem is an `HttpError`: `Unreachable` where another try can help,
`Refused` where it can't."""

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from agentsgym.envs.extras import require
from agentsgym.generation.connection import MAX_BODY_BYTES
from agentsgym.generation.http import (
    JsonClient,
    Refused,
    Retries,
    Unreachable,
    with_retries,
)
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.integrations.openenv.fields import Fields, fields_of
from agentsgym.types.text import short_repr

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
Socket: TypeAlias = "aiohttp.ClientWebSocketResponse"

_CLOSE_SECONDS = 2.0
_FINAL = (400, 401, 403, 404)  # another try does not help
_SHOWN = 500  # characters of a server's message in ours
_RETRIES = Retries(attempts=5, first_delay=0.1, longest_delay=1.0)
_PAUSE = 0.2  # seconds between two questions for a place


class Full(Refused):
    """All places of the server are taken."""


class NotAccepted(Refused):
    """The server refused an action because of its form; the session goes on."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A server's answer to `reset` or `step`. `fields` has the observation's fields over those of
    the metadata."""

    observation: Mapping[str, Any]
    fields: Mapping[str, Any]
    reward: float
    done: bool


class OpenEnvServer:
    """The server at `url`, for all sessions of an environment, from any number of threads.

    Args:
        key: sent as a bearer token.
        timeout: limit for each answer, in seconds.
        patience: seconds that a session waits for a place while none becomes free here.
        fields: arguments of `fields_of` other than the schema.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        timeout: float,
        patience: float,
        fields: Mapping[str, Any],
    ) -> None:
        self._aiohttp = require("aiohttp", "http")
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout
        self._patience = patience
        self._options = dict(fields)
        self._fields: Fields | None = None
        self._freed = 0.0
        self._unfit: str | None = None
        self._loop = LoopThread("agentsgym-openenv")
        self._client = JsonClient(self._headers)
        self._session: aiohttp.ClientSession | None = None
        self._loop.at_end(self._client.close)

    def begin(self, task: Mapping[str, Any]) -> tuple[Socket, ServerAnswer]:
        """A new session on a task, in a place of its own. Raises HttpError."""
        self.check(task)
        return self._loop.run(self._begin(task))

    @property
    def fields(self) -> Fields:
        """The fields of actions and observations. Raises HttpError or NoField."""
        if self._fields is None:
            self._fields = fields_of(self._json("schema"), **self._options)
        return self._fields

    def number_of_tasks(self, split: str) -> int:
        """How many tasks the server's task API lists. Raises HttpError."""
        names = self._json("list_environments")
        name = names[0] if isinstance(names, list) and names else "environment"
        answer = self._json(f"{name}/num_tasks", {"split": split})
        number = answer.get("num_tasks") if isinstance(answer, Mapping) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise Refused(self._url, f"it lists no tasks of the split {split!r}")
        return number

    def check(self, task: Mapping[str, Any]) -> None:
        """Check once that a task is one: two sessions on it must begin with the same observation.

        A server whose `reset` ignores its arguments plays another game in each rollout of a group.
        Raises Refused, then and for each later session, and other HttpErrors.
        """
        if self._unfit is None:
            self._unfit = self._problem(task)
        if self._unfit:
            raise Refused(self._url, self._unfit)

    def _problem(self, task: Mapping[str, Any]) -> str:
        fields = self.fields
        texts = []
        for _ in range(2):
            socket, seen = self._loop.run(self._begin(task))
            self.leave(socket)
            texts.append(fields.text(seen.observation))
        if texts[0] == texts[1]:
            return ""
        return (
            f"it began the task {short_repr(dict(task))} with two different observations: its "
            "reset ignores what names a task, so the rollouts of a group would play different ones "
            f"({short_repr(texts[0], 60)}, {short_repr(texts[1], 60)})"
        )

    def step(self, socket: Socket, action: Mapping[str, Any]) -> ServerAnswer:
        """The answer to an action in a session, which only one thread may use at a time. Raises
        HttpError, NotAccepted for the action's form."""
        return self._loop.run(self._exchange(socket, "step", action))

    def leave(self, socket: Socket) -> None:
        """End a session, without waiting for the server; may be called twice."""
        self._freed = time.monotonic()
        self._loop.start(_close(socket))

    def _json(self, page: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a request."""
        address, client = f"{self._url}/{page}", self._client
        get = partial(client.get, address, self._timeout)
        post = partial(client.post, address, body or {}, self._timeout)
        return self._loop.run(with_retries(get if body is None else post, _RETRIES, lambda: None))

    async def _begin(self, task: Mapping[str, Any]) -> tuple[Socket, ServerAnswer]:
        start = time.monotonic()
        while True:
            try:
                return await with_retries(partial(self._enter, task), _RETRIES, lambda: None)
            except Full as error:
                if time.monotonic() - max(start, self._freed) > self._patience:
                    raise Full(
                        self._url,
                        f"{error.reason}, and no place became free within {self._patience:g} s: "
                        "set env_config.sessions to at most what the server plays at once",
                    ) from None
            await asyncio.sleep(_PAUSE)

    async def _enter(self, task: Mapping[str, Any]) -> tuple[Socket, ServerAnswer]:
        socket = await self._connected()
        try:
            return socket, await self._exchange(socket, "reset", task)
        except BaseException:
            await _close(socket)
            raise

    async def _connected(self) -> Socket:
        http = self._aiohttp
        if self._session is None:
            watch = http.TraceConfig()
            # A bound method would keep this object, and so its thread, alive.
            watch.on_request_redirect.append(partial(_refuse_redirect, self._url))
            self._session = http.ClientSession(
                headers=self._headers,
                trace_configs=[watch],
                connector=http.TCPConnector(limit=0),
                timeout=http.ClientTimeout(total=None),
            )
            self._loop.at_end(self._session.close)
        address = f"ws{self._url.removeprefix('http')}/ws"
        try:
            return await asyncio.wait_for(
                self._session.ws_connect(address, max_msg_size=MAX_BODY_BYTES), self._timeout
            )
        except TimeoutError:
            raise Unreachable(self._url, f"no answer within {self._timeout:g} s") from None
        except http.WSServerHandshakeError as error:
            kind = Refused if error.status in _FINAL else Unreachable
            raise kind(self._url, f"it opens no session (HTTP {error.status})") from None
        except (http.ClientError, OSError, ValueError) as error:
            raise Unreachable(self._url, str(error) or type(error).__name__) from None

    async def _exchange(self, socket: Socket, kind: str, data: Mapping[str, Any]) -> ServerAnswer:
        """The answer to a message "reset" or "step"."""
        # Where sending fails, the socket is closing, and what it said before stands in the queue.
        with contextlib.suppress(OSError, RuntimeError):
            await socket.send_str(json.dumps({"type": kind, "data": data}))
        try:
            answer = await socket.receive(self._timeout)
        except TimeoutError:  # another try would wait as long again
            raise Refused(self._url, f"no answer within {self._timeout:g} s") from None
        if not isinstance(answer.data, str):
            raise Unreachable(self._url, "the server ended the connection")
        return self._read(answer.data)

    def _read(self, text: str) -> ServerAnswer:
        try:
            message = json.loads(text)
            kind, data = message["type"], message["data"]
            if kind == "error":
                raise self._error(data)
            observation = data["observation"]
            metadata = data.get("metadata") or observation.get("metadata") or {}
            reward = data.get("reward")
            return ServerAnswer(
                observation,
                {**metadata, **observation},
                0.0 if reward is None else reward,
                bool(data.get("done")),
            )
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise Refused(self._url, f"its answer is none of OpenEnv: {text[:_SHOWN]}") from None

    def _error(self, data: Mapping[str, Any]) -> Refused:
        code, message = data.get("code"), str(data.get("message"))[:_SHOWN]
        if code == "CAPACITY_REACHED":
            return Full(self._url, f"the server is full ({message})")
        if code == "VALIDATION_ERROR":  # with pydantic's list of errors
            errors = data.get("errors")
            texts = [str(one.get("msg", "")) for one in errors] if isinstance(errors, list) else []
            return NotAccepted(self._url, "; ".join(filter(None, texts)) or message)
        return Refused(self._url, f"the server says {code}: {message}")


async def _refuse_redirect(url: str, session: Any, context: Any, parameters: Any) -> None:
    target = parameters.response.headers.get("Location", "nowhere")
    raise Refused(
        url,
        f"the server sends us to {target[:100]}; redirects are not followed: give that address if "
        "you trust it",
    )


async def _close(socket: Socket) -> None:
    """Close a session's socket, within two seconds."""
    with contextlib.suppress(OSError, RuntimeError, TimeoutError):
        await asyncio.wait_for(socket.close(), _CLOSE_SECONDS)
