"""The server of an environment: `agentsgym serve`.

OpenEnv has no authentication. A server on loopback refuses requests whose Host header names another
machine, so that a web page can't reach it by rebinding its own name, and pages of other origins,
because a browser lets any page open a WebSocket. With a token, all requests need it."""

import functools
import importlib
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from agentsgym.envs import ConfigError
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.extras import require
from agentsgym.rollout.drive import plays_episodes

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Guard:
    """Lets only those requests through to `app` that are allowed.

    Args:
        loopback: whether the Host header must name this machine.
        token: what `Authorization: Bearer` must carry; None if nothing.
    """

    def __init__(self, app: Application, *, loopback: bool, token: str | None) -> None:
        self._app = app
        self._loopback = loopback
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse without saying why."""
        if scope["type"] == "lifespan" or self._allows(_headers(scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})  # before accept: HTTP 403
        else:
            await send({"type": "http.response.start", "status": 403, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    def _allows(self, headers: dict[str, str]) -> bool:
        host = headers.get("host", "")
        if self._loopback and _name(host) not in LOOPBACK:
            return False
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            return False
        if self._token is None:
            return True
        header = headers.get("authorization", "")
        return secrets.compare_digest(header.encode(), f"Bearer {self._token}".encode())


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _name(host: str) -> str:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # ValueError for a port that is no number
        return parts.hostname or ""
    except ValueError:
        return ""


_LONGEST_MESSAGE = 2**20  # bytes of a client's message: an action is a text
_PING_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server grants its clients.

    `sessions` play at once; OpenEnv refuses a client beyond them (CAPACITY_REACHED), which must try
    again. A session without a message for `idle_seconds` ends and frees its place; OpenEnv looks
    every quarter of that time, at least every 5 s.
    """

    sessions: int = 64
    idle_seconds: float = 600.0

    def __post_init__(self) -> None:
        if self.sessions < 1:
            raise ConfigError(f"sessions must be at least 1, got {self.sessions}")
        if self.idle_seconds <= 0:
            raise ConfigError(f"idle_seconds must be above 0, got {self.idle_seconds}")


def make_app(
    env: MultistepEnv,
    limits: Limits | None = None,
    *,
    web: bool = False,
    loopback: bool = True,
    token: str | None = None,
) -> Application:
    """An ASGI application that serves `env` by OpenEnv's protocol.

    With `web` it has OpenEnv's page for people at /web. With `loopback`, requests must name this
    machine in their Host header; with a `token`, they must carry it (`Guard`).

    Raises MissingExtra without the extra `openenv`, and ConfigError for an environment that cannot
    be stepped and for a page that asks for a token, which browsers would not send.
    """
    require("openenv", "openenv")
    if plays_episodes(env):
        raise ConfigError(f"{env.name} defines its own _run_complete_episode and cannot be served")
    if web and token is not None:
        raise ConfigError("a browser sends no token: leave the page or the token away")
    app = _application(env, limits or Limits(), web=web)
    return Guard(app, loopback=loopback, token=token)


def serve(
    env: MultistepEnv,
    limits: Limits | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    web: bool = False,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve `env` until the process is interrupted.

    `started` is called with the address as soon as clients can connect; port 0 takes a free one.
    Raises ConfigError for a host that others reach without a token, and what `make_app` does;
    OSError if the port is taken.
    """
    loopback = host in LOOPBACK
    if not loopback and token is None:
        raise ConfigError(
            f"on {host} others can reach the server, and OpenEnv asks nobody who they are: set a "
            "token, or leave the host away"
        )
    app = make_app(env, limits, web=web, loopback=loopback, token=token)
    uvicorn = require("uvicorn", "openenv")
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws_max_size=_LONGEST_MESSAGE,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PING_SECONDS,
        timeout_graceful_shutdown=2,
    )
    with closing(_listening(host, port)) as listener:
        name, at = listener.getsockname()[:2]
        started(f"http://[{name}]:{at}" if ":" in name else f"http://{name}:{at}")
        uvicorn.Server(config).run(sockets=[listener])


def _application(env: MultistepEnv, limits: Limits, *, web: bool) -> Application:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    place, name = ("web_interface", "web_interface") if web else ("http_server", "fastapi")
    module = importlib.import_module(f"openenv.core.env_server.{place}")
    from openenv.core.env_server.types import ConcurrencyConfig

    from agentsgym.integrations.openenv.served import (
        ServedEnvironment,
        TextAction,
        TextObservation,
        TrialHost,
    )

    made: Application = getattr(module, f"create_{name}_app")(
        functools.partial(ServedEnvironment, TrialHost(env)),
        TextAction,
        TextObservation,
        env_name=env.name.replace("/", "-"),  # in the addresses of the task API
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=limits.sessions, session_timeout=limits.idle_seconds
        ),
        mode="simulation",
    )
    return made


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return listener
