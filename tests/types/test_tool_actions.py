"""Calls of tools in a text agent's words and in answers."""

import json

import pytest

from agentsgym.types import Answer, Message
from agentsgym.types.messages import spoken, tool_call
from agentsgym.types.tool_actions import acting, calling, plain_act, said

CALL = {"name": "search", "arguments": {"query": "ä {"}}
LINE = calling("search", query="ä {")


def test_a_call_is_a_line_of_json():
    assert json.loads(LINE) == CALL and "ä" in LINE


@pytest.mark.parametrize("words", ["", "Let me see.", "Two\n\nlines.\n"])
def test_lines_of_calls_at_the_end_of_words_call_tools(words):
    message = said("\n".join([words, LINE, calling("open")]), first=3)
    opened = {"name": "open", "arguments": {}}
    assert message.content == words
    assert message.tool_calls == (tool_call(3, **CALL), tool_call("call00004", **opened))
    assert said(spoken(message), first=3) == message


@pytest.mark.parametrize(
    "text",
    [
        "Paris.",
        "",
        "{",
        "[1]",
        "{" * 100_000,
        f"{LINE}\nor not",
        f"{LINE}\n",
        '{"name": "f"}',
        '{"name": 1, "arguments": {}}',
        '{"name": "f", "arguments": "{}"}',
        '{"name": "f", "arguments": {}, "more": 1}',
    ],
)
def test_any_other_text_is_words_alone(text):
    assert said(text) == Message("assistant", text)


def test_an_answer_counts_the_calls_that_it_began():
    answer = Answer(Message("assistant", "", (tool_call("a", **CALL),)), unread=2)
    assert (answer.calls, answer.attempted) == ((CALL,), 3)
    assert answer.metrics(executed=0) == {
        "tool_calls/attempted": 3,
        "tool_calls/parsed": 1,
        "tool_calls/executed": 0,
        "tool_calls/failed": 1,
    }


def test_only_one_call_of_act_is_a_plain_action():
    act = acting("look")
    assert plain_act(Answer(act)) == "look"
    assert plain_act(Answer(act, unread=1)) is None
    line = calling("act", action="look")
    for words in (
        "look",
        f"{line}\n{line}",
        calling("other", action="look"),
        calling("act", action="look", more=1),
        calling("act", action=1),
        calling("act"),
    ):
        assert plain_act(Answer(said(words))) is None


def test_an_answer_with_calls_is_shown_with_a_line_for_each():
    assert spoken(Message("assistant", "Hm.", (tool_call(0, **CALL),))) == f"Hm.\n{LINE}"
    assert spoken(Message("assistant", "", (tool_call(0, **CALL),))) == LINE
