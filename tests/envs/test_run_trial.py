"""What `run_trial` takes, what it says, and keys that depend on the environment's settings."""

import logging

import pytest

from agentsgym import EnvPool, ScriptedAgent, register, task_dataset
from agentsgym.rollout import run
from helpers import CountdownEnv, DigitEnv

AGENT = ScriptedAgent(["a"])
TASK = {"rewards": [0.5, 1.0]}


@pytest.fixture(autouse=True)
def names():
    register("Countdown", CountdownEnv)
    register("Digit", DigitEnv)


@pytest.mark.parametrize("config", [{}, {"bonus": 1.0}])
def test_rows_of_the_environment_are_taken_as_tasks(config):
    env = CountdownEnv(None, config)
    rows = env.get_train_dataset()
    tasks = [row["task_data"] for row in rows]
    for given in (rows, list(rows), iter(rows), rows.select(range(8))):
        batch = env.run_trial(given, AGENT)
        assert batch["final_rewards"] == env.run_trial(tasks, AGENT)["final_rewards"]
        assert [rollout.task_data for rollout in batch.rollouts] == tasks


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (DigitEnv(None).get_train_dataset()[0], ["row 1", "Digit", "rollout.run"]),
        (CountdownEnv(None, {"bonus": 2.0}).get_train_dataset()[0], ["row 1", "bonus"]),
        (
            {"env_class_path": "Countdown", "env_config": {}, "task_data": "{}"},
            ["row 1", "task_data"],
        ),
    ],
)
def test_a_row_of_another_environment_is_refused(row, words):
    env = CountdownEnv(None)
    with pytest.raises(ValueError) as error:
        env.run_trial([TASK, row], AGENT)
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.parametrize("given", [TASK, "task", 3, None, [TASK, "task"], [TASK, ["a"]]])
def test_what_is_no_list_of_tasks_is_refused(given):
    with pytest.raises(TypeError, match="task"):
        CountdownEnv(None).run_trial(given, AGENT)


def test_a_task_that_has_the_columns_and_more_is_a_task(plain_tokenizer):
    task = {"env_class_path": "x", "env_config": {}, "task_data": {}, "rewards": [2.0]}
    assert CountdownEnv(plain_tokenizer).run_trial([task], AGENT)["final_rewards"] == [2.0]


def test_rollouts_that_all_fail_are_warned_about_once(caplog):
    env = CountdownEnv(None)
    with caplog.at_level(logging.WARNING, logger="agentsgym"):
        env.run_trial([{"broken": True}] * 2, AGENT, 2)
    (warning,) = caplog.records
    assert "every rollout failed (4)" in warning.getMessage()
    assert "this task cannot be set up" in warning.getMessage()
    caplog.clear()
    env.run_trial([{"broken": True}, TASK], AGENT)
    env.run_trial([], AGENT)
    assert not caplog.records
    rows = task_dataset(env, [{"broken": True}])
    run(rows, AGENT)
    assert len(caplog.records) == 1


def test_text_agents_pad_with_the_environments_pad_token(plain_tokenizer):
    tokenizer = plain_tokenizer
    rows = task_dataset(CountdownEnv(None), [TASK])
    lines = iter(["a", "a", "Can it fly?", "a"])
    agent = ScriptedAgent(lambda messages: next(lines))
    tokenizer.pad_token = "<|im_start|>"
    try:
        assert tokenizer.pad_token_id != 0
        batch = run(rows, agent, 2, envs=EnvPool(tokenizer))
    finally:
        tokenizer.pad_token = "<pad>"
    short, long = map(len, batch["full_token_ids"])
    fill = batch["padded_full_token_ids"][0][short:]
    assert fill == [tokenizer.convert_tokens_to_ids("<|im_start|>")] * (long - short) and fill


def test_equal_seeds_give_equal_sessions_and_others_do_not():
    env = CountdownEnv(None)
    first, again = env.run_trial([TASK], AGENT, 2), env.run_trial([TASK], AGENT, 2)
    other = env.run_trial([TASK], AGENT, 2, seed=1)
    assert first["session_ids"] == again["session_ids"]
    assert not set(first["session_ids"]) & set(other["session_ids"])


def test_nested_rewards_repeat_the_final_reward_where_that_is_set(plain_tokenizer):
    def play(cls, config):
        batch = cls(plain_tokenizer, config).run_trial([TASK], AGENT, return_all_steps=True)
        assert batch["step_rewards"] == [[0.5, 1.0]]
        return batch["rewards"]

    class Repeating(CountdownEnv):
        class Settings(CountdownEnv.Settings):
            final_reward: str = "repeat"

    assert play(CountdownEnv, {}) == [[0.5, 1.0]]
    assert play(CountdownEnv, {"final_reward": "spread"}) == [[0.5, 1.0]]
    assert play(CountdownEnv, {"final_reward": "repeat"}) == [[1.5, 1.5]]
    assert play(Repeating, {}) == [[1.5, 1.5]]
