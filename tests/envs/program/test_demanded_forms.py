"""Programs that demand the form of an answer, with the clients of OpenAI and Anthropic."""

import json
from functools import partial

import anthropic
import httpx
import openai
import pytest

from agentsgym import DirectOutputAgent
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs.files.rollouts import RolloutWriter, read_rollouts
from agentsgym.types import SamplingParams
from envs.program.programs import TOKENIZER, program
from helpers import random_llama
from rollout.doubles import TextEngine

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "warm": {"type": "boolean"}},
    "required": ["city", "warm"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "place", "schema": SCHEMA}
FUNCTION = {"name": "weather", "description": "Of a city.", "parameters": SCHEMA}
HI = [{"role": "user", "content": "Where?"}]


@pytest.fixture(scope="module")
def model():
    return random_llama(TOKENIZER)


@pytest.fixture
def agent(model):
    return DirectOutputAgent(EmbeddedEngine(model, TOKENIZER), SamplingParams(max_tokens=120))


def of_openai(client):
    http = httpx.Client(verify=False)
    return openai.OpenAI(base_url=client.base_url, api_key=client.api_key, http_client=http)


def by_chat(client, **more):
    api = of_openai(client).chat.completions
    message = api.create(model="m", messages=HI, **more).choices[0].message
    calls = [json.loads(call.function.arguments) for call in message.tool_calls or ()]
    return message.content, calls


def by_responses(client, **more):
    answer = of_openai(client).responses.create(model="m", input="Where?", **more)
    calls = [json.loads(one.arguments) for one in answer.output if one.type == "function_call"]
    return answer.output_text, calls


def by_messages(client, **more):
    api = anthropic.Anthropic(base_url=client.anthropic_url, api_key=client.api_key)
    answer = api.messages.create(model="m", max_tokens=120, messages=HI, **more)
    text = "".join(one.text for one in answer.content if one.type == "text")
    return text, [one.input for one in answer.content if one.type == "tool_use"]


IN_CHAT = {"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA}}
TOOL = {"name": "weather", "input_schema": SCHEMA}
FORMS = [
    partial(by_chat, response_format=IN_CHAT),
    partial(by_responses, text={"format": FORMAT}),
    partial(by_messages, extra_body={"output_config": {"format": FORMAT}}),
]
CALLS = [
    partial(by_chat, tools=[{"type": "function", "function": FUNCTION}], tool_choice="required"),
    partial(by_responses, tools=[{"type": "function", **FUNCTION}], tool_choice="required"),
    partial(by_messages, tools=[TOOL], tool_choice={"type": "any"}),
]


def test_each_api_gets_the_format_and_the_call_that_it_demands(agent, tmp_path):
    said, called = [], []

    def play(task, client):
        said.extend(form(client)[0] for form in FORMS)
        called.extend(call(client)[1] for call in CALLS)
        return 1.0

    batch = program(play).run_trial([{}], agent, num_rollouts=3)
    for text in said:
        assert set(json.loads(text)) == {"city", "warm"}
    for (arguments,) in called:
        assert set(arguments) == {"city", "warm"}
    assert len(said) == len(called) == 9
    for rollout in batch.rollouts:
        assert rollout.error is None and rollout.supports.fits(rollout.token_ids)
        assert 0 < sum(row.agent_tokens for row in rollout.rows) < len(rollout.supports)
    RolloutWriter(tmp_path)(batch.rollouts, {"phase": "train", "step": 0})
    assert list(read_rollouts(tmp_path)) == list(batch.rollouts)


def test_what_cannot_be_demanded_is_refused_and_the_program_goes_on(agent):
    refused = []

    def play(task, client):
        for schema in ({"type": "integer", "minimum": 5, "maximum": 3}, {"enum": ["x" * 70_000]}):
            inner = {"name": "x", "schema": schema}
            try:
                by_chat(client, response_format={"type": "json_schema", "json_schema": inner})
            except openai.BadRequestError as error:
                refused.append(str(error))
        pattern = by_chat(client, extra_body={"structured_outputs": {"regex": "ab{2,4}c"}})
        return float(pattern[0] in ("abbc", "abbbc", "abbbbc"))

    (rollout,) = program(play).run_trial([{}], agent).rollouts
    assert rollout.error is None and rollout.final_reward == 1.0
    assert "cannot be granted" in refused[0] and "cannot be demanded" in refused[1]


def test_a_dead_end_fails_one_session_and_others_go_on(agent):
    circle = {"a": {"type": "boolean"}, "b": {"$ref": "#/properties/b"}}
    dead = {**SCHEMA, "properties": circle, "required": ["a", "b"]}

    def play(task, client):
        inner = {"name": "x", "schema": dead if task["dead"] else SCHEMA}
        by_chat(client, response_format={"type": "json_schema", "json_schema": inner})
        return 1.0

    tasks = [{"dead": False}, {"dead": True}, {"dead": False}]
    rollouts = program(play).run_trial(tasks, agent).rollouts
    assert [rollout.failed for rollout in rollouts] == [False, True, False]
    assert "the form that is demanded of the answer cannot be granted" in rollouts[1].error


def test_an_engine_of_text_refuses_a_format_and_calls_in_vain(caplog):
    refused = []

    def play(task, client):
        try:
            FORMS[0](client)
        except openai.BadRequestError as error:
            refused.append(str(error))
        return float(CALLS[0](client) == ("hello", []))

    agent = DirectOutputAgent(TextEngine(TOKENIZER, "hello"))
    (rollout,) = program(play).run_trial([{}], agent).rollouts
    assert rollout.error is None and rollout.final_reward == 1.0
    assert "does not say what each token was chosen from" in refused[0]
