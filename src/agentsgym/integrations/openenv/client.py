"""A server of the OpenEnv protocol and this program's sessions on it: JSON over a WebSocket, one
session per connection.

A server is not trusted: it cannot redirect us, and the size of its messages is limited. Nothing
here waits for ever, and every problem is an `HttpError`: `Unreachable` where another try can help,
`Refused` where it can't."""

import contextlib
import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agentsgym.envs.extras import require
from agentsgym.generation.http import MAX_BODY_BYTES, Refused, Unreachable
from agentsgym.types.foreign import checked_truth
from agentsgym.types.text import short_repr

_ATTEMPTS = 5
_CLOSE_SECONDS = 1.0
_PAUSE = 0.2  # seconds between two attempts
_PORTS = {"http": 80, "https": 443}
_SHOWN = 500  # characters of a server's message in ours


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
    """

    def __init__(self, url: str, key: str | None, timeout: float, patience: float) -> None:
        self._connect = require("websockets.sync.client", "http").connect
        self._errors = require("websockets.exceptions", "http")
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = timeout
        self._patience = patience
        self._freed = 0.0
        self._unfit: str | None = None

    def begin(self, task: Mapping[str, Any]) -> tuple[Any, ServerAnswer]:
        """A new session on a task, in a place of its own. Raises HttpError."""
        self.check(task)
        return self._begin(task)

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
        texts = []
        for _ in range(2):
            line, seen = self._begin(task)
            self.leave(line)
            texts.append(json.dumps(seen.observation, sort_keys=True))
        if texts[0] == texts[1]:
            return ""
        return (
            f"it began the task {short_repr(dict(task))} with two different observations: its "
            "reset ignores what names a task, so the rollouts of a group would play different ones "
            f"({short_repr(texts[0], 60)}, {short_repr(texts[1], 60)})"
        )

    def step(self, line: Any, action: Mapping[str, Any]) -> ServerAnswer:
        """The answer to an action in a session, which only one thread may use at a time. Raises
        HttpError, NotAccepted for the action's form."""
        return self._exchange(line, "step", action)

    def leave(self, line: Any) -> None:
        """End a session, within a second; may be called twice."""
        self._freed = time.monotonic()
        line.close()

    def _begin(self, task: Mapping[str, Any]) -> tuple[Any, ServerAnswer]:
        start, left = time.monotonic(), _ATTEMPTS
        while True:
            try:
                return self._enter(task)
            except Unreachable:
                left -= 1
                if not left:
                    raise
            except Full as error:
                if time.monotonic() - max(start, self._freed) > self._patience:
                    raise Full(
                        self._url,
                        f"{error.reason}, and no place became free within {self._patience:g} s: "
                        "set env_config.sessions to at most what the server plays at once",
                    ) from None
            time.sleep(_PAUSE)

    def _enter(self, task: Mapping[str, Any]) -> tuple[Any, ServerAnswer]:
        line = self._connected()
        try:
            return line, self._exchange(line, "reset", task)
        except BaseException:
            line.close()
            raise

    def _connected(self) -> Any:
        parts, errors = urlsplit(self._url), self._errors
        try:
            # With a socket of our own, redirects are not followed.
            own = socket.create_connection(
                (parts.hostname, parts.port or _PORTS[parts.scheme]), self._timeout
            )
            own.settimeout(None)
            return self._connect(
                f"ws{self._url.removeprefix('http')}/ws",
                sock=own,
                additional_headers=self._headers,
                open_timeout=self._timeout,
                close_timeout=_CLOSE_SECONDS,
                max_size=MAX_BODY_BYTES,
            )
        except TimeoutError:
            raise Unreachable(self._url, f"no answer within {self._timeout:g} s") from None
        except (ValueError, errors.InvalidURI, errors.SecurityError) as error:
            raise Refused(self._url, f"redirects are not followed ({error})") from None
        except errors.InvalidStatus as error:
            status = error.response.status_code
            kind = Refused if status < 500 else Unreachable
            raise kind(self._url, f"it opens no session (HTTP {status})") from None
        except (errors.WebSocketException, OSError) as error:
            raise Unreachable(self._url, str(error) or type(error).__name__) from None

    def _exchange(self, line: Any, kind: str, data: Mapping[str, Any]) -> ServerAnswer:
        """The answer to a message "reset" or "step"."""
        # Where sending fails, the line is closing, and what it said before stands in the queue.
        with contextlib.suppress(self._errors.ConnectionClosed):
            line.send(json.dumps({"type": kind, "data": data}))
        try:
            answer = str(line.recv(self._timeout))
        except TimeoutError:  # another try would wait as long again
            raise Refused(self._url, f"no answer within {self._timeout:g} s") from None
        except self._errors.ConnectionClosed:
            raise Unreachable(self._url, "the server ended the connection") from None
        return self._read(answer)

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
                checked_truth(data.get("done", False), "done"),
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
