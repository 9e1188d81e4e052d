"""Clients that do harm to `agentsgym serve-model`: others get their answers, nothing is lost."""

import http.client
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

from helpers import wait_until
from serve_process import Served


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
