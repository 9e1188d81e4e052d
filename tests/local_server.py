"""Real HTTP servers on loopback, each in a thread of this process."""

import json

from aiohttp import web

from agentsgym.generation.loop_thread import LoopThread


class LocalServer:
    """Answers by the routes that a subclass adds to the application; 0 is any free port."""

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self._runner: web.AppRunner | None = None
        self._loop = LoopThread(type(self).__name__)
        self.start()

    def add_routes(self, app: web.Application) -> None:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, at the same port as before."""
        self._loop.run(self._start())

    def die(self) -> None:
        """Stop listening and cut all connections."""
        self._loop.run(self._stop())

    def die_soon(self) -> None:
        """As `die`, without waiting; for callers inside a request."""
        self._loop.start(self._stop())

    def close(self) -> None:
        self.die()
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application()
        self.add_routes(app)
        self._runner = web.AppRunner(app, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for connection in list(runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await runner.cleanup()


class RawServer(LocalServer):
    """Gives every request the same raw answer and keeps what it was sent."""

    def __init__(self) -> None:
        self.received = []
        self.says(b"")
        super().__init__()

    def says(self, body, status=200, **headers):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = {"body": body, "status": status, "headers": named}
        return self

    def add_routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/{path:.*}", self._handle)

    async def _handle(self, request: web.Request) -> web.Response:
        self.received.append((request.headers.get("Authorization"), await request.text()))
        return web.Response(**self.answer)
