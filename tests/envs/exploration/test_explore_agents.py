"""The players of the exploration games as agents that read the conversation."""

import pytest

from agentsgym.envs.exploration.env import ExploreEnv
from expectations import explored


def rollouts_of(env, agent, tasks=32):
    rollouts = env.run_trial(list(env.get_eval_dataset()["task_data"])[:tasks], agent).rollouts
    assert not any(rollout.failed for rollout in rollouts)
    return rollouts


def test_what_the_careless_teacher_earns_by_hand():
    env = ExploreEnv(None, {"eval_tasks": 1500})
    rollouts = rollouts_of(env, env.teacher_agent(seed=2), 1500)
    knows = 0.7 + 0.3 / 8
    after_a_claim = knows / 8 + (0.7 / 7 + 0.3 / 8) * 7 / 8
    expected = 0.85 * (0.15 * knows + 0.85 * after_a_claim)
    assert sum(r.final_reward for r in rollouts) / 1500 == pytest.approx(expected, abs=0.03)


def test_the_teachers_shares_are_settings():
    env = ExploreEnv(None, {"teacher_looks": 1.0})
    assert explored(env.plan, env.player()).informing == (1.0, 0.0)
    steps = [s for r in rollouts_of(env, env.teacher_agent()) for e in r.episodes for s in e.steps]
    assert all(step.info["informing"] for step in steps)
    env = ExploreEnv(None, {"teacher_looks": 0.0, "teacher_uses": 1.0})
    steps = [s for r in rollouts_of(env, env.teacher_agent()) for e in r.episodes for s in e.steps]
    assert not any(step.info["informing"] for step in steps)
