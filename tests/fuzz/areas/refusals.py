"""Conversations of clients that chat templates refuse, drop or move: in each API the model is shown
every message in its place, or the client gets a sentence and its session goes on."""

import itertools
import json
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from agentsgym.generation.serving.calls import CallRefused
from agentsgym.generation.serving.chat import ChatBody
from agentsgym.generation.serving.messages import MessagesBody
from agentsgym.generation.serving.responses import ResponsesBody
from agentsgym.tokens import codec_for
from agentsgym.tokens.tree import Tree
from agentsgym.types import Message, ModelCall
from chat_tokenizers import ALL, template, tokenizer_for
from fuzz.oracle import Area, refused_with

# What a template may demand, or do to a conversation.
HABITS = {
    "one system message": "{% for m in messages[1:] %}{% if m.role == 'system' %}"
    "{{ raise_exception('system first') }}{% endif %}{% endfor %}",
    "no system message": "{% if messages[0].role == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}",
    "turns": "{% for m in messages %}{% if loop.index0 and m.role == messages[loop.index0 - 1].role"
    " %}{{ raise_exception('turns') }}{% endif %}{% endfor %}",
    "a user": "{% if messages | selectattr('role', 'equalto', 'user') | list | length == 0 %}"
    "{{ raise_exception('no user') }}{% endif %}",
    "a user first": "{% if messages[0].role == 'assistant' %}{{ raise_exception('user') }}"
    "{% endif %}",
    "at most five": "{% if messages | length > 5 %}{{ raise_exception('too many') }}{% endif %}",
    "a broken expression": "{% if messages | length > 3 %}{{ messages[99].content.x }}{% endif %}",
}
LOOPS = {
    "all": "{% for m in messages %}",
    "no later system": "{% for m in messages if m.role != 'system' or loop.first %}",
    "system moved": "{% for m in (messages | selectattr('role', 'equalto', 'system') | list)"
    " + (messages | rejectattr('role', 'equalto', 'system') | list) %}",
}
TURN = "<|im_start|>{{ m.role }}\n{{ m.content or '' }}{{ m.tool_calls or '' }}<|im_end|>\n"
ROLES = ("system", "developer", "user", "assistant", "call")
ARGUMENTS = ("{}", "", "null", None, {}, '{"a": 1}', {"a": [None]}, "[]", "{", '"a"', 5)
TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}
GOOD = ModelCall((Message("user", "Good."),))


@dataclass(frozen=True)
class Talk:
    """A template, and a conversation: roles, and the arguments of its calls."""

    template: str
    roles: list[str]
    arguments: Any


TEMPLATES = st.one_of(
    st.sampled_from(ALL).map(template),
    st.builds(
        lambda habits, loop: "".join(habits) + loop + TURN + "{% endfor %}<|im_start|>assistant\n",
        st.lists(st.sampled_from(sorted(HABITS.values())), max_size=3, unique=True),
        st.sampled_from(sorted(LOOPS.values())),
    ),
)
CASES = st.builds(
    Talk,
    TEMPLATES,
    st.lists(st.sampled_from(ROLES[:4] * 2 + ROLES[4:]), min_size=1, max_size=9),
    st.sampled_from(ARGUMENTS),
)


def check(case: Talk) -> bool:
    """The same call in each API, which is shown in order, or refused without a trace."""
    calls = _read(case)
    if calls is None:
        return False
    try:
        tree = Tree(codec_for(tokenizer_for(case.template, "<|im_end|>")))
    except ValueError as error:
        return refused_with(error)
    call, other = calls
    assert replace(call, max_tokens=None) == replace(other, max_tokens=None)
    try:
        tree.call(call)
    except ValueError as error:
        assert not tree.messages and not len(tree.context)
        return _goes_on(tree) and refused_with(error)
    tokenizer = tokenizer_for(case.template, "<|im_end|>")
    text = tokenizer.decode(list(tree.context))
    places = [text.find(_text(number)) for number in range(len(case.roles))]
    assert -1 not in places and places == sorted(places), text
    return True


def _goes_on(tree: Tree) -> bool:
    """Whether what all templates show is the first row of a session, or refused as well."""
    try:
        tree.call(GOOD)
    except ValueError as error:
        return not refused_with(error)
    assert tree.pending is not None and tree.pending.begins == "episode"
    return True


def _read(case: Talk) -> tuple[ModelCall, ModelCall] | None:
    """The call in Chat Completions, which Responses reads alike, and in Messages; None if each API
    refuses it."""
    tools = [TOOL] if "call" in case.roles else []
    schema = {"name": TOOL["name"], "input_schema": TOOL["parameters"]}
    wrapped = [{"type": "function", "function": tool} for tool in tools]
    items = [item for number in range(len(case.roles)) for item in _items(case, number)]
    chat = {"messages": [_message(item) for item in items], "tools": wrapped}
    bodies: list[tuple[Any, dict[str, Any]]] = [
        (ChatBody, chat),
        (ResponsesBody, {"input": items, "tools": [{"type": "function", **t} for t in tools]}),
        (
            MessagesBody,
            {"messages": [_turn(item) for item in items], "tools": [schema] * bool(tools)},
        ),
    ]
    calls = []
    for form, body in bodies:
        try:
            calls.append(form.read(json.dumps({"model": "m", **body}).encode()).call())
        except CallRefused as error:
            refused_with(error)
            assert error.status == 400 and form.error(error)
            calls.append(None)
    one, same, other = calls
    if other is None and case.roles[-1] == "assistant":
        return None  # an answer that is begun, in Anthropic's API
    assert (one is None) == (same is None) == (other is None)
    if one is None or same is None or other is None:
        return None
    if _calls_stand_alone(case.roles):  # else Responses has them in the answer before
        assert one == same
    return one, other


def _calls_stand_alone(roles: list[str]) -> bool:
    return ("assistant", "call") not in itertools.pairwise(roles)


def _text(number: int) -> str:
    return f"text{number}."


def _items(case: Talk, number: int) -> list[dict[str, Any]]:
    """A message, or a call and its result, as items of Responses."""
    role, text = case.roles[number], _text(number)
    if role != "call":
        return [{"role": role, "content": text}]
    call = {"type": "function_call", "call_id": f"call{number:05d}", "name": "look"}
    if case.arguments is not None:
        call["arguments"] = case.arguments
    return [call, {"type": "function_call_output", "call_id": call["call_id"], "output": text}]


def _message(item: dict[str, Any]) -> dict[str, Any]:
    """The same as a message of Chat Completions."""
    if item.get("type") == "function_call":
        function = {key: item[key] for key in ("name", "arguments") if key in item}
        made = {"id": item["call_id"], "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [made]}
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
    return item


def _turn(item: dict[str, Any]) -> dict[str, Any]:
    """The same as a turn of Messages."""
    if item.get("type") == "function_call":
        used = {"type": "tool_use", "id": item["call_id"], "name": "look"}
        used |= {"input": item["arguments"]} if "arguments" in item else {}
        return {"role": "assistant", "content": [used]}
    if item.get("type") == "function_call_output":
        read = {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
        return {"role": "user", "content": [read]}
    return item


AREA = Area("template refusals", CASES, check, cost=1.0)
