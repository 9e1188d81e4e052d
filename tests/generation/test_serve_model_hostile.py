"""Clients that do harm: others get their answers soon, nothing is lost."""

import http.client
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest

from helpers import wait_until
from serve_process import Served
from serving import Server


@pytest.fixture
def server(folder):
    one = Served(folder)
    yield one
    one.close()


def complete(server, number, tokens=8):
    body = {"model": "m", "prompt": [5, number], "max_tokens": tokens, "seed": number}
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    return answer.json()["choices"][0]["token_ids"]


def leaves(server, number):
    """A client that goes while its request is sampled, waits, or is being sent."""
    url = urlsplit(server.url)
    connection = http.client.HTTPConnection(url.hostname, url.port)
    path, body = random.Random(number).choice(
        [
            ("/v1/completions", {"prompt": [5, 6], "max_tokens": 190, "user": f"u{number}"}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go?"}]}),
            ("/v1/completions", {"prompt": [5, 9999], "max_tokens": 4}),
            ("/v1/completions", "nonsense"),
        ]
    )
    body = {"model": "m", **body} if isinstance(body, dict) else body
    connection.request("POST", path, json.dumps(body))
    time.sleep(0.02 * (number % 3))
    connection.close()


def test_clients_that_go_and_garbage_cost_no_capacity(server):
    expected = [complete(server, number) for number in range(6)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: leaves(server, number), range(40)))
    batcher, engine = server.batcher, server.engine
    wait_until(lambda: not (batcher._open or batcher._waiting))
    assert not engine._requests and engine._caches.sessions <= engine.capacity
    with ThreadPoolExecutor(70) as pool:  # more than the engine samples at once
        answers = list(pool.map(lambda number: complete(server, number % 6), range(70)))
    assert answers == [expected[number % 6] for number in range(70)]
    assert engine._caches.sessions <= engine.capacity


# -- bodies that are far too long ------------------------------------------------------------------

MIB = 2**20
LONG = {
    "words": "hello world " * (MIB * 16 // 12),
    "one word": "a" * (16 * MIB),
    "control tokens": "<|im_end|>" * (MIB * 16 // 10),
}
TURNS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
BODIES = {name: [{"role": "user", "content": text}] for name, text in LONG.items()}
BODIES["many messages"] = TURNS * 20_000


def longest_wait(server, until):
    """The most seconds that a small request took, asked again and again."""
    waits = []
    while not until():
        begun = time.monotonic()
        answer = server.post("chat/completions", messages=[{"role": "user", "content": "Hi?"}])
        assert answer.status_code == 200
        waits.append(time.monotonic() - begun)
    return max(waits)


@pytest.mark.clock
@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_no_context_holds_is_refused_soon_and_holds_nobody(name):
    with closing(Server("qwen2_5", max_model_len=512)) as server:
        refused_soon(server, BODIES[name])


def refused_soon(server, messages):
    body = json.dumps({"model": "m", "messages": messages})
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        big = pool.submit(httpx.post, f"{server.url}/v1/chat/completions", content=body, timeout=99)
        waited = longest_wait(server, big.done)
        took = time.monotonic() - begun
    answer = big.result()
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert waited < 3 and took < 20
