"""What is told about a tokenizer before and while a model is trained with it."""

import pytest

from agentsgym import ScriptedAgent
from agentsgym.tokens import TokenCheck, inspect_tokenizer
from chat_tokenizers import template, tokenizer_for
from helpers import DROPS_THOUGHT, CountdownEnv, build_tokenizer


def test_a_plain_template_only_appends(chat_tokenizer):
    check = inspect_tokenizer(chat_tokenizer)
    assert check == TokenCheck(True, stops=("<|im_end|>",))


def test_without_a_template_texts_are_joined(plain_tokenizer):
    assert inspect_tokenizer(plain_tokenizer) == TokenCheck(False, stops=("<|im_end|>",))


@pytest.mark.parametrize(
    ("name", "plain", "thoughts"),
    [("qwen3", True, False), ("qwen3_training", False, True), ("gptoss", False, False)],
)
def test_whether_a_template_only_appends(name, plain, thoughts):
    check = inspect_tokenizer(tokenizer_for(template(name)))
    assert (check.append_only, check.thoughts_append_only) == (plain, thoughts)


def test_end_of_turn_tokens_are_those_that_close_an_answer():
    check = inspect_tokenizer(tokenizer_for(template("cohere2")))
    assert check.stops == ("<pad>", "<|END_RESPONSE|>")


def test_default_system_prompts_are_found():
    check = inspect_tokenizer(tokenizer_for(template("qwen2_5")))
    assert check.default_system_prompt.startswith("You are Qwen")
    assert inspect_tokenizer(tokenizer_for(template("qwen3"))).default_system_prompt == ""


def test_a_template_that_rewrites_history_is_reported_once_and_counted(caplog):
    from agentsgym.evaluation.metrics import record, summarize

    tokenizer = build_tokenizer(DROPS_THOUGHT + "{# told #}")
    env = CountdownEnv(tokenizer)
    agent = ScriptedAgent(["<think>a</think>No.", "<think>b</think>Yes.", "c"])
    batch = env.run_trial([{"rewards": [0.0, 0.0, 1.0]}] * 2, agent)
    assert caplog.text.count("rewrites earlier turns") == 1
    figures = summarize([record(rollout) for rollout in batch.rollouts])
    assert (figures["rows_per_rollout"], figures["template_breaks"]) == (3.0, 2.0)


def test_keys_that_hold_the_last_of_several_rows_say_so_once(caplog, monkeypatch):
    from agentsgym.types import batch as batches

    monkeypatch.setattr(batches, "_WARNED", set())
    env = CountdownEnv(build_tokenizer(DROPS_THOUGHT))
    agent = ScriptedAgent(["<think>a</think>No.", "<think>b</think>Yes.", "c"])
    batch = env.run_trial([{"rewards": [0.0, 0.0, 1.0]}], agent)
    assert batch.rows_per_rollout == (3,)
    held, every = batch.rows[-1].agent_token_mask, batch.rollouts[0].agent_tokens
    assert list(batch["final_rewards"]) == [1.0] and "last row" not in caplog.text
    assert batch["agent_token_mask"] == [list(held)]
    assert f"here with {sum(held)} of {every} agent tokens" in caplog.text
    env.run_trial([{"rewards": [0.0, 0.0, 1.0]}], agent)["full_token_ids"]
    assert caplog.text.count("holds the last row") == 1
