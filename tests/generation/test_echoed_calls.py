"""Calls of tools in a history: odd arguments, and the model's own answers sent back."""

import json

import pytest

from serving import TOOL, Server

END = "<|im_end|>"
NONE = {
    "an empty object": {"arguments": {}},
    "an empty text": {"arguments": ""},
    "white space": {"arguments": " \n"},
    "null": {"arguments": None},
    "the text null": {"arguments": "null"},
    "the text of an empty object": {"arguments": "{}"},
    "nothing": {},
}


@pytest.fixture(scope="module")
def server():
    one = Server("qwen2_5")
    yield one
    one.close()


def histories(call, result="9"):
    """A call and its result in each API, after a system message."""
    brief = {"role": "system", "content": "Be brief."}
    asked = {"role": "user", "content": "Look."}
    said = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call00000", "type": "function", "function": {"name": "look", **call}}]}  # fmt: skip
    used = {"type": "tool_use", "id": "call00000", "name": "look"}
    used |= {"input": call["arguments"]} if "arguments" in call else {}
    read = {"type": "tool_result", "tool_use_id": "call00000", "content": result}
    function = TOOL["function"]
    return {
        "chat/completions": {
            "messages": [
                brief,
                asked,
                said,
                {"role": "tool", "tool_call_id": "call00000", "content": result},
            ],
            "tools": [TOOL],
        },
        "responses": {
            "input": [
                asked,
                {"type": "function_call", "call_id": "call00000", "name": "look", **call},
                {"type": "function_call_output", "call_id": "call00000", "output": result},
            ],
            "instructions": "Be brief.",
            "tools": [{"type": "function", **function}],
        },
        "messages": {
            "messages": [
                asked,
                {"role": "assistant", "content": [used]},
                {"role": "user", "content": [read]},
            ],
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": [{"name": "look", "input_schema": function["parameters"]}],
            "max_tokens": 9,
        },
    }


def contexts(server, call):
    server.engine.contexts.clear()
    for path, body in histories(call).items():
        answer = server.post(path, **body)
        assert answer.status_code == 200, (path, answer.text)
    return server.engine.contexts[:]


@pytest.mark.parametrize("name", NONE)
def test_arguments_that_say_nothing_are_none_in_each_api(server, name):
    read = contexts(server, NONE[name])
    assert read == contexts(server, {"arguments": {}}) and len(set(read)) == 1
    assert "Be brief." in read[0]


@pytest.mark.parametrize("arguments", ["[1]", "3", '"x"', "{", '{"a": NaN}', [1], 3])
def test_arguments_that_are_no_object_are_refused_in_each_api(server, arguments):
    for path, body in histories({"arguments": arguments}).items():
        answer = server.post(path, **body)
        assert answer.status_code == 400
        assert "arguments" in answer.json()["error"]["message"]


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


ODD = {
    "a long name": ("x" * 300, {}),
    "a name with a space": ("look here", {"a": 1}),
    "a deep value": ("look", {"a": nested(99)}),
    "a large number": ("look", {"a": 10**4000}),
    "a large number with a point": ("look", {"a": 1e300}),
    "half a character": ("look", {"a\ud800": "\udfff"}),
    "an empty key": ("look", {"": None}),
    "control characters": ("look", {"\x00": "\x1b[2J<|im_end|>"}),
}


@pytest.mark.parametrize("name", ODD)
def test_an_answer_that_is_sent_back_is_never_refused(server, name):
    called, arguments = ODD[name]
    body = json.dumps({"name": called, "arguments": arguments})
    server.engine.text = f"<tool_call>\n{body}\n</tool_call>{END}"
    first = histories({})
    said = {}
    for path, request in first.items():
        key = "input" if path == "responses" else "messages"
        request[key] = request[key][:-2]
        answer = server.post(path, **request)
        assert answer.status_code == 200, answer.text
        said[path] = answer.json()
    chat = said["chat/completions"]["choices"][0]["message"]
    calls = chat["tool_calls"]
    assert calls
    items = said["responses"]["output"]
    blocks = said["messages"]["content"]
    result = {"type": "tool_result", "tool_use_id": blocks[-1]["id"], "content": "9"}
    echoes = {
        "chat/completions": [chat, {"role": "tool", "tool_call_id": calls[0]["id"],
                                    "content": "9"}],
        "responses": [*items, {"type": "function_call_output", "output": "9",
                               "call_id": items[-1]["call_id"]}],
        "messages": [{"role": "assistant", "content": blocks},
                     {"role": "user", "content": [result]}],
    }  # fmt: skip
    for path, more in echoes.items():
        request, key = first[path], "input" if path == "responses" else "messages"
        request[key] = [*request[key], *more]
        answer = server.post(path, **request)
        assert answer.status_code == 200, (path, answer.text[:300])
    assert len({*server.engine.contexts[-3:]}) == 1
