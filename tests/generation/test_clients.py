"""What today's clients send, recorded by scripts/record_clients.py, is answered by `serve-model`
and by the endpoint of a program."""

import itertools
import json
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from agentsgym import DirectOutputAgent
from agentsgym.envs.program.env import ProgramEnv
from agentsgym.generation import EmbeddedEngine
from agentsgym.generation.serving.listening import ServerThread
from agentsgym.runs.serve_model import application
from agentsgym.types import SamplingParams
from chat_tokenizers import template, tokenizer_for
from helpers import random_llama
from rollout.doubles import TextEngine

FOLDER = Path(__file__).parent / "clients"


def recorded(path):
    """The requests of a fixture, with what a body has "as before"."""
    requests = json.loads(path.read_text())["requests"]
    for before, after in itertools.pairwise(requests):
        for key, value in after["body"].items():
            if value == "as before":
                after["body"][key] = before["body"][key]
    return requests


SENT = {
    f"{path.stem}-{number}": request
    for path in sorted(FOLDER.glob("*.json"))
    for number, request in enumerate(recorded(path), 1)
}
SHORT = [name for name in SENT if len(json.dumps(SENT[name]["body"])) < 20_000]
"""Those that a model reads within seconds on a CPU."""


@pytest.fixture(scope="module")
def served():
    """The URL of a model of which each token ends the answer."""
    tokenizer = tokenizer_for(template("qwen2_5"), "<|im_end|>")
    engine = EmbeddedEngine(random_llama(tokenizer, max_position_embeddings=65536), tokenizer)
    engine._is_stop[:] = True
    app, batcher = application(engine, "agent")
    with closing(batcher), closing(ServerThread(app)) as server:
        yield server.url


def post(url, name):
    request = SENT[name]
    headers = {**request["headers"], "x-api-key": "any"}
    answer = httpx.post(url + request["path"], json=request["body"], headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    kind = "text/event-stream" if request["body"].get("stream") else "application/json"
    assert answer.headers["content-type"].startswith(kind)
    return answer.text


@pytest.mark.parametrize("name", SHORT)
def test_a_served_model_answers_what_clients_send(served, name):
    assert post(served, name)


def texts_of(body):
    """What the last item of a body says."""
    last = (body.get("messages") or body["input"])[-1]
    said = last.get("content") or last.get("output") or ""
    parts = (
        [said] if isinstance(said, str) else [part.get("text") or part["content"] for part in said]
    )
    return [part if isinstance(part, str) else part[0]["text"] for part in parts]


@pytest.mark.parametrize("name", SENT)
def test_a_program_gets_answers_to_what_clients_send(name):
    """And the model reads what the client said last."""
    tokenizer = tokenizer_for(template("qwen3_5_nothink"), "<|im_end|>")

    class Program(ProgramEnv):
        def run(self, task, client):
            return float("58" in post(client.session_url, name))

    agent = DirectOutputAgent(TextEngine(tokenizer, "58<|im_end|>"), SamplingParams(max_tokens=99))
    (rollout,) = Program(tokenizer, {}).run_trial([{}], agent).rollouts
    assert rollout.error is None and rollout.final_reward == 1.0
    read = tokenizer.decode(rollout.rows[0].token_ids)
    assert all(text in read for text in texts_of(SENT[name]["body"]))
