"""What is told of a tokenizer is what the library does with it."""

import dataclasses
import json

import pytest

from agentsgym.checks.tokens import check_tokens
from call_templates import SMOLLM3
from chat_tokenizers import NAMES, template, tokenizer_for
from helpers import CHATML, DROPS_THOUGHT, CountdownEnv, build_tokenizer

# The system prompt stands before the last message of the user, as in Mistral's templates.
MOVES_SYSTEM = (
    "{% for m in messages %}{% if m['role'] != 'system' %}<|im_start|>{{ m['role'] }}\n"
    "{% if loop.last and messages[0]['role'] == 'system' %}{{ messages[0]['content'] }}\n\n"
    "{% endif %}{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MOVES_TOOLS = CHATML.replace(
    "{{ m['content'] }}", "{% if loop.last and tools %}{{ tools }}\n{% endif %}{{ m['content'] }}"
)
SHOUTS = CHATML.replace(
    "{{ m['content'] }}",
    "{{ m['content'] | upper if m['role'] == 'assistant' else m['content'] }}",
)
PREFILLS = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}")


def conversation(report, name):
    (talk,) = [one for one in report.conversations if one.name == name]
    return talk


def reasons(conversation):
    return {rewrite.reason for rewrite in conversation.breaks}


def test_a_template_that_only_appends_is_one_row_everywhere(chat_tokenizer):
    report = check_tokens(chat_tokenizer)
    assert report.append_only and report.problems == ()
    assert [one.name for one in report.conversations] == [
        "plain answers", "answers that think", "a system prompt"
    ]  # fmt: skip
    for one in report.conversations:
        assert (one.rows, one.steps, one.breaks, one.cost) == (1, 4, (), 1.0)
        assert one.masked and one.agent_tokens == one.key_agent_tokens > 0
    assert ("verdict", "fit for training: one row for each context") in report.lines()


def test_a_template_that_drops_thoughts_begins_rows_at_a_cost():
    report = check_tokens(build_tokenizer(DROPS_THOUGHT))
    assert conversation(report, "plain answers").rows == 1
    thinking = conversation(report, "answers that think")
    assert thinking.rows == 4 and thinking.masked and reasons(thinking) == {"thoughts"}
    assert [rewrite.step for rewrite in thinking.breaks] == [1, 2, 3]
    assert "<think>" in thinking.breaks[0].was and "<think>" not in thinking.breaks[0].now
    assert thinking.key_agent_tokens < thinking.agent_tokens / 3
    assert thinking.cost > 1.3 and not report.append_only and report.problems == ()
    text = dict(report.lines())["answers that think"]
    assert "drops earlier thoughts: a new row at steps 1, 2, 3" in text
    assert f"the last row: {thinking.key_agent_tokens} of the agent's" in text


def test_the_cost_without_breaks_is_that_of_a_template_that_only_appends(chat_tokenizer):
    dropping = check_tokens(build_tokenizer(DROPS_THOUGHT))
    thinking = conversation(dropping, "answers that think")
    appending = conversation(check_tokens(chat_tokenizer), "answers that think")
    assert thinking.one_row_tokens == appending.tokens


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        (MOVES_SYSTEM, "a system prompt", "earlier"),
        (MOVES_TOOLS, "tools", "earlier"),
        (SHOUTS, "plain answers", "answer"),
        (PREFILLS, "plain answers", "opening"),
    ],
)
def test_why_a_template_begins_a_row(text, name, reason):
    report = check_tokens(build_tokenizer(text))
    talk = conversation(report, name)
    assert reason in reasons(talk) and talk.masked
    if name != "plain answers":
        assert conversation(report, "plain answers").rows == 1


def test_arguments_of_the_template_are_honored():
    tokenizer = tokenizer_for(template("qwen3"))
    thinking = conversation(check_tokens(tokenizer), "answers that think")
    off = check_tokens(tokenizer, {"enable_thinking": False})
    assert reasons(thinking) == {"thoughts"}
    plain = conversation(off, "plain answers")
    assert "answers that think" not in [one.name for one in off.conversations]
    assert reasons(plain) == {"opening"} and "</think>" in plain.breaks[0].was


def test_an_episode_of_an_environment_is_played_too():
    env = CountdownEnv(None, {"episodes_per_trial": 2})
    report = check_tokens(build_tokenizer(DROPS_THOUGHT), env=env)
    plain = conversation(report, f"{env.name}, plain answers")
    thinking = conversation(report, f"{env.name}, answers that think")
    assert (plain.rows, plain.breaks) == (2, ()) and plain.masked
    assert (thinking.rows, len(thinking.breaks)) == (4, 2) and thinking.masked
    assert [(rewrite.episode, rewrite.step) for rewrite in thinking.breaks] == [(0, 1), (1, 1)]


def test_without_a_template_texts_are_joined_to_one_row(plain_tokenizer):
    report = check_tokens(plain_tokenizer)
    assert {one.rows for one in report.conversations} == {1} and report.problems == ()
    assert dict(report.lines())["chat template"].startswith("none")


def test_a_template_that_refuses_a_second_turn_is_not_fit():
    text = "{% if messages | length > 1 %}{{ raise_exception('one only') }}{% endif %}"
    report = check_tokens(build_tokenizer(text + CHATML))
    assert "one only" in report.problems[0] and "\n" not in report.problems[0]
    assert report.conversations[0].refused.startswith("the chat template cannot render it")
    assert "not fit" in dict(report.lines())["verdict"]


def test_a_tokenizer_with_a_token_that_has_no_other_spelling_is_not_fit():
    tokenizer = tokenizer_for(CHATML + "{# for a report #}")
    tokenizer.add_special_tokens({"additional_special_tokens": ["|"]})
    report = check_tokens(tokenizer)
    assert "|" in report.check.forgeable and "forge" in report.problems[0]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "none: a tokenizer without a chat template has no tool calls; templates of"),
        (
            SMOLLM3,
            "as in Qwen, SmolLM3, GLM, Granite 4; one, or two in one answer, is read as it was "
            "written; call, result and next call stay one row",
        ),
        (
            SMOLLM3.replace("call.function |", "[call.function.name, call.function.arguments] |"),
            "a call is NOT read as the template writes",
        ),
        (
            SMOLLM3.replace("assistant\n{% endif %}", "assistant\n<think></think>{% endif %}"),
            "as in Qwen, SmolLM3, GLM, Granite 4; one, or two in one answer, is read as it was "
            "written; the template writes something else before earlier answers, so that a result "
            "begins a new row",
        ),
    ],
)
def test_what_becomes_of_calls_of_tools(text, sentence):
    tokenizer = tokenizer_for(text) if text else build_tokenizer(None)
    report = check_tokens(tokenizer)
    assert dict(report.lines())["tool calls"].startswith(sentence)
    assert report.problems == ()


def test_the_report_is_json_too():
    report = check_tokens(build_tokenizer(DROPS_THOUGHT))
    data = json.loads(report.to_json())
    assert data["append_only"] is False and data["problems"] == []
    thinking = data["conversations"][1]
    assert thinking["breaks"][0]["reason"] == "thoughts" and thinking["cost"] > 1.3
    assert "does not show tools" in data["calls"]["fault"]
    assert set(data) >= {field.name for field in dataclasses.fields(report)}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_masks_are_exact_and_nothing_is_forged_with_every_template_of_trl(name):
    report = check_tokens(tokenizer_for(template(name)))
    assert report.problems == ()
    for one in report.conversations:
        if not one.refused:
            assert one.masked and one.rows == 1 + len(one.breaks)
            assert (one.tokens > one.one_row_tokens) == (one.rows > 1)
