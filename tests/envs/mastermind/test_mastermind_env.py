"""Mastermind as an environment, and its players as agents."""

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs.mastermind.env import MastermindEnv

BARE = {"hints": 0}


def make(**config):
    return MastermindEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def test_the_right_guess_is_paid_and_ends_the_episode():
    script = ScriptedAgent(["Blue, red.", "red blue"])
    episode = play(make(), {"solution": "red blue", "seed": 1}, script).episodes[0]
    assert episode.messages[2]["content"] == "0 right place, 2 right colour."
    assert [step.reward for step in episode.steps] == [0.0, 1.0]
    assert episode.stop_reason == "win" and episode.win is True


def test_limits_and_malformed_actions():
    env = make(error_allowance=3, **BARE)
    script = ScriptedAgent(["red", "red pink", "<think>?</think>red red"])
    episode = play(env, {"solution": "blue blue"}, script).episodes[0]
    assert [step.malformed for step in episode.steps] == [True, True, False]
    assert episode.steps[1].observation == "That is no code."
    assert (episode.stop_reason, episode.win, episode.reward) == ("guesses_used", False, 0.0)


def test_metrics_say_what_a_guess_brought():
    env = make(**BARE)
    script = ScriptedAgent(["red green", "red green", "blue red"])
    episode = play(env, {"solution": "blue red"}, script).episodes[0]
    metrics = [step.info["metrics"] for step in episode.steps]
    # "red green" leaves 4 of 16: blue red, yellow red, green blue, green yellow.
    assert [one["bits"] for one in metrics] == pytest.approx([2.0, 0.0, 2.0])
    assert [one["consistent"] for one in metrics] == [1.0, 0.0, 1.0]
    assert [step.info["informing"] for step in episode.steps] == [True, False, True]


def test_hints_split_shares_codes_and_no_task():
    env = make()
    train, held_out = env.get_train_dataset(), env.get_eval_dataset()
    assert (len(train), len(held_out)) == (16 * 12, 16 * 3)

    def with_hints(dataset):
        return {(r["task_data"]["solution"], env.read_task(r["task_data"])[1]) for r in dataset}

    assert len(with_hints(train)) == len(train) and len(with_hints(held_out)) == len(held_out)
    assert not with_hints(train) & with_hints(held_out)
    codes = [{task["solution"] for task in one["task_data"]} for one in (train, held_out)]
    assert codes[0] == codes[1]
