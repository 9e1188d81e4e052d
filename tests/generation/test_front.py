"""The APIs of OpenAI and Anthropic through a real server, in front of a scripted backend."""

import asyncio
import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import anthropic
import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsgym.generation.serving.app import create_app
from agentsgym.generation.serving.calls import CallRefused
from agentsgym.generation.serving.listening import ServerThread, listening
from agentsgym.types import Answer, Message
from agentsgym.types.messages import tool_call

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
BODY = {"model": "tiny", "messages": HI}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "Of a city.", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
TOOLS = {
    "chat": [TOOL],
    "responses": [{"type": "function", **FUNCTION}],
    "messages": [{"name": "weather", "description": "Of a city.", "input_schema": SCHEMA}],
}


def said(text, *calls, ending="stop"):
    made = (tool_call(f"call_{i}", name, given) for i, (name, given) in enumerate(calls))
    message = Message("assistant", text, tuple(made))
    return Answer(message, (1, 2, 3), (0.0,) * 3, ending, prompt_tokens=7)


class Script:
    """A backend that gives `answers` in turn, the last one for ever, and keeps what it was given.
    Calls wait while `free` is not set."""

    def __init__(self):
        self.free = threading.Event()
        self.reset()

    def reset(self, *answers):
        self.answers = list(answers) or [said("hello")]
        self.calls, self.rewards, self.keys = [], [], None
        self.free.set()

    async def models(self, key):
        if self.keys is not None and key not in self.keys:
            raise CallRefused("this key is wrong", 401, code="invalid_api_key")
        return ["tiny"]

    async def answer(self, key, call):
        self.calls.append((key, call))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        while not self.free.is_set():
            await asyncio.sleep(0.002)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def reward(self, key, session, value):
        self.rewards.append((key, session, value))

    def wait_for(self, calls):
        deadline = time.monotonic() + 60
        while len(self.calls) < calls:
            assert time.monotonic() < deadline
            time.sleep(0.002)


@pytest.fixture(scope="module")
def server():
    script = Script()
    with closing(ServerThread(create_app(script))) as server:
        server.script = script
        yield server


@pytest.fixture
def script(server):
    server.script.reset()
    return server.script


@pytest.fixture(scope="module")
def http(server):
    with httpx.Client(base_url=server.url) as client:
        yield client


@pytest.fixture(scope="module")
def by_openai(server):
    url = f"{server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="KEY", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def by_anthropic(server):
    with anthropic.Anthropic(base_url=server.url, api_key="KEY", max_retries=0) as client:
        yield client


def port_of(server):
    return httpx.URL(server.url).port


def connection(server):
    return socket.create_connection(("127.0.0.1", port_of(server)))


def text_of(response):
    return response.json()["choices"][0]["message"]["content"]


# -- the three APIs ------------------------------------------------------------------------------


def test_a_chat_completion_becomes_a_call(script, by_openai):
    script.reset(said("It is sunny.", ending="length"))
    answer = by_openai.chat.completions.create(
        model="tiny",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("And", "Rome?")]},
        ],
        tools=[TOOL],
        max_tokens=5,
        stop="\n",
    )
    ((key, call),) = script.calls
    assert key == "KEY"
    assert call.messages == (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "And\nRome?"},
    )
    assert (call.tools, call.max_tokens, call.stop) == ((TOOL,), 5, ("\n",))
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("It is sunny.", "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 3)


def test_the_other_apis_say_that_an_answer_was_cut(script, by_openai, by_anthropic):
    script.reset(said("It is", ending="length"))
    answer = by_openai.responses.create(model="tiny", input="Rome?", max_output_tokens=3)
    assert (answer.output_text, answer.status) == ("It is", "incomplete")
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    answer = by_anthropic.messages.create(
        model="tiny", messages=HI, max_tokens=3, stop_sequences=["\n"]
    )
    assert (answer.content[0].text, answer.stop_reason) == ("It is", "max_tokens")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 3)
    (_, first), (key, second) = script.calls
    assert key == "KEY" and first.max_tokens == second.max_tokens == 3 and second.stop == ("\n",)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=120)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
calls = st.tuples(texts.filter(bool), st.dictionaries(texts, values, max_size=3))
answers = st.builds(lambda text, calls: said(text, *calls), texts, st.lists(calls, max_size=2))


def by_chat(client, stream, messages):
    body = {"model": "tiny", "messages": messages, "tools": TOOLS["chat"]}
    if not stream:
        return [client.chat.completions.create(**body).choices[0].message]
    options = {"include_usage": True}
    with client.chat.completions.stream(**body, stream_options=options) as events:
        answer = events.get_final_completion()
    assert answer.usage.completion_tokens == 3
    return [answer.choices[0].message.model_dump()]


def by_responses(client, stream, messages):
    body = {"model": "tiny", "input": messages, "tools": TOOLS["responses"]}
    return client.responses.create(**body).output


def by_messages(client, stream, messages):
    body = {"model": "tiny", "messages": messages, "tools": TOOLS["messages"], "max_tokens": 9}
    if not stream:
        answer = client.messages.create(**body)
    else:
        with client.messages.stream(**body) as events:
            answer = events.get_final_message()
    assert answer.usage.output_tokens == 3
    return [{"role": "assistant", "content": answer.content}]


@pytest.mark.parametrize(
    ("ask", "stream"),
    [
        (by_chat, False),
        (by_chat, True),
        (by_responses, False),
        (by_messages, False),
        (by_messages, True),
    ],
)
@settings(max_examples=12, deadline=None)
@given(answer=answers)
def test_an_answer_comes_back_as_it_was(server, by_openai, by_anthropic, ask, stream, answer):
    server.script.reset(answer)
    client = by_anthropic if ask is by_messages else by_openai
    answered = ask(client, stream, HI)
    ask(client, stream, [*HI, *answered, *HI])
    hi = {"role": "user", "content": "hi"}
    assert server.script.calls[1][1].messages == (hi, answer.message, hi)


# -- keys, rewards, models -----------------------------------------------------------------------


def test_the_path_can_have_the_key(script, http):
    http.post(f"/sessions/ABC{CHAT}", json=BODY, headers={"Authorization": "Bearer no"})
    assert script.calls[0][0] == "ABC"


def test_a_wrong_key_is_refused_in_each_form(script, http, by_openai, by_anthropic):
    script.keys = {"another"}
    with pytest.raises(openai.AuthenticationError, match="this key is wrong") as refused:
        by_openai.chat.completions.create(**BODY)
    assert refused.value.code == "invalid_api_key"
    with pytest.raises(anthropic.AuthenticationError, match="this key is wrong") as refused:
        by_anthropic.messages.create(**BODY, max_tokens=3)
    assert refused.value.body["error"]["type"] == "authentication_error"
    assert http.get("/v1/models").status_code == 401
    assert script.calls == []


def test_rewards(script, http):
    http.post("/sessions/s1/reward", json={"reward": 1}, headers={"Authorization": "Bearer K"})
    http.post("/sessions/K/reward", json={"reward": -0.5})
    assert script.rewards == [("K", "s1", 1.0), ("K", "K", -0.5)]
    for wrong in ('{"reward": "1"}', '{"reward": NaN}', '{"reward": 1e999}', "{}"):
        assert http.post("/sessions/K/reward", content=wrong).status_code == 400
    assert len(script.rewards) == 2


# -- bad input -----------------------------------------------------------------------------------


def message(content, **more):
    return json.dumps({**BODY, "messages": [{"role": "user", "content": content}], **more})


BAD = {
    "not JSON": ("{", 400, "not valid JSON"),
    "NaN": ('{"model": "tiny", "top_p": NaN}', 400, "not valid JSON"),
    "a deep bomb": ("[" * 100_000, 400, "recursion limit"),
    "a huge number": (message("x", max_tokens=10**400), 400, "max_tokens: .*less than"),
    "no messages": ('{"model": "tiny"}', 400, "messages: Field required"),
    "an image": (message([{"type": "image_url"}]), 400, "reads text.*'image_url'"),
    "another model": (message("x", model="gpt"), 404, "no model 'gpt'; there is tiny"),
    "several answers": (message("x", n=2), 400, "n must be 1"),
    "a tool without a name": (message("x", tools=[{"type": "function"}]), 400, "tools.0.name"),
    "a huge body": (b" " * (33 * 2**20), 413, "at most 32 MiB"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_chat_completions_get_a_sentence(script, http, case):
    content, status, sentence = BAD[case]
    response = http.post(CHAT, content=content)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, "invalid_request_error")
    with pytest.raises(AssertionError, match=sentence):
        raise AssertionError(error["message"])
    assert script.calls == []


CANNOT = [
    (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id is not supported"),
    (RESPONSES, {"input": [{"type": "reasoning", "summary": []}]}, "'reasoning'"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "'image'"),
    (MESSAGES, {"messages": [*HI, {"role": "assistant", "content": "The"}]}, "begun here"),
    (MESSAGES, {"tools": [{"type": "bash_20250124", "name": "bash"}]}, "tools.0"),
]


@pytest.mark.parametrize(("path", "more", "sentence"), CANNOT)
def test_what_the_other_apis_cannot_do_gets_a_sentence(script, http, path, more, sentence):
    response = http.post(path, json={**BODY, "input": "hi", "max_tokens": 3, **more})
    assert response.status_code == 400 and sentence in response.json()["error"]["message"]
    assert (response.json().get("type") == "error") is (path == MESSAGES)


ORDERED = {"type": "object", "properties": {"b": {}, "a": {}}}
JSON_SCHEMA = {"type": "json_schema", "schema": ORDERED}
IN_CHAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": ORDERED}}
WHERE_FORMATS_STAND = {
    "response_format": (CHAT, {"response_format": IN_CHAT}),
    "text.format": (RESPONSES, {"input": "hi", "text": {"format": JSON_SCHEMA}}),
    "output_config.format": (MESSAGES, {"output_config": {"format": JSON_SCHEMA}}),
    "output_format": (MESSAGES, {"output_format": JSON_SCHEMA}),
}


@pytest.mark.parametrize("name", WHERE_FORMATS_STAND)
def test_a_format_becomes_the_form_that_is_demanded(script, http, name):
    path, more = WHERE_FORMATS_STAND[name]

    def asked(**format):
        for key in reversed(name.split(".")):
            format = {key: format}
        return http.post(path, json={**BODY, "input": "hi", "max_tokens": 3, **more, **format})

    http.post(path, json={**BODY, "max_tokens": 3, **more}).raise_for_status()
    asked(type="text").raise_for_status()
    asked(type="json_object").raise_for_status()
    forms = [call.form for _, call in script.calls]
    assert forms == [("json", json.dumps(ORDERED)), None, ("json", '{"type": "object"}')]
    for wrong in ({"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "schema": 3}):
        refused = asked(**wrong)
        assert refused.status_code == 400 and f"{name} must" in refused.json()["error"]["message"]


def test_a_demanded_call_and_a_pattern_become_forms(script, http):
    pattern = {"structured_outputs": {"regex": "a+"}}
    http.post(CHAT, json={**BODY, **pattern}).raise_for_status()
    choices = [
        (CHAT, "chat", "required", ""),
        (CHAT, "chat", {"type": "function", "function": {"name": "weather"}}, "weather"),
        (RESPONSES, "responses", {"type": "function", "name": "weather"}, "weather"),
        (MESSAGES, "messages", {"type": "any"}, ""),
        (MESSAGES, "messages", {"type": "tool", "name": "weather"}, "weather"),
    ]
    for path, tools, choice, _ in choices:
        body = {**BODY, "input": "hi", "max_tokens": 3, "tools": TOOLS[tools]}
        http.post(path, json={**body, "tool_choice": choice}).raise_for_status()
    body = {**BODY, "tools": TOOLS["chat"], "tool_choice": "none"}
    http.post(CHAT, json=body).raise_for_status()
    assert script.calls.pop()[1].tools == ()
    for choice in ("auto", "required"):  # without tools there is none to call
        http.post(CHAT, json={**BODY, "tool_choice": choice}).raise_for_status()
    forms = [call.form for _, call in script.calls]
    assert forms == [("regex", "a+"), *(("call", name) for *_, name in choices), None, None]
    unknown = {"tools": TOOLS["chat"], "tool_choice": {"type": "function", "name": "fly"}}
    refused = http.post(CHAT, json={**BODY, **unknown})
    assert refused.status_code == 400 and "'fly'" in refused.json()["error"]["message"]


def test_unknown_paths_and_methods(script, http):
    for response in (http.post("/v1/embeddings", json={}), http.get(CHAT)):
        assert response.status_code in (404, 405)
        assert response.json()["error"]["message"]
    response = http.post(f"{MESSAGES}/count_tokens", json={})
    assert response.status_code == 404 and response.json()["type"] == "error"


def test_a_fault_of_the_backend_ends_one_call(script, http):
    script.reset(
        CallRefused("too long", 400, code="context_length_exceeded"), OSError("x"), said("ok")
    )
    response = http.post(CHAT, json=BODY)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"
    with http.stream("POST", CHAT, json=BODY) as response:
        connection = response.extensions["network_stream"]
        response.read()
    assert (response.status_code, response.json()["error"]["type"]) == (500, "server_error")
    with http.stream("POST", CHAT, json=BODY) as response:
        assert response.extensions["network_stream"] is connection
        response.read()
    assert text_of(response) == "ok"


# -- retries -------------------------------------------------------------------------------------


AGAIN = {"x-stainless-retry-count": "1"}


@pytest.mark.parametrize("answered", [False, True])
def test_a_retry_gets_the_answer_of_the_first_try(script, http, answered):
    script.reset(said("first"), said("second"))
    script.free.clear()
    with pytest.raises(httpx.ReadTimeout):
        http.post(CHAT, json=BODY, timeout=0.05)
    if answered:  # before the retry comes; else while it waits
        script.free.set()
    else:
        threading.Timer(0.05, script.free.set).start()
    assert text_of(http.post(CHAT, json=BODY, headers=AGAIN)) == "first"
    assert text_of(http.post(CHAT, json=BODY)) == "second"
    assert len(script.calls) == 2


def test_a_request_may_have_a_name(script, http):
    script.reset(*map(said, ("first", "second", "third")))
    asked = ("a", {}), ("a", {}), ("b", {}), ("a", {"temperature": 0.5})
    texts = [text_of(http.post(CHAT, json=BODY | more, headers={"Idempotency-Key": name}))
             for name, more in asked]  # fmt: skip
    assert texts == ["first", "first", "second", "third"]  # a name is of one body


def test_a_failure_is_not_kept_for_a_retry(script, http):
    script.reset(CallRefused("busy", 503), said("ok"))
    assert http.post(CHAT, json=BODY).status_code == 503
    assert text_of(http.post(CHAT, json=BODY, headers=AGAIN)) == "ok"


def test_identical_calls_at_once_are_calls_of_their_own(script, http):
    script.reset(*(said(str(number)) for number in range(200)))
    script.free.clear()
    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(http.post, CHAT, json=BODY) for _ in range(20)]
        script.wait_for(calls=20)
        script.free.set()
        assert {int(text_of(one.result())) for one in waiting} == set(range(20))


# -- the thread ----------------------------------------------------------------------------------


def test_a_server_ends_while_calls_hang(caplog):
    script = Script()
    script.free.clear()
    server = ServerThread(create_app(script))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(httpx.post, server.url + CHAT, json=BODY, timeout=60)
        script.wait_for(calls=1)
        server.close()
        assert waiting.result(timeout=60).json()["error"]["message"] == "the server ended"
    assert "Traceback" not in caplog.text
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")
    server.close()


def test_a_port_in_use_is_an_error(server):
    with pytest.raises(OSError):
        listening("127.0.0.1", port_of(server))
