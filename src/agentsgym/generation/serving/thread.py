"""A server in a daemon thread of this process."""

import time
from concurrent.futures import wait
from typing import Self

import uvicorn
from starlette.types import ASGIApp

from agentsgym.generation.loop_thread import LoopThread
from agentsgym.generation.serving.listening import listening

_CLOSE_SECONDS = 2.0
_POLL_SECONDS = 0.001
# Programs run tools between calls: a connection that the server closes meanwhile would fail them.
_KEEP_ALIVE_SECONDS = 3600


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves such an application: without logs of its own."""
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


class ServerThread:
    """Serves `app` at `url` until `close`; port 0 takes a free one.

    Signals remain the program's. Raises OSError if the address cannot be used.
    """

    def __init__(self, app: ASGIApp, host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = listening(host, port)
        self._server = uvicorn.Server(server_config(app))
        self._loop = LoopThread("agentsgym-server")
        self._serving = self._loop.start(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise RuntimeError("the server ended before it began")
            time.sleep(_POLL_SECONDS)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{host}:{self.port}"

    def close(self) -> None:
        """End the server and its requests; may be called twice."""
        self._server.should_exit = True
        wait([self._serving], _CLOSE_SECONDS)
        self._loop.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
