"""Clients that do harm to `agentsgym serve-model`: others get their answers, nothing is lost."""

import http.client
import json
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest
from generation_helpers import QUICK, ask, drain, requests

from agentsgym.child_process import free_ports
from agentsgym.generation.vllm import VLLMEngine
from helpers import CHATML, build_tokenizer, wait_until
from serve_process import Served, ServeProcess


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
    for _ in range(2):
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda number: leaves(server, number), range(100)))
        assert [complete(server, number) for number in range(6)] == expected
    batcher, engine = server.batcher, server.engine
    wait_until(lambda: not (batcher._open or batcher._waiting))
    assert not engine._requests and engine._caches.sessions <= engine.capacity
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda number: complete(server, number % 6), range(200)))
    assert answers == [expected[number % 6] for number in range(200)]
    assert engine._caches.sessions <= engine.capacity


@pytest.mark.slow
def test_a_server_that_is_killed_under_open_requests_leaves_errors(folder):
    served = ServeProcess(folder, *free_ports(1))
    engine = None
    try:
        engine = VLLMEngine(served.ready().url, build_tokenizer(CHATML), retries=QUICK)
        engine.submit(requests(12, tokens=900))
        threading.Timer(0.3, served.process.kill).start()
        open_ones = drain(engine).values()
        assert len(open_ones) == 12
        failed = [result for result in open_ones if result.finish_reason == "error"]
        served.process.wait()
        failed += ask(engine, requests(2)).values()
        assert len(failed) > 2 and all(result.error for result in failed)
    finally:
        served.process.kill()
        served.process.wait()
        if engine is not None:
            engine.close()
