"""A connection to an HTTP/1.1 server, kept open from one exchange to the next.

The invariant: an answer is whole, and its body has at most `MAX_BODY_BYTES`. Whatever else a server
sends becomes an OSError or a ValueError, and the connection is not used again.

h11 reads the answers. There are no redirects, cookies, compression or proxies: each action is one
exchange, and for a general client (aiohttp's) it took as long as all the rest of a step, half of it
for the garbage collector, which walks through its fifty objects per open request.
"""

import asyncio
import base64
import ssl
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import h11

MAX_BODY_BYTES = 32 * 2**20
"""Limit for one answer; far more than the tokens of one action need."""

_LONGEST_IDLE = 15.0  # seconds, after which something on the way may have forgotten the connection
_NEXT_ADDRESS = 0.25  # seconds until another address of the host is tried as well
_UNQUOTED = "!$%&'()*+,/:;=?@[]~"
# What h11 is told of every request: it would check all headers again, and needs to know of none.
_REQUEST = h11.Request(method="GET", target="/", headers=[("Host", "any")])


class Target(NamedTuple):
    """What a URL means: `server` is host, port and whether by TLS; `path` and `headers` are what a
    request says."""

    server: tuple[str, int, bool]
    path: str
    headers: str


@lru_cache(maxsize=256)
def parse_url(url: str) -> Target:
    """The target of requests to a URL. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address begins with http:// or https:// and a host")
    tls = parts.scheme == "https"
    credentials, _, host = parts.netloc.rpartition("@")
    headers = f"Host: {host}\r\n"
    if credentials:
        basic = base64.b64encode(unquote(credentials).encode()).decode()
        headers += f"Authorization: Basic {basic}\r\n"
    path = f"{parts.path or '/'}?{parts.query}".removesuffix("?")
    server = (parts.hostname, parts.port or (443 if tls else 80), tls)
    return Target(server, quote(path, _UNQUOTED), headers)


class Response(NamedTuple):
    """A server's answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection(asyncio.Protocol):
    """Made by `connect`. `ask` may be called again, after it has returned, while `lasts`."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.CLIENT)
        self._arrival: asyncio.Future[None] | None = None
        self._lost: Exception | None = None
        self._used = 0.0

    @classmethod
    async def connect(cls, host: str, port: int, tls: ssl.SSLContext | None) -> "Connection":
        """A new connection. Raises OSError or ValueError."""
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, host, port, ssl=tls, happy_eyeballs_delay=_NEXT_ADDRESS
        )
        return connection

    @property
    def lasts(self) -> bool:
        """Whether it can be used again."""
        fresh = time.monotonic() - self._used < _LONGEST_IDLE
        return fresh and self._http.our_state is h11.IDLE and not self._transport.is_closing()

    async def ask(self, request: bytes) -> Response:
        """Send a request; return its answer. Raises OSError or ValueError."""
        head, body = None, bytearray()
        try:
            self._http.send(_REQUEST)
            self._http.send(h11.EndOfMessage())
            self._transport.write(request)
            while not isinstance(event := await self._event(), h11.EndOfMessage):
                if isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise ValueError(f"its body exceeds {MAX_BODY_BYTES // 2**20} MiB")
            self._used = time.monotonic()
            if self._http.their_state is h11.DONE and not self._http.trailing_data[0]:
                self._http.start_next_cycle()
        except h11.RemoteProtocolError as error:
            raise ValueError(f"no answer in HTTP: {error}") from None
        finally:
            if not self.lasts:
                self.close()
        assert head is not None
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return Response(head.status_code, headers, bytes(body))

    def close(self) -> None:
        """Close it at once."""
        self._transport.abort()

    async def _event(self) -> Any:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._arrival = self._loop.create_future()
            await self._arrival
            if self._lost is not None:
                raise self._lost
        return event

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._http.our_state is h11.IDLE:
            self.close()  # nothing was asked
        self._http.receive_data(data)
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self._lost = error
        self._http.receive_data(b"")
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
