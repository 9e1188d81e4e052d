"""The server of an environment: `agentsgym serve`.

OpenEnv has no authentication; with a token, all requests need it."""

import functools
from collections.abc import Callable

from agentsgym.envs import ConfigError
from agentsgym.envs.base import MultistepEnv
from agentsgym.envs.extras import require
from agentsgym.generation.serving.listening import (
    LOOPBACK,
    Application,
    Guard,
    check_host,
    listen_and_serve,
)
from agentsgym.rollout.drive import plays_episodes

_LONGEST_MESSAGE = 2**20  # bytes of a client's message: an action is a text
_PING_SECONDS = 20.0


def make_app(
    env: MultistepEnv,
    sessions: int = 64,
    idle_seconds: float = 600.0,
    *,
    loopback: bool = True,
    token: str | None = None,
) -> Application:
    """An ASGI application that serves `env` by OpenEnv's protocol.

    `sessions` play at once; OpenEnv refuses a client beyond them (CAPACITY_REACHED), which must try
    again. A session without a message for `idle_seconds` ends and frees its place; OpenEnv looks
    every quarter of that time, at least every 5 s.

    With `loopback`, requests must name this machine in their Host header; with a `token`, they must
    carry it (`Guard`). Raises MissingExtra without the extra `openenv`, and ConfigError for an
    environment that cannot be stepped.
    """
    require("openenv", "openenv")
    if plays_episodes(env):
        raise ConfigError(f"{env.name} defines its own _run_complete_episode and cannot be served")
    return Guard(_application(env, sessions, idle_seconds), loopback=loopback, token=token)


def serve(
    env: MultistepEnv,
    sessions: int = 64,
    idle_seconds: float = 600.0,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    started: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve `env` until the process is interrupted.

    `started` is called with the address as soon as clients can connect; port 0 takes a free one.
    Raises ConfigError for a host that others reach without a token, and what `make_app` does;
    OSError if the port is taken.
    """
    check_host(host, token)
    app = make_app(env, sessions, idle_seconds, loopback=host in LOOPBACK, token=token)
    uvicorn = require("uvicorn", "openenv")
    config = uvicorn.Config(
        app,
        log_level="warning",
        ws_max_size=_LONGEST_MESSAGE,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PING_SECONDS,
        timeout_graceful_shutdown=2,
    )
    listen_and_serve(config, host, port, started)


def _application(env: MultistepEnv, sessions: int, idle_seconds: float) -> Application:
    from openenv.core.env_server.http_server import create_fastapi_app
    from openenv.core.env_server.types import ConcurrencyConfig

    from agentsgym.integrations.openenv.served import (
        ServedEnvironment,
        TextAction,
        TextObservation,
        TrialHost,
    )

    made: Application = create_fastapi_app(
        functools.partial(ServedEnvironment, TrialHost(env)),
        TextAction,
        TextObservation,
        env_name=env.name.replace("/", "-"),
        concurrency_config=ConcurrencyConfig(
            max_concurrent_envs=sessions, session_timeout=idle_seconds
        ),
        mode="simulation",
    )
    return made
