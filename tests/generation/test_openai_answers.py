"""What the openai package reads: streams of Responses, log-probabilities as they were recorded."""

import json
import math

import openai
import pytest

from agentsgym import DirectOutputAgent, SamplingParams
from agentsgym.envs.program.env import ProgramEnv
from noise_engine import NoiseEngine
from serving import TOOL, Server

END = "<|im_end|>"
CALL = '<tool_call>\n{"name": "look", "arguments": {"a": "x"}}\n</tool_call>'
LOOK = {"type": "function", **TOOL["function"]}


@pytest.fixture(scope="module")
def server():
    one = Server("qwen2_5")
    yield one
    one.close()


@pytest.fixture
def client(server):
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)


def said(server, text):
    server.engine.text = text + END


def test_a_stream_of_a_text_ends_with_the_answer_that_comes_without_one(server, client):
    said(server, "Hello.")
    asked = {"model": "m", "input": "Hi?"}
    kinds, deltas = [], []
    for number, event in enumerate(client.responses.create(**asked, stream=True)):
        kinds.append(event.type)
        assert event.sequence_number == number
        deltas += [event.delta] if event.type == "response.output_text.delta" else []
    assert "".join(deltas) == "Hello."
    assert kinds == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    whole = client.responses.create(**asked)
    parts = {"id", "created_at", "output"}
    assert event.response.model_dump(exclude=parts) == whole.model_dump(exclude=parts)
    assert event.response.output_text == whole.output_text == "Hello."


def test_the_package_reads_calls_beside_a_text(server, client):
    said(server, f"Let me see.\n{CALL}\n{CALL}")
    with client.responses.stream(model="m", input="Hi?", tools=[LOOK]) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_response()
    assert kinds.count("response.function_call_arguments.delta") == 2
    assert kinds.count("response.function_call_arguments.done") == 2
    message, *calls = answer.output
    assert message.content[0].text == "Let me see."
    assert [(one.name, json.loads(one.arguments)) for one in calls] == [("look", {"a": "x"})] * 2
    assert len({one.id for one in calls}) == len({one.call_id for one in calls}) == 2


# -- tools as Codex offers them ------------------------------------------------------------------


def test_a_call_in_a_namespace_says_so_and_a_hosted_tool_is_not_offered(server, client):
    said(server, CALL)
    space = {"type": "namespace", "name": "eyes", "description": "Sees.", "tools": [LOOK]}
    tools = [space, {"type": "web_search", "external_web_access": True}]
    server.engine.contexts.clear()
    answer = client.responses.create(model="m", input="Hi?", tools=tools)
    (call,) = answer.output
    assert (call.name, call.namespace) == ("look", "eyes")
    assert "look" in server.engine.contexts[0] and "web_search" not in server.engine.contexts[0]
    echo = [{"role": "user", "content": "Hi?"}, call.model_dump(exclude_none=True)]
    echo.append({"type": "function_call_output", "call_id": call.call_id, "output": "9"})
    assert client.responses.create(model="m", input=echo, tools=tools).output


# -- log-probabilities -----------------------------------------------------------------------------


def pairs(content):
    return [(one.token, one.logprob) for one in content]


# Each byte is a token of this tokenizer, and TextEngine says -1.0 of each.
EXPECTED = [("H", -1.0), ("\ufffd", -1.0), ("\ufffd", -1.0), (".", -1.0), ("<|im_end|>", -1.0)]


def test_chat_completions_answers_logprobs(server, client):
    said(server, "Hé.")
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi?"}]}
    choice = client.chat.completions.create(**asked, logprobs=True).choices[0]
    assert pairs(choice.logprobs.content) == EXPECTED
    assert [one.bytes for one in choice.logprobs.content][:2] == [[72], None]
    assert all(one.top_logprobs == [] for one in choice.logprobs.content)
    assert client.chat.completions.create(**asked).choices[0].logprobs is None


def test_responses_answers_what_it_is_asked_to_include(server, client):
    said(server, "Hé.")
    include = {"include": ["message.output_text.logprobs"]}
    asked = {"model": "m", "input": "Hi?"}
    part = client.responses.create(**asked, **include).output[0].content[0]
    assert pairs(part.logprobs) == EXPECTED
    assert not client.responses.create(**asked).output[0].content[0].logprobs
    with client.responses.stream(**asked, **include) as stream:
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
