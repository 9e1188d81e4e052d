"""Log-probabilities that a client asks for are those that were recorded."""

import math

import openai
import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs.program.env import ProgramEnv
from noise_engine import NoiseEngine
from serving import Server

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]}
INCLUDE = {"include": ["message.output_text.logprobs"]}


@pytest.fixture(scope="module")
def server():
    one = Server("qwen2_5", "Hé.<|im_end|>")
    yield one
    one.close()


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def pairs(content):
    return [(one.token, one.logprob) for one in content]


# Each byte is a token of this tokenizer, and TextEngine says -1.0 of each.
EXPECTED = [("H", -1.0), ("\ufffd", -1.0), ("\ufffd", -1.0), (".", -1.0), ("<|im_end|>", -1.0)]


def test_chat_completions_answers_logprobs(client):
    choice = client.chat.completions.create(**ASKED, logprobs=True).choices[0]
    assert pairs(choice.logprobs.content) == EXPECTED
    assert [one.bytes for one in choice.logprobs.content][:2] == [[72], None]
    assert all(one.top_logprobs == [] for one in choice.logprobs.content)
    assert client.chat.completions.create(**ASKED).choices[0].logprobs is None


def test_responses_answers_what_it_is_asked_to_include(client):
    asked = {"model": "m", "input": "Hi?"}
    part = client.responses.create(**asked, **INCLUDE).output[0].content[0]
    assert pairs(part.logprobs) == EXPECTED
    assert not client.responses.create(**asked).output[0].content[0].logprobs
    with client.responses.stream(**asked, **INCLUDE) as stream:
        done = [event for event in stream if event.type == "response.output_text.done"]
    assert pairs(done[0].logprobs) == EXPECTED


def test_a_program_gets_the_rollouts(server):
    tokenizer = server.engine.tokenizer

    class Program(ProgramEnv):
        def run(self, task, client):
            api = openai.OpenAI(base_url=client.base_url, api_key=client.api_key)
            message = [{"role": "user", "content": "Hi?"}]
            done = api.chat.completions.create(model="m", messages=message, logprobs=True)
            found = [one.logprob for one in done.choices[0].logprobs.content]
            return {"reward": sum(found), "metrics": {"tokens": len(found)}}

    agent = DirectOutputAgent(NoiseEngine(tokenizer), SamplingParams(max_tokens=9))
    (rollout,) = Program(tokenizer, {"workers": 1}).run_trial([{}], agent).rollouts
    assert rollout.error is None
    (row,) = rollout.rows
    assert math.isclose(rollout.final_reward, float(row.logprobs.sum()), rel_tol=1e-5)
    assert rollout.episodes[0].steps[0].info["metrics"]["tokens"] == row.spans[0].length
