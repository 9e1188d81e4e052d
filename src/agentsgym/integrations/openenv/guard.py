"""Who may talk to a server: an ASGI middleware before OpenEnv's own application.

OpenEnv has no authentication. A server on loopback refuses requests whose Host header names another
machine, so that a web page can't reach it by rebinding its own name, and pages of other origins,
because a browser lets any page open a WebSocket. With a token, all requests need it.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

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
        given = headers.get("authorization", "")
        return secrets.compare_digest(given.encode(), f"Bearer {self._token}".encode())


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
