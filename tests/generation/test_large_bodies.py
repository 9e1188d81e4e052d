"""A client whose body is far too long is refused soon, and holds no other client."""

import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serving import Server

MIB = 2**20
LONG = {
    "words": "hello world " * (MIB * 16 // 12),
    "one word": "a" * (16 * MIB),
    "control tokens": "<|im_end|>" * (MIB * 16 // 10),
}
TURNS = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
BODIES = {name: [{"role": "user", "content": text}] for name, text in LONG.items()}
BODIES["many messages"] = TURNS * 20_000
pytestmark = pytest.mark.clock


@pytest.fixture(scope="module")
def server():
    one = Server("qwen2_5", max_model_len=512)
    yield one
    one.close()


def longest_wait(server, until):
    """The most seconds that a small request took, asked again and again."""
    waits = []
    while not until():
        begun = time.monotonic()
        answer = server.post("chat/completions", messages=[{"role": "user", "content": "Hi?"}])
        assert answer.status_code == 200
        waits.append(time.monotonic() - begun)
    return max(waits)


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_no_context_holds(server, name):
    body = json.dumps({"model": "m", "messages": BODIES[name]})
    with ThreadPoolExecutor(1) as pool:
        begun = time.monotonic()
        big = pool.submit(httpx.post, f"{server.url}/v1/chat/completions", content=body, timeout=99)
        waited = longest_wait(server, big.done)
        took = time.monotonic() - begun
    answer = big.result()
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert waited < 3 and took < 20
