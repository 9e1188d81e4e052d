"""Servers that answer with anything but what was asked for: one clear error, no harm done."""

import pytest

from agentsgym import DirectOutputAgent
from agentsgym.generation.chat import ChatEngine, EndpointError
from agentsgym.generation.http import Refused, Retries
from agentsgym.generation.loop_thread import LoopThread
from agentsgym.generation.vllm.weights import served_models
from agentsgym.types import text as texts
from helpers import CountdownEnv
from local_server import RawServer

HELLO = [{"role": "user", "content": "hello"}]
ONCE = Retries(1)


@pytest.fixture
def server():
    made = RawServer()
    yield made
    made.close()


@pytest.fixture
def other():
    made = RawServer()
    yield made
    made.close()


@pytest.fixture
def no_secrets(monkeypatch):
    monkeypatch.setattr(texts, "_KNOWN", set())


def ask(server, url=None, **options):
    client = ChatEngine(url or server.url, "m", **({"key_env": None, "retries": ONCE} | options))
    try:
        return client.complete(HELLO)
    finally:
        client.close()


def chat(content, **more):
    return {"choices": [{"message": {"content": content}, "finish_reason": "stop"}], **more}


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_hands_the_conversation_to_nobody(server, other, status):
    other.says(chat("mine now"))
    server.says(b"", status, Location=f"{other.url}/v1/chat/completions")
    with pytest.raises(EndpointError, match="redirects are not followed"):
        ask(server)
    assert other.received == []


def test_an_encoding_that_was_not_asked_for_is_an_error(server):
    server.says(chat("yes"), Content_Encoding="br")
    with pytest.raises(EndpointError, match="encoded as 'br'"):
        ask(server)


@pytest.mark.parametrize(
    "body",
    [
        b"\xff\xfe\xff",
        b'{"choices": ' * 50_000,
        b'{"choices": [{"message": {"content": [1, 2]}}]}',
    ],
    ids=lambda body: repr(body[:24]),
)
def test_a_body_that_is_no_completion_is_named_as_that(server, body):
    server.says(body)
    with pytest.raises(EndpointError, match="no chat completion"):
        ask(server)
    server.says(body, 400)
    with pytest.raises(EndpointError, match="HTTP 400"):
        ask(server)


@pytest.mark.parametrize("usage", [None, 3, [], {"prompt_tokens": "x"}, {"prompt_tokens": [1]}])
def test_a_usage_of_another_shape_counts_nothing(server, usage):
    assert ask(server.says(chat("yes", usage=usage))) == "yes"


def test_what_a_server_says_does_not_move_the_cursor(server):
    server.says({"error": {"message": "\x1b[2J\u202egone"}}, 400)
    with pytest.raises(EndpointError, match=r"HTTP 400: \\x1b\[2J\\u202egone"):
        ask(server)


@pytest.mark.parametrize("wait", ["nan", "inf", "-5", "soon"])
def test_a_wait_without_end_is_not_obeyed(server, wait):
    server.says(b"", 503, Retry_After=wait)
    with pytest.raises(EndpointError, match="attempts: 2"):
        ask(server, retries=Retries(2, 0.01, 0.01))


def test_no_message_and_no_rollout_holds_a_key(server, monkeypatch, no_secrets):
    monkeypatch.setenv("SOME_KEY", "hunter2-hunter2")
    server.says({"error": {"message": "the key hunter2-hunter2 is wrong"}}, 401)
    url = f"{server.url}/v1?api_key=abcdef"
    with pytest.raises(EndpointError) as caught:
        ask(server, url, key_env="SOME_KEY")
    assert "the key *** is wrong" in str(caught.value)
    assert not any(word in str(caught.value) for word in ("hunter2", "abcdef"))
    with pytest.raises(EndpointError) as caught:
        ask(server, f"http://user:passport@127.0.0.1:{server.port}")
    assert "passport" not in str(caught.value)
    server.says(chat("your key is hunter2-hunter2"))
    agent = DirectOutputAgent(ChatEngine(server.url, "m", key_env="SOME_KEY", retries=ONCE))
    batch = CountdownEnv().run_trial([{"rewards": [1.0]}], agent)
    assert "hunter2" not in repr(batch.rollouts)
    assert server.received[-1][0] == "Bearer hunter2-hunter2"


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "m",
        [5],
        [{"id": 5}],
        [{}],
        [{"id": "m", "max_model_len": "x"}],
        [{"id": "m", "max_model_len": -1}],
    ],
)
def test_a_list_of_models_of_another_shape_is_refused(data):
    class Client:
        async def get(self, url, timeout):
            return {"data": data}

    loop = LoopThread("models")
    with pytest.raises(Refused, match="no list of models"):
        loop.run(served_models(Client(), "http://a"))
    loop.close()
