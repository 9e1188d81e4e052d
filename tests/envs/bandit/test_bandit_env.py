"""The bandit as an environment, and its players as agents."""

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs.bandit.env import BanditEnv


def make(**config):
    return BanditEnv(None, config)


def play(env, task, agent):
    rollout = env.run_trial([task], agent).rollouts[0]
    assert rollout.error is None
    return rollout


def outcomes(episode):
    return [step.info.get("success") for step in episode.steps if step.kind == "action"]


def test_what_a_pull_earns_and_tells():
    env = make(max_steps_per_episode=2)
    rollout = play(env, {"probabilities": [1, 0, 0.5]}, ScriptedAgent(["Red.", "green"]))
    assert [step.reward for step in rollout.episodes[0].steps] == [0.5, 0.0]
    assert rollout.episodes[0].stop_reason == "pulls_used"
    infos = [step.info for step in rollout.episodes[0].steps]
    assert [info["metrics"]["regret"] for info in infos] == [0.0, 1.0]
    assert [info["win"] for info in infos] == [True, False]


def test_malformed_actions_waste_a_pull():
    env = make(max_steps_per_episode=3)
    task = {"probabilities": [1, 0.5, 0.5]}
    rollout = play(env, task, ScriptedAgent(["purple", "<think>or</think>red", "red green"]))
    steps = rollout.episodes[0].steps
    assert [step.malformed for step in steps] == [True, False, True]
    assert rollout.final_reward == pytest.approx(1 / 3)
    assert steps[1].observation == "No such arm."
    assert steps[0].info["metrics"] == {"regret": 1.0, "best_arm": 0.0}


def test_outcomes_depend_on_the_task_alone():
    """Common random numbers: the n-th pull of an arm ends alike whatever came between."""
    env = make(max_steps_per_episode=4)
    first = play(env, {"seed": 5}, ScriptedAgent(["red", "green", "red", "green"]))
    second = play(env, {"seed": 5}, ScriptedAgent(["green", "green", "red", "red"]))
    a, b = outcomes(first.episodes[0]), outcomes(second.episodes[0])
    assert [a[0], a[2]] == b[2:] and [a[1], a[3]] == b[:2]
    again = play(make(max_steps_per_episode=4), {"seed": 5}, ScriptedAgent(["red", "green"] * 2))
    assert outcomes(again.episodes[0]) == a


def test_episodes_of_a_trial_have_the_same_arms_and_fresh_noise():
    env = make(max_steps_per_episode=12, episodes_per_trial=3)
    rollout = play(env, {"probabilities": [0.5] * 3}, ScriptedAgent(["red"]))
    played = [tuple(outcomes(episode)) for episode in rollout.episodes]
    assert len(set(played)) == 3
    again = play(env, {"probabilities": [0.5] * 3}, ScriptedAgent(["red"]))
    assert [tuple(outcomes(episode)) for episode in again.episodes] == played


def test_notes_hold_all_counts_of_the_trial():
    env = make(max_steps_per_episode=2, carry="summary", episodes_per_trial=3)
    rollout = play(env, {"probabilities": [1.0, 0.0, 0.0]}, env.optimal_agent())
    notes = [s.action for e in rollout.episodes for s in e.steps if s.kind == "reflection"]
    assert notes == [
        "red 2 won 0 lost, green 0 won 0 lost, blue 0 won 0 lost",
        "red 4 won 0 lost, green 0 won 0 lost, blue 0 won 0 lost",
    ]
