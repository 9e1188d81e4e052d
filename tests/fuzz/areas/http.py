"""What endpoints and vLLM servers may answer."""

import functools
import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from agentsgym.generation.chat import ChatEngine, EndpointError
from agentsgym.generation.http import Retries
from agentsgym.generation.vllm.protocol import (
    MalformedAnswer,
    read_completion,
)
from fuzz.oracle import Area, refused_with
from fuzz.values import odd_values
from local_server import RawServer

HELLO: Any = [{"role": "user", "content": "hello"}]


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes


HEADERS = st.sampled_from(
    [
        {},
        {"Content-Encoding": "gzip"},
        {"Content-Encoding": "br"},
        {"Content-Encoding": "deflate"},
        {"Content-Type": "application/json; charset=hex"},
        {"Content-Type": "text/html; charset=utf-16"},
        {"Location": "http://127.0.0.1:9/"},
        {"Retry-After": "nan"},
        {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"},
    ]
)
STATUSES = st.just(200) | st.sampled_from([204, 301, 307, 308, 400, 401, 404, 429, 500, 503, 599])


def _chat(content: Any, usage: Any, reason: Any) -> Any:
    choice = {"message": {"content": content}, "finish_reason": reason}
    return {"choices": [choice], "usage": usage}


CHATS = st.builds(
    _chat,
    st.text(max_size=20) | odd_values(),
    odd_values(),
    st.sampled_from(["stop", "length", None, 3]) | odd_values(0),
)
BODIES = (
    (CHATS | odd_values()).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
    | st.sampled_from([b"[" * 50_000, b"", b"\xff\xfe", b"1" * 5000, b'{"choices": [{}]}'])
)


@functools.cache
def _parts() -> tuple[RawServer, ChatEngine]:
    server = RawServer()
    retries = Retries(2, 0.0, 0.0)
    return server, ChatEngine(server.url, "m", key_env=None, retries=retries, request_timeout=10.0)


def check_chat(answer: Answer) -> bool:
    """Text, or a sentence."""
    server, client = _parts()
    server.says(answer.body, answer.status, **answer.headers)
    try:
        text = client.complete(HELLO)
    except EndpointError as error:
        return refused_with(error)
    assert isinstance(text, str)
    return True


LISTS = st.lists(st.integers(0, 60) | odd_values(0), max_size=4)


def _completion(ids: Any, logprobs: Any, reason: Any) -> Any:
    choice = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}, "finish_reason": reason}
    return {"choices": [choice]}


GOOD_LISTS = st.lists(st.integers(0, 49), min_size=1, max_size=3)
COMPLETIONS = (
    GOOD_LISTS.map(lambda ids: _completion(ids, [-float(i) for i in ids], "stop"))
    | st.builds(
        _completion,
        LISTS | odd_values(0),
        st.lists(st.floats(-9, 0) | odd_values(0), max_size=4) | odd_values(0),
        st.sampled_from(["stop", "length"]) | odd_values(0),
    )
    | odd_values()
)


def check_completion(answer: Any) -> bool:
    """Ids and log-probabilities that training can use, or a sentence."""
    try:
        ids, logprobs, _ = read_completion(answer, vocab_size=50, max_tokens=3)
    except MalformedAnswer as error:
        return refused_with(error)
    assert 0 < len(ids) == len(logprobs) <= 3
    assert all(type(i) is int and 0 <= i < 50 for i in ids)
    assert all(type(p) is float and -1e9 < p <= 0 for p in logprobs)
    return True


CHAT_AREA = Area(
    "answers of chat endpoints", st.builds(Answer, STATUSES, HEADERS, BODIES), check_chat, cost=1.0
)
COMPLETIONS_AREA = Area("answers of vLLM servers", COMPLETIONS, check_completion, cost=0.5)
