"""The APIs of OpenAI and Anthropic through a real server, in front of a scripted backend."""

import asyncio

import httpx
import openai
import pytest

from agentsgym.generation.serving.app import create_app
from agentsgym.generation.serving.calls import CallRefused, ModelAnswer
from agentsgym.generation.serving.exchanges import Exchanges
from agentsgym.generation.serving.thread import ServerThread

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def said(text, *calls, ending=None):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": f"call_{i}", "function": {"name": name, "arguments": given}}
            for i, (name, given) in enumerate(calls)
        ]
    ending = ending or ("tool_calls" if calls else "stop")
    return ModelAnswer(message, ending, 7, [11, 12, 13], [-0.5, -0.25, -0.125])


class Script:
    """A backend that gives `answers` in turn, the last one for ever, and keeps what it was given.

    A call waits until `free` is set.
    """

    def __init__(self):
        self.reset()

    def reset(self, *answers):
        self.answers = list(answers) or [said("hello")]
        self.calls = []
        self.rewards = []
        self.keys = None
        self.free = asyncio.Event()
        self.free.set()

    async def models(self, key):
        if self.keys is not None and key not in self.keys:
            raise CallRefused("this key is wrong", 401, code="invalid_api_key")
        return ["tiny"]

    async def answer(self, key, call):
        self.calls.append((key, call))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        await self.free.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reward(self, key, session, value):
        self.rewards.append((key, session, value))


@pytest.fixture(scope="module")
def served():
    script, exchanges = Script(), Exchanges()
    with ServerThread(create_app(script, exchanges)) as server:
        server.script, server.exchanges = script, exchanges
        yield server


@pytest.fixture
def script(served):
    served.script.reset()
    return served.script


@pytest.fixture(scope="module")
def chat(served):
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="KEY", max_retries=0) as client:
        yield client.chat.completions


def test_a_chat_completion_becomes_a_call_of_the_model(script, chat):
    script.reset(said("It is sunny.", ending="length"))
    answer = chat.create(
        model="tiny",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "And in Rome?"}]},
        ],
        tools=[WEATHER],
        max_tokens=5,
        stop="\n",
        temperature=0.3,
    )
    ((key, call),) = script.calls
    assert key == "KEY"
    assert call.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "And in Rome?"},
    )
    assert (call.tools, call.max_tokens, call.stop) == ((WEATHER,), 5, ("\n",))
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("It is sunny.", "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)


def test_the_path_can_have_the_key(served, script):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "?"}]}
    httpx.post(f"{served.url}/sessions/ABC/v1/chat/completions", json=body).raise_for_status()
    assert script.calls[0][0] == "ABC"
