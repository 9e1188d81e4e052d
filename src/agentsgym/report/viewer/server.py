"""Serves the page of one or two runs on this machine, with their rollouts piece by piece.

Only loopback is listened to. Every address begins with a random token, so that another user or
program of the machine can't read the run; a request whose Host header names another host is
refused, so that a web page can't read it by rebinding its own name. A request never becomes a path:
sets are found among those that the run has.
"""

import json
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar
from urllib.parse import unquote

from agentsgym.report.stored import Contents, Source
from agentsgym.report.viewer.data import block_data, comparison
from agentsgym.report.viewer.file import blocks, list_data, set_name
from agentsgym.report.viewer.page import page, policy

Json = dict[str, Any]
T = TypeVar("T")

_KEPT_SETS = 4
_NUMBER = re.compile(r"\d{1,9}")


class NotThere(LookupError):
    """The run has no such piece."""


class Library:
    """The pieces of one or two sources; the sets read last are kept in memory."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._read = lru_cache(_KEPT_SETS)(self._read_set)
        self._pieces: dict[tuple[str, int], Callable[..., Json]] = {
            ("overview", 0): self._overview,
            ("set", 2): self._rollouts,
            ("block", 3): self._block,
            ("comparison", 4): self._comparison,
        }

    def piece(self, name: str, *parts: str) -> Json:
        """What the page asks for by an address: the overview, a set, a block, or a comparison.
        Raises NotThere."""
        if (name, len(parts)) not in self._pieces:
            raise NotThere(name)
        return self._pieces[name, len(parts)](*parts)

    def _overview(self) -> Json:
        """What the page opens with: everything but the rollouts."""
        return {"sources": [_overview(source) for source in self._sources]}

    def _rollouts(self, source: str, name: str) -> Json:
        """The list of a set's rollouts."""
        contents = self._read(source, name)
        return list_data(contents.lines, contents)

    def _block(self, source: str, name: str, place: str) -> Json:
        """A block of rollouts with their tokens."""
        contents = self._read(source, name)
        lines = _at(blocks(contents.lines), place)
        read = _at(self._sources, source)
        return block_data(lines, read.pieces, contents.records, read.estimator)

    def _comparison(self, source: str, name: str, other: str, other_name: str) -> Json:
        """The difference between two sets on the same tasks; empty if there are no pairs."""
        left, right = self._read(source, name), self._read(other, other_name)
        return comparison(left.lines, right.lines) or {}

    def _read_set(self, source: str, name: str) -> Contents:
        for one in _at(self._sources, source).sets():
            if one.id == name:
                return one.read()
        raise NotThere(name)


def _at(values: Sequence[T], number: str) -> T:
    if not _NUMBER.fullmatch(number) or int(number) >= len(values):
        raise NotThere(number)
    return values[int(number)]


def _overview(source: Source) -> Json:
    found = source.overview()
    status = (found["summary"] or found["evaluation"] or {}).get("status")
    return found | {
        "sets": [set_name(one) for one in source.sets()],
        "growing": status == "running",
    }


class PageServer(ThreadingHTTPServer):
    """The server of a library; `address` is what to open in a browser."""

    daemon_threads = True

    def __init__(self, library: Library) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.library = library
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        """Its URL, with the token."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def is_named(self, host: str | None) -> bool:
        """Whether a Host header names this server."""
        return host in (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version = "agentsgym"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer a request, or refuse it without saying why."""
        path = self.path.split("?")[0].removeprefix("/")  # `*` is a target too
        first, *parts = [unquote(part) for part in path.split("/")]
        if not self.server.is_named(self.headers.get("Host")):
            self._answer(421, b"", "text/plain")
        elif not secrets.compare_digest(first.encode(), self.server.token.encode()):
            self._answer(404, b"", "text/plain")
        elif parts == [""]:
            text = "".join(page([], served=True))
            self._answer(200, text.encode(), "text/html; charset=utf-8")
        else:
            self._answer_data(parts)

    def _answer_data(self, parts: list[str]) -> None:
        try:
            if len(parts) < 2 or parts[0] != "data":
                raise NotThere
            found = self.server.library.piece(*parts[1:])
        except NotThere:
            self._answer(404, b"the run has no such rollouts", "text/plain")
            return
        text = json.dumps(found, allow_nan=False, separators=(",", ":"))
        self._answer(200, text.encode("ascii"), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": f"{policy(True)}; frame-ancestors 'none'",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Requests are not logged: their addresses contain the token."""
