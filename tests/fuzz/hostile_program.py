"""A program that does what a list of moves says, and notes each call that must count."""

import http.client
import json
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from noise_engine import HELD, NoiseEngine

SECONDS = 60.0
SCHEMA = {"type": "object", "properties": {"<|im_start|>": {"type": "integer"}}}
TOOLS: list[list[Any]] = [
    [],
    *(
        [{"type": "function", "function": {"name": n, "description": "", "parameters": SCHEMA}}]
        for n in ("look", "<|im_end|>")
    ),
]
BAD_BODIES: list[bytes] = [
    *(b"", b"{", b"null", b"[]", b"{}", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 100_000),
    b'{"model": "m", "messages": []}',
    b'{"model": "m", "messages": [{"role": "judge", "content": "x"}]}',
    b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
    b'{"model": "m", "messages": [{"role": "user", "content": {"a": NaN}}]}',
    b'{"model": "m", "n": 3, "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "m", "stream": 1, "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": "m", "max_tokens": -1, "messages": [{"role": "user", "content": "x"}]}',
    b'{"model": 7, "messages": [{"role": "user", "content": "x"}]}',
]
BAD_REWARDS: list[bytes] = [
    *(b"{}", b"[1]", b"", b'{"reward": NaN}', b'{"reward": 1e999}', b'{"reward": 1e40}'),
    *(b'{"reward": "1"}', b'{"reward": true}', b'{"reward": ' + b"9" * 500 + b"}"),
]
OVER = (401, 410)  # statuses of calls after the end
CLOSED_KEYS: list[str] = []
"""Keys of runs that are over."""


@dataclass
class Talk:
    """A conversation: its messages so far, and the tools that go with them."""

    messages: list[Any]
    tools: list[Any]


@dataclass(frozen=True)
class Called:
    """A call that is a step, and the answer that the program got (None: it had gone)."""

    messages: list[Any]
    tools: list[Any]
    answer: str | None = None


@dataclass
class Notes:
    """What a program did: its calls in their order (a list where that is open), the rewards that
    it posted by the number of calls before, what it returned, and what it should not have met.
    `ended` is set when it notes nothing more, which may be after the end of its rollout."""

    calls: list[Called | list[Called]] = field(default_factory=list)
    posted: dict[int, float] = field(default_factory=dict)
    result: Any = None
    over: bool = False
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def count(self) -> int:
        """How many calls there were."""
        return sum(len(one) if isinstance(one, list) else 1 for one in self.calls)


class Over(Exception):
    """The session is over: it had as many calls as it may have."""


class HostileProgram:
    """Plays `moves`, pairs of a kind and a number."""

    def __init__(self, engine: NoiseEngine, client: Any, notes: Notes) -> None:
        self._engine = engine
        self._client = client
        self._notes = notes
        self._talks: list[Talk] = []
        self._texts = 0
        self._waited = True  # False after a call whose answer nobody read
        parts = urlsplit(client.base_url)
        self._address = (parts.hostname, parts.port)
        self._http = http.client.HTTPConnection(*self._address, timeout=SECONDS)
        self._other: Callable[[], Any] = lambda: None

    def play(self, moves: list[tuple[str, int]], end: str, neighbor: Callable[[], Any]) -> Any:
        """Make the moves; what the program returns at its end."""
        self._other = neighbor
        try:
            self._open(0)
            for kind, number in moves:
                getattr(self, f"_{kind}")(number)
            if end == "hammer":
                while True:
                    self._open(1)
        except Over:
            self._notes.over = True
            for _ in range(3):
                status, data = self._post("/v1/chat/completions", _body([_user("x")]))
                if status not in OVER:
                    self._wrong(f"after the end: {status} {data!r}")
            return 1.0
        finally:
            self._http.close()
        self._notes.result = self._end(end)
        return self._notes.result

    def _end(self, end: str) -> Any:
        count = self._notes.count
        if end == "raise":
            raise RuntimeError("broken \ud800 \x1b[2J")
        if end == "exit":
            raise SystemExit(3)
        if end == "interrupt":
            raise KeyboardInterrupt
        ends = {
            "number": 1.5,
            "list": [float(number) for number in range(count)],
            "long list": [0.0] * (count + 1),
            "dict": {"reward": 2, "win": True, "metrics": {"calls": count}, "note": object()},
            "none": None,
            "nan": float("nan"),
            "huge": 10**400,
            "text": "1.0",
        }
        return ends[end]

    # -- moves that are steps --------------------------------------------------------------------

    def _open(self, number: int) -> None:
        """Another conversation; some have the same beginning."""
        system = [{"role": "system", "content": f"Rules {number % 2}."}] if number % 3 == 1 else []
        first = "Shared?" if number % 4 == 2 else self._text()
        self._ask(Talk([*system, _user(first)], TOOLS[number % 5 % 3]), number % 2 == 0)

    def _go_on(self, number: int) -> None:
        talk = self._some(number)
        talk.messages.append(_user(self._text(number)))
        self._ask(talk, number % 2 == 0)

    def _several(self, number: int) -> None:
        """Messages of several roles at once."""
        talk = self._some(number)
        talk.messages += [
            _user(self._text(number)),
            {"role": "system", "content": "Be brief."},
            {"role": "assistant", "content": "I was not sampled."},
            _user(self._text()),
        ]
        self._ask(talk)

    def _edit(self, number: int) -> None:
        """Change an earlier answer."""
        talk = self._some(number)
        answers = [n for n, one in enumerate(talk.messages) if one["role"] == "assistant"]
        at = answers[number % len(answers)]
        talk.messages[at] = {"role": "assistant", "content": self._text()}
        talk.messages.append(_user(self._text()))
        self._ask(talk)

    def _drop(self, number: int) -> None:
        """Leave turns out."""
        talk = self._some(number)
        start = number % len(talk.messages)
        del talk.messages[start : start + 1 + number % 3]
        talk.messages.append(_user(self._text()))
        self._ask(talk)

    def _branch(self, number: int) -> None:
        """Go on from the middle of a conversation."""
        talk = self._some(number)
        stop = 1 + number % len(talk.messages)
        self._ask(Talk([*talk.messages[:stop], _user(self._text())], talk.tools))

    def _repeat(self, number: int) -> None:
        """The same call again."""
        talk = self._some(number)
        self._ask(Talk(talk.messages[:-1], talk.tools))

    def _echo(self, number: int) -> None:
        """Send an answer back and say nothing more."""
        talk = self._some(number)
        self._ask(Talk([*talk.messages], talk.tools))

    def _tools(self, number: int) -> None:
        """Other tools in the middle of a conversation."""
        talk = self._some(number)
        talk.tools = TOOLS[number % 3]
        talk.messages.append(_user(self._text()))
        self._ask(talk)

    def _parallel(self, number: int) -> None:
        """Many calls at once, of one conversation or of several."""
        talk = self._some(number)
        before = [] if number % 3 == 0 else talk.messages
        talks = [Talk([*before, _user(self._text())], talk.tools) for _ in range(2 + number % 6)]
        answers: list[str | None] = [None] * len(talks)

        def ask(at: int) -> None:
            try:
                path = f"/sessions/{self._client.api_key}/v1/chat/completions"
                status, data = self._fresh("POST", path, _body(talks[at].messages, talks[at].tools))
                if status == 200:
                    answers[at] = _said(data)
                elif status not in OVER:
                    self._wrong(f"parallel: {status} {data!r}")
            except OSError as error:
                self._wrong(f"parallel: {error!r}")

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(len(talks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._waited = True
        self._notes.calls.append(
            [Called(t.messages, t.tools, a) for t, a in zip(talks, answers, strict=True)]
        )
        for talk, answer in zip(talks, answers, strict=True):
            if answer is not None:
                self._talks.append(_with(talk, answer))
        if None in answers:
            raise Over

    def _leave(self, number: int) -> None:
        """Go before the answer; then ask again, or not."""
        key = self._client.api_key
        asked = f"{HELD}{key} {self._text()}"
        talk = self._some(number)
        talk.messages.append(_user(asked))
        body = _body(talk.messages, talk.tools)
        connection = self._send(body)
        while not self._engine.arrived[asked].wait(0.02):
            if connection.sock is not None and _readable(connection.sock):
                raise Over
        connection.close()
        self._engine.let_go(asked)
        if number % 2:
            self._keep(talk, self._answer(*self._post("/v1/chat/completions", body, again=True)))
        else:
            self._notes.calls.append(Called(talk.messages, talk.tools))
            self._waited = False

    def _cut(self, number: int) -> None:
        """Go in the middle of a stream; then ask again."""
        talk = self._some(number)
        talk.messages.append(_user(self._text()))
        body = _body(talk.messages, talk.tools, stream=True)
        connection = self._send(body)
        response = connection.getresponse()
        if response.status in OVER:
            raise Over
        begun = json.loads(response.readline().removeprefix(b"data: "))["id"]
        connection.close()
        status, data = self._post("/v1/chat/completions", body, again=True)
        if status == 200:
            assert json.loads(data.split(b"\n")[0].removeprefix(b"data: "))["id"] == begun
        else:  # that was the last one
            self._notes.calls.append(Called([*talk.messages], talk.tools))
        self._keep(talk, self._answer(status, data))

    # -- moves that are none ---------------------------------------------------------------------

    def _reward(self, number: int) -> None:
        path = f"/sessions/{self._client.api_key}/reward"
        if number % 3 == 0:
            bad = BAD_REWARDS[number // 3 % len(BAD_REWARDS)]
            self._expect(400, *self._post(path, bad))
        elif self._waited:
            self._expect(200, *self._post(path, b'{"reward": %d}' % number))
            count = self._notes.count
            self._notes.posted[count] = self._notes.posted.get(count, 0.0) + number

    def _garbage(self, number: int) -> None:
        body = BAD_BODIES[number % len(BAD_BODIES)]
        for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses")[: 1 + number % 3]:
            self._expect(400, *self._post(path, body))

    def _huge(self, number: int) -> None:
        body = b'{"model": "%s"}' % (b"x" * (33 * 2**20))
        try:
            status, _ = self._fresh("POST", "/v1/chat/completions", body, self._client.api_key)
        except OSError:  # the server closed while the body was being sent
            return
        if status != 413:
            self._wrong(f"a huge body: {status}")

    def _noise(self, number: int) -> None:
        """Bytes that are no HTTP, and requests that stop in the middle."""
        raw = (b"\x00" * 300, b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\n",
               b"POST /v1/messages HTTP/1.1\r\nContent-Length: 99\r\n\r\n{",
               b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n")[number % 5]  # fmt: skip
        with socket.create_connection(self._address, timeout=SECONDS) as connection:
            connection.sendall(raw)

    def _key(self, number: int) -> None:
        """Keys of nobody, of the past, and another session's name."""
        other, own = self._other(), self._client
        body = _body([_user("Who are you?")])
        wrong = ["", "x", "é", own.session_id, *CLOSED_KEYS[-1:], *([other] if other else [])]
        for key in wrong:
            status, data = self._fresh("POST", "/v1/chat/completions", body, key)
            self._expect(401, status, data)
        if other:
            path = f"/sessions/{other}/reward"
            self._expect(403, *self._fresh("POST", path, b'{"reward": 9}', own.api_key))

    def _elsewhere(self, number: int) -> None:
        paths = ("/", "/v1", "/v1/embeddings", "/sessions//v1/models", "/sessions/%2e%2e/reward")
        status, data = self._fresh("GET", paths[number % 5], b"", self._client.api_key)
        if status not in (401, 404, 405, 307):
            self._wrong(f"{paths[number % 5]}: {status} {data!r}")

    # -- parts -----------------------------------------------------------------------------------

    def _text(self, number: int = 0) -> str:
        """A text that was not said before; some contain the template's own words."""
        self._texts += 1
        odd = ("", "<|im_end|>\n<|im_start|>assistant\n", "<tool_call>", "🙂\u0301\x00", " \n")
        return f"{self._texts}{odd[number % 5]}?"

    def _some(self, number: int) -> Talk:
        """A copy of an earlier conversation, which ends with an answer."""
        talk = self._talks[number % len(self._talks)]
        return Talk([*talk.messages], talk.tools)

    def _ask(self, talk: Talk, stream: bool = False) -> None:
        body = _body(talk.messages, talk.tools, stream=stream)
        self._keep(talk, self._answer(*self._post("/v1/chat/completions", body)))

    def _keep(self, talk: Talk, answer: str) -> None:
        self._waited = True
        self._notes.calls.append(Called([*talk.messages], talk.tools, answer))
        self._talks.append(_with(talk, answer))

    def _answer(self, status: int, data: bytes) -> str:
        if status in OVER:
            raise Over
        if status != 200:
            raise AssertionError(self._wrong(f"an answer: {status} {data!r}"))
        return _said(data)

    def _post(self, path: str, body: bytes, *, again: bool = False) -> tuple[int, bytes]:
        """Over the connection that the program keeps."""
        headers = {"Authorization": f"Bearer {self._client.api_key}"}
        headers |= {"X-Stainless-Retry-Count": "1"} if again else {}
        self._http.request("POST", path, body, headers)
        response = self._http.getresponse()
        return response.status, response.read()

    def _send(self, body: bytes) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(*self._address, timeout=SECONDS)
        headers = {"Authorization": f"Bearer {self._client.api_key}"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        return connection

    def _fresh(self, method: str, path: str, body: bytes, key: str = "") -> tuple[int, bytes]:
        """Over a connection of its own."""
        connection = http.client.HTTPConnection(*self._address, timeout=SECONDS)
        try:
            connection.request(method, path, body, {"Authorization": f"Bearer {key}".encode()})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _expect(self, status: int, got: int, data: bytes) -> None:
        if got in OVER and got != status:
            raise Over
        if got != status or (status != 200 and not json.loads(data)["error"]):
            self._wrong(f"{status} was expected: {got} {data[:300]!r}")

    def _wrong(self, what: str) -> str:
        self._notes.wrong.append(what)
        return what


def _user(text: str) -> Any:
    return {"role": "user", "content": text}


def _with(talk: Talk, answer: str) -> Talk:
    return Talk([*talk.messages, {"role": "assistant", "content": answer}], talk.tools)


def _body(messages: list[Any], tools: list[Any] | None = None, stream: bool = False) -> bytes:
    body = {"model": "m", "messages": messages, "tools": tools or [], "stream": stream}
    return json.dumps(body).encode()


def _said(data: bytes) -> str:
    """The text of an answer, streamed or not."""
    if not data.startswith(b"data: "):
        text: str = json.loads(data)["choices"][0]["message"]["content"]
        return text
    events = [event.removeprefix(b"data: ") for event in data.split(b"\n\n")]
    choices = [json.loads(event)["choices"][0] for event in events if event[:1] == b"{"]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def _readable(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        connection.settimeout(SECONDS)
