"""An action with calls of tools as one text, and back."""

import json

import pytest

from agentsgym.types import Message
from agentsgym.types.tool_actions import ToolAction, acting, calling

CALL = {"name": "search", "arguments": {"query": "ä {"}}


def test_a_text_says_content_and_calls_and_is_read_again():
    action = ToolAction("Let me see.", (CALL, CALL), unread=1)
    assert json.loads(action.text) == {
        "content": "Let me see.",
        "tool_calls": [CALL, CALL],
        "unread": 1,
    }
    assert ToolAction.of_text(action.text) == action


@pytest.mark.parametrize(
    "text",
    [
        "Paris.",
        "",
        "{",
        "[1]",
        "{" * 100_000,
        '{"content": "x"}',
        '{"content": 1, "tool_calls": []}',
        '{"content": "x", "tool_calls": {}}',
        '{"content": "x", "tool_calls": [{"name": "f"}]}',
        '{"content": "x", "tool_calls": [{"name": "f", "arguments": "{}"}]}',
        '{"content": "x", "tool_calls": [], "more": 1}',
        '{"content": "x", "tool_calls": [], "unread": true}',
    ],
)
def test_any_other_text_is_content_alone(text):
    assert ToolAction.of_text(text) == ToolAction(text)


def test_what_a_model_writes_as_words_stays_words():
    written = ToolAction("", (CALL,)).text
    action = ToolAction.of_message(Message("assistant", written))
    assert ToolAction.of_text(action.text) == ToolAction(written)


def test_a_message_has_the_calls_and_the_number_that_could_not_be_read():
    message = Message("assistant", "", ({"type": "function", "id": "a", "function": CALL},))
    action = ToolAction.of_message(message, attempted=3)
    assert (action.calls, action.unread, action.attempted) == ((CALL,), 2, 3)
    assert action.metrics(executed=0) == {
        "tool_calls/attempted": 3,
        "tool_calls/parsed": 1,
        "tool_calls/executed": 0,
        "tool_calls/failed": 1,
    }


def test_only_one_call_of_act_is_a_plain_action():
    act = acting("look").calls[0]
    assert acting("look").act == "look"
    for other in (
        ToolAction("look"),
        ToolAction("", (act, act)),
        ToolAction("", (act,), unread=1),
        calling("other", action="look"),
        calling("act", action="look", more=1),
        calling("act", action=1),
        calling("act"),
    ):
        assert other.act is None
