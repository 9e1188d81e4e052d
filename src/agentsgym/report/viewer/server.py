"""Serves the page of one or two runs on this machine, with their rollouts piece by piece.

Only loopback is listened to. Every address begins with a random token, so that another user or
program of the machine can't read the run; a request whose Host header names another host is
refused, so that a web page can't read it by rebinding its own name. A request never becomes a path:
sets are found among those that the run has.
"""

import json
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from agentsgym.report.viewer.library import Library, NotThere
from agentsgym.report.viewer.page import page, policy


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

    def answers_to(self, host: str | None) -> bool:
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
        if not self.server.answers_to(self.headers.get("Host")):
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
            if parts[0] != "data":
                raise NotThere
            piece = self.server.library.piece("/".join(parts[1:]))
        except NotThere:
            self._answer(404, b"the run has no such rollouts", "text/plain")
            return
        text = json.dumps(piece, allow_nan=False, separators=(",", ":"))
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
