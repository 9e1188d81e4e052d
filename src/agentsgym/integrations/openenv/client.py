"""A server of the OpenEnv protocol and this program's sessions on it: JSON over a WebSocket, one
session per connection.

A server is not trusted: it cannot redirect us, and the size of its messages is limited. Nothing
here waits for ever, and every problem is a `ServerError`, whose kind says whether another try can
help."""

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
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
from agentsgym.integrations.openenv.fields import Fields, NoField, fields_of
from agentsgym.rollout.threads import check_wanted
from agentsgym.types.text import mask_secrets, short_repr, visible

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")

_WATCH_SECONDS = 0.5
_CLOSE_SECONDS = 2.0
_FINAL = (400, 401, 403, 404)  # another try does not help
_SHOWN = 500  # characters of a server's message in ours


class ServerError(RuntimeError):
    """A server gave no usable answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(visible(mask_secrets(reason)))


class Unreachable(ServerError):
    """There is no connection, or not any more."""


class AnswerTimeout(ServerError):
    """A session's server gave no answer in time; another try would wait as long again."""


class Full(ServerError):
    """All places of the server are taken."""


class NotAccepted(ServerError):
    """The server refused an action because of its form; the session goes on."""


class Faulty(ServerError):
    """The server reported an error, or answered in another way than OpenEnv does."""


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A server's answer to `reset` or `step`. `told` has the observation's fields over those of the
    metadata."""

    observation: Mapping[str, Any]
    told: Mapping[str, Any]
    reward: float
    done: bool


class ServerClient:
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

    def open(self) -> "Connection":
        """A new connection. Raises Unreachable."""
        return Connection(self, self.run(self._opened()))

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
        """Send a message and return the answer's text. Raises Unreachable or AnswerTimeout."""
        kinds = self._aiohttp.WSMsgType
        # Where sending fails, the socket is closing, and what it said before stands in the queue.
        with contextlib.suppress(self._aiohttp.ClientError, OSError, RuntimeError):
            await socket.send_str(json.dumps(message))
        try:
            answer = await socket.receive(self._timeout)
        except TimeoutError:
            raise AnswerTimeout(f"{self._url}: no answer within {self._timeout:g} s") from None
        if answer.type != kinds.TEXT:
            raise Unreachable(f"{self._url}: the server ended the connection")
        return str(answer.data)


class Connection:
    """One session on a server. Only one thread may use it at a time."""

    def __init__(self, wire: ServerClient, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._wire = wire
        self._socket = socket

    def ask(self, kind: str, data: Mapping[str, Any]) -> ServerAnswer:
        """The answer to a message "reset" or "step". Raises a ServerError."""
        sent = {"type": kind, "data": data}
        return _read(self._wire.run(self._wire.exchanged(self._socket, sent)))

    def close(self) -> None:
        """End the session, without waiting for the server; may be called twice."""
        self._wire.leave(self._socket)


def _read(text: str) -> ServerAnswer:
    try:
        message = json.loads(text)
        kind, data = message["type"], message["data"]
        if kind == "error":
            _raise(data)
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


_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_CHANCE = random.Random()


class ServerUnfit(RuntimeError):
    """A server that cannot be played; the message says why."""


class Remote:
    """A server, for all sessions of an environment.

    Args:
        wire: its address.
        patience: seconds that a session waits for a place while none becomes free here.
        fields: arguments of `fields_of` other than the schema.
    """

    def __init__(self, wire: ServerClient, patience: float, fields: Mapping[str, Any]) -> None:
        self._wire = wire
        self._patience = patience
        self._given = dict(fields)
        self._fields: Fields | None = None
        self._freed = 0.0
        self._unfit: str | None = None
        self._checked = False
        self._checking = threading.Lock()
        self._failed: ServerError | None = None
        self._failed_at = 0.0

    def begin(self, task: Mapping[str, Any]) -> tuple[Connection, ServerAnswer]:
        """A new session on a task, in a place of its own. Raises ServerError or ServerUnfit."""
        self.check(task)
        return self._begin(task)

    def end(self, line: Connection) -> None:
        """End a session."""
        line.close()
        self._freed = time.monotonic()

    @property
    def fields(self) -> Fields:
        """The fields of actions and observations. Raises ServerError or ServerUnfit."""
        if self._fields is None:
            schema = self._tried(lambda: self._wire.get("schema"))
            try:
                self._fields = fields_of(schema, **self._given)
            except NoField as error:
                raise ServerUnfit(f"the OpenEnv server cannot be played: {error}") from None
        return self._fields

    def number_of_tasks(self, split: str) -> int:
        """How many tasks the server's task API lists. Raises ServerError or ServerUnfit."""
        names = self._tried(lambda: self._wire.get("list_environments"))
        name = names[0] if isinstance(names, list) and names else "environment"
        answer = self._tried(lambda: self._wire.post(f"{name}/num_tasks", {"split": split}))
        number = answer.get("num_tasks") if isinstance(answer, Mapping) else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise ServerUnfit(f"the OpenEnv server lists no tasks of the split {split!r}")
        return number

    def check(self, task: Mapping[str, Any]) -> None:
        """Check once that a task is one: two sessions on it must begin with the same observation.

        A server whose `reset` ignores its arguments plays another game in each rollout of a group.
        Raises ServerUnfit, then and for each later session, and ServerError. Sessions that begin
        during the check share its failure: one after another they could wait for hours.
        """
        asked = time.monotonic()
        with self._checking:
            if not self._checked:
                if self._failed is not None and self._failed_at >= asked:
                    raise self._failed
                self._unfit = self._problem_or_failure(task)
                self._checked = True
        if self._unfit is not None:
            raise ServerUnfit(self._unfit)

    def _problem_or_failure(self, task: Mapping[str, Any]) -> str | None:
        try:
            return self._problem(task)
        except ServerError as error:
            self._failed, self._failed_at = error, time.monotonic()
            raise

    def _problem(self, task: Mapping[str, Any]) -> str | None:
        fields = self.fields
        texts = []
        for _ in range(2):
            line, seen = self._begin(task)
            self.end(line)
            texts.append(fields.text(seen.observation))
        if texts[0] == texts[1]:
            return None
        return (
            f"the OpenEnv server began the task {short_repr(dict(task))} with two different "
            "observations: its reset ignores what names a task, so the rollouts of a group would "
            f"play different ones ({short_repr(texts[0])}, {short_repr(texts[1])})"
        )

    def _begin(self, task: Mapping[str, Any]) -> tuple[Connection, ServerAnswer]:
        start = time.monotonic()
        for pause in _pauses():
            try:
                return self._tried(lambda: self._entered(task))
            except Full as error:
                self._give_up_after(start, error)
            _sleep(pause)
        raise AssertionError("there is always another pause")

    def _entered(self, task: Mapping[str, Any]) -> tuple[Connection, ServerAnswer]:
        line = self._wire.open()
        try:
            return line, line.ask("reset", task)
        except Full:
            line.close()
            raise
        except BaseException:
            self.end(line)
            raise

    def _give_up_after(self, start: float, error: Full) -> None:
        """Raise Full if no session of ours has freed a place for too long."""
        waited = time.monotonic() - max(start, self._freed)
        if waited > self._patience:
            raise Full(
                f"{error}, and no place became free within {self._patience:g} s: set "
                "env_config.sessions to at most what the server plays at once"
            )

    def _tried(self, work: Callable[[], T]) -> T:
        """Try work again if the server cannot be reached or drops the connection."""
        for _, pause in zip(range(_TRIES - 1), _pauses(), strict=False):
            try:
                return work()
            except Unreachable:
                _sleep(pause)
        return work()


def _pauses() -> Iterator[float]:
    """Ever longer seconds, other ones for each session."""
    longest = _FIRST_PAUSE
    while True:
        yield longest * _CHANCE.uniform(0.5, 1.0)
        longest = min(2.0 * longest, _LONGEST_PAUSE)


def _sleep(seconds: float) -> None:
    check_wanted()
    time.sleep(seconds)
