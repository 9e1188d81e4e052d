"""A server in this process, until it is interrupted or in a thread, for clients that may ask it.

On loopback it refuses requests whose Host header names another machine, so that a web page can't
reach it by rebinding its own name, and everywhere pages of other origins, because a browser lets
any page send some requests."""

import secrets
import socket
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from agentsgym.types.names import ConfigError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_CLOSE_SECONDS = 2.0
_POLL_SECONDS = 0.001
# Programs run tools between calls: a connection that the server closes meanwhile would fail them.
_KEEP_ALIVE_SECONDS = 3600


def check_host(host: str, key: str | None) -> None:
    """Raise ConfigError for a host that others reach, without a key."""
    if host not in LOOPBACK and key is None:
        raise ConfigError(
            f"on {host} others can reach the server: name the environment variable of a key that "
            "clients need, or leave out the host"
        )


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


def server_config(app: Any) -> Any:
    """How uvicorn serves an application: without logs of its own."""
    import uvicorn

    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )


def listen_and_serve(
    config: Any, host: str, port: int, started: Callable[[str], None] = lambda address: None
) -> None:
    """Serve by a `uvicorn.Config` until the process is interrupted.

    `started` is called with the address as soon as clients can connect; port 0 takes a free one.
    Raises OSError if the port is taken.
    """
    import uvicorn

    with closing(listening(host, port)) as listener:
        name, at = listener.getsockname()[:2]
        started(f"http://[{name}]:{at}" if ":" in name else f"http://{name}:{at}")
        uvicorn.Server(config).run(sockets=[listener])


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address. Raises OSError that names it.

    It names its protocol: asyncio sends small parts at once (NODELAY) only where it does, and
    otherwise each answer waits 40 ms for an acknowledgment.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((host, port))
        made.listen(2048)
    except OSError as error:
        made.close()
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from None
    return made


class ServerThread:
    """Serves `app` at `url`, on loopback, in a daemon thread until `close`. Signals remain the
    program's."""

    def __init__(self, app: Any) -> None:
        import uvicorn

        listener = listening("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._server = uvicorn.Server(server_config(app))
        self._thread = threading.Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server ended before it began")
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End the server and its requests; may be called twice."""
        self._server.should_exit = True
        self._thread.join(_CLOSE_SECONDS)
