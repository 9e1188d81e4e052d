"""A served environment in this process, and what it sends, word by word."""

import json
import threading
from contextlib import contextmanager
from urllib.request import Request, urlopen

import uvicorn
from websockets.sync.client import connect

from agentsgym.generation.serving.listening import listening
from agentsgym.integrations.openenv import make_app


@contextmanager
def served(env, **options):
    """Serve `env` in a thread; gives its address."""
    listener = listening("127.0.0.1", 0)
    config = uvicorn.Config(make_app(env, **options), log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class Connection:
    """A connection; `heard` has everything that the server sent on it, as it was sent."""

    def __init__(self, url, **options):
        self._socket = connect(f"{url.replace('http', 'ws')}/ws", **options)
        self.frames = []

    def ask(self, kind, **data):
        self._socket.send(json.dumps({"type": kind, "data": data}))
        return self.hear()

    def state(self):
        self._socket.send(json.dumps({"type": "state"}))
        return self.hear()["data"]

    def hear(self):
        self.frames.append(self._socket.recv(timeout=20))
        return json.loads(self.frames[-1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()


def fetched(url, body=None, headers=None):
    """The text of a page."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    with urlopen(request, timeout=20) as answer:
        return answer.read().decode()
