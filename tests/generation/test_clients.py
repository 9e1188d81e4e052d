"""What today's clients send, recorded by scripts/record_clients.py, is answered by `serve-model`
and by the endpoint of a program."""

import itertools
import json
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
FAMILIES = ("qwen2_5", "qwen3_5_nothink")
each = pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family in FAMILIES for name in SENT]
)


def tokenizer_of(family):
    return tokenizer_for(template(family), "<|im_end|>")


@pytest.fixture(scope="module")
def served():
    """Models of which each token ends the answer; the URL of each family's."""
    made = {}
    for family in FAMILIES:
        tokenizer = tokenizer_of(family)
        engine = EmbeddedEngine(random_llama(tokenizer, max_position_embeddings=65536), tokenizer)
        engine._is_stop[:] = True
        app, batcher = application(engine, "agent")
        made[family] = ServerThread(app), batcher
    yield {family: server.url for family, (server, _) in made.items()}
    for server, batcher in made.values():
        server.close()
        batcher.close()


def post(url, name):
    request = SENT[name]
    headers = {**request["headers"], "x-api-key": "any"}
    answer = httpx.post(url + request["path"], json=request["body"], headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    kind = "text/event-stream" if request["body"].get("stream") else "application/json"
    assert answer.headers["content-type"].startswith(kind)
    return answer.text


@each
def test_a_served_model_answers_what_clients_send(served, family, name):
    assert post(served[family], name)


def texts_of(body):
    """What the last item of a body says."""
    last = (body.get("messages") or body["input"])[-1]
    said = last.get("content") or last.get("output") or ""
    parts = (
        [said] if isinstance(said, str) else [part.get("text") or part["content"] for part in said]
    )
    return [part if isinstance(part, str) else part[0]["text"] for part in parts]


@each
def test_a_program_gets_answers_to_what_clients_send(family, name):
    """And the model reads what the client said last."""
    tokenizer = tokenizer_of(family)

    class Program(ProgramEnv):
        def run(self, task, client):
            return float("58" in post(client.session_url, name))

    agent = DirectOutputAgent(TextEngine(tokenizer, "58<|im_end|>"), SamplingParams(max_tokens=99))
    (rollout,) = Program(tokenizer, {}).run_trial([{}], agent).rollouts
    assert rollout.error is None and rollout.final_reward == 1.0
    read = tokenizer.decode(rollout.rows[0].token_ids)
    assert all(text in read for text in texts_of(SENT[name]["body"]))
