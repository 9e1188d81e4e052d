"""The players of the exploration games as agents that read the conversation."""

import pytest

from agentsgym.envs.exploration import ExploreEnv
from expectations import explored

CONFIGS = {
    "place": {},
    "place, noise": {"noise": 0.3, "free_shots": 3},
    "place, two facts": {"facts": 2, "free_shots": 2, "episodes_per_trial": 4, "noise": 0.1},
    "place, several steps": {"max_steps_per_episode": 3, "free_shots": 0, "look_cost": 0.1},
    "switches": {"game": "switches"},
    "switches, noise": {"game": "switches", "noise": 0.1, "facts": 2},
    "rule": {"game": "rule"},
    "rule, noise": {"game": "rule", "noise": 0.2, "facts": 2, "episodes_per_trial": 4},
}


def rollouts_of(env, agent, tasks=32):
    rollouts = env.run_trial(list(env.get_eval_dataset()["task_data"])[:tasks], agent).rollouts
    assert not any(rollout.failed for rollout in rollouts)
    return rollouts


@pytest.mark.parametrize("name", ["place, noise", "place, two facts"])
def test_references_average_to_the_exact_value(name):
    env = ExploreEnv(None, CONFIGS[name] | {"eval_tasks": 500})
    for informs, reference in ((True, env.reference_score), (False, env.never_informing_score)):
        scores = [reference(task) for task in env.get_eval_dataset()["task_data"]]
        value = env.player(informs=informs).value()
        assert sum(scores) / len(scores) == pytest.approx(value, abs=0.06)


@pytest.mark.parametrize("game", ["place", "switches", "rule"])
@pytest.mark.parametrize("carry", ["full", "summary"])
def test_the_teacher_looks_and_uses_in_its_shares(game, carry):
    env = ExploreEnv(
        None,
        {
            "game": game, "carry": carry, "choices": 4, "episodes_per_trial": 9, "free_shots": 8,
            "teacher_looks": 0.3, "teacher_uses": 0.5,
        },
    )  # fmt: skip
    rollouts = rollouts_of(env, env.teacher_agent(seed=1), 200)
    steps = [s for r in rollouts for e in r.episodes for s in e.steps if s.kind == "action"]
    looked = sum(step.info["informing"] for step in steps) / len(steps)
    assert looked == pytest.approx(0.3, abs=0.05)
    last = [r.episodes[-1].steps[-1] for r in rollouts]
    claims = [step for step in last if not step.info["informing"]]
    right = sum(step.info["win"] for step in claims) / len(claims)
    # In eight episodes it almost surely found out: half of its claims are right, and a quarter of
    # the others.
    assert right == pytest.approx(0.5 + 0.5 / 4, abs=0.12)


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
