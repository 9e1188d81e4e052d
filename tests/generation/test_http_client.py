"""Answers of HTTP servers, byte by byte: one clear error for what is none; and what is sent."""

import asyncio
from contextlib import suppress

import pytest

from agentsgym.generation.http import MAX_BODY_BYTES, JsonClient, Unreachable
from agentsgym.generation.loop_thread import LoopThread

OK = b"HTTP/1.1 200 OK\r\n"
ONE = OK + b"Content-Length: 1\r\n\r\n1"


class ByteServer:
    """Gives the n-th request the n-th of `answers`, in pieces if it is a list, and then closes the
    connection if `closes`; keeps what it was sent."""

    def __init__(self, tls=None):
        self.answers, self.closes, self.received = [], False, []
        self.loop = LoopThread("bytes")
        start = asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.server = self.loop.run(start)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"

    async def _serve(self, reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0] or 0)
                await reader.readexactly(length)
                self.received.append(head)
                answer = self.answers.pop(0)
                for piece in answer if isinstance(answer, list) else [answer]:
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01)
                if self.closes:
                    break
        writer.close()

    def close(self):
        self.loop.call_soon(self.server.close)
        self.loop.close()


@pytest.fixture
def server():
    made = ByteServer()
    yield made
    made.close()


@pytest.fixture
def loop():
    made = LoopThread("client")
    yield made
    made.close()


@pytest.fixture
def client(loop):
    made = JsonClient()
    loop.at_end(made.close)
    return made


@pytest.fixture
def ask(server, client, loop):
    """What the server is understood to say with an answer."""

    def exchange(answer, timeout=5.0):
        server.answers = [answer]
        return loop.run(client.post(f"{server.url}/x", {}, timeout))

    return exchange


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
        OK + b"Content-Length: 5\r\n\r\n123",
        OK + b"a: " + b"b" * 200_000,
        OK + b"\r\n" + b"0" * (MAX_BODY_BYTES + 1),
        OK + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
    ids=lambda value: repr(value[-24:]),
)
def test_what_is_no_answer_is_an_error(ask, server, answer):
    server.closes = True
    with pytest.raises(Unreachable):
        ask(answer)
    server.closes = False
    assert ask(ONE) == 1


def test_an_answer_that_comes_too_late_is_nobody_elses(ask):
    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s"):
        ask([OK, *[b"a: b\r\n"] * 40, b"Content-Length: 1\r\n\r\n1"], timeout=0.2)
    assert ask(OK + b"Content-Length: 1\r\n\r\n2") == 2


@pytest.mark.parametrize("url", ["ftp://a/", "http://", "a.b/c", "http://[/"])
def test_what_is_no_url_is_an_error(client, loop, url):
    with pytest.raises(Unreachable):
        loop.run(client.get(url, 5.0))


def test_no_key_writes_headers_of_its_own(loop, server):
    client = JsonClient({"Authorization": "Bearer k3y\r\nHost: b"})
    loop.at_end(client.close)
    with pytest.raises(Unreachable) as caught:
        loop.run(client.get(server.url, 5.0))
    assert "k3y" not in str(caught.value) and not server.received
