"""Clients that do harm to `agentsgym serve-model`: others get their answers, nothing is lost."""

import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest
from generation_helpers import QUICK, requests

from agentsgym.child_process import free_ports
from agentsgym.generation.serving.listening import ServerThread
from agentsgym.generation.vllm import VLLMEngine
from agentsgym.runs.serve_model import application, load_engine
from agentsgym.runs.settings import ModelSettings
from helpers import CHATML, build_tokenizer, random_llama

CAPACITY = 8
HTTP = httpx.Client(timeout=60, limits=httpx.Limits(max_connections=None))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tokenizer, path = build_tokenizer(CHATML), tmp_path_factory.mktemp("model")
    random_llama(tokenizer).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


class Server:
    def __init__(self, folder):
        self.engine = load_engine(ModelSettings(path=str(folder), dtype="float32"), CAPACITY)
        app, self.batcher = application(self.engine, "m", max_model_len=200)
        self.thread = ServerThread(app)
        self.url = self.thread.url

    def close(self):
        self.thread.close()
        self.batcher.close()


@pytest.fixture
def server(folder):
    one = Server(folder)
    yield one
    one.close()


def soon(condition, seconds=20.0):
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


def complete(server, number, tokens=8):
    body = {"model": "m", "prompt": [5, number], "max_tokens": tokens, "seed": number}
    answer = HTTP.post(f"{server.url}/v1/completions", json=body)
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
    assert soon(lambda: not (batcher._open or batcher._waiting), 60)
    assert not engine._requests and engine._caches.sessions <= CAPACITY
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda number: complete(server, number % 6), range(200)))
    assert answers == [expected[number % 6] for number in range(200)]
    assert engine._caches.sessions <= CAPACITY


@pytest.mark.slow
def test_a_server_that_is_killed_under_open_requests_leaves_errors(folder):
    (port,) = free_ports(1)
    words = ["serve-model", str(folder), "--threads", "1", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-P", "-m", "agentsgym", *words])
    url = f"http://127.0.0.1:{port}"

    def ready():
        try:
            return httpx.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            return False

    engine = None
    try:
        assert soon(ready, 120)
        engine = VLLMEngine(url, build_tokenizer(CHATML), retries=QUICK)
        engine.submit(requests(12, tokens=900))
        threading.Timer(0.3, lambda: os.kill(process.pid, signal.SIGKILL)).start()
        results = []
        while len(results) < 12:
            results += engine.poll()
        assert "error" in [result.finish_reason for result in results]
        assert all(result.error for result in results if result.finish_reason == "error")
        process.wait()
        engine.submit(requests(2))
        results = []
        while len(results) < 2:
            results += engine.poll()
        assert [result.finish_reason for result in results] == ["error"] * 2
        assert all(result.error for result in results)
    finally:
        process.kill()
        process.wait()
        if engine is not None:
            engine.close()
