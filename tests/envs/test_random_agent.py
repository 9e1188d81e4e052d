"""The teacher of environments that only say what is admissible."""

import pytest

import agentsgym
from agentsgym.agents import RandomAgent
from agentsgym.agents.scripted import scripted_agent
from agentsgym.envs import ConfigError
from helpers import CountdownEnv


def actions_of(env, tasks, agent):
    batch = env.run_trial(tasks, agent)
    assert not any(rollout.failed for rollout in batch.rollouts)
    return [
        [step.action for episode in rollout.episodes for step in episode.steps]
        for rollout in batch.rollouts
    ]


@pytest.fixture
def guess():
    pytest.importorskip("textarena")
    return agentsgym.make("TextArena/GuessTheNumber")


def test_all_admissible_actions_are_said_and_no_others(guess):
    teacher = scripted_agent(guess, "teacher", seed=3)
    assert isinstance(teacher, RandomAgent)
    played = actions_of(guess, [{"seed": k} for k in range(40)], teacher)
    assert {action for actions in played for action in actions} == {
        f"[{number}]" for number in range(1, 21)
    }


def test_an_environment_that_lists_nothing_has_no_teacher():
    env = CountdownEnv()
    assert env.admissible_actions({}) is None
    with pytest.raises(TypeError, match="admissible_actions"):
        RandomAgent(env)
    with pytest.raises(ConfigError, match="teacher_agent"):
        scripted_agent(env, "teacher")


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_admissible_is_read_from_the_state_wherever_it_is(workers):
    class Narrowing(CountdownEnv):
        def admissible_actions(self, state):
            return [f"action {len(state['played'])}"]

    env = Narrowing(None, {"workers": workers})
    played = actions_of(env, [{"rewards": [0.0, 0.0, 1.0]}], RandomAgent(env))
    assert played == [["action 0", "action 1", "action 2"]]


def test_nothing_admissible_fails_the_session_unless_its_episode_is_over():
    class Stuck(CountdownEnv):
        def admissible_actions(self, state):
            return [] if len(state["played"]) == state["rewards"][0] else ["go"]

    config = {"episodes_per_trial": 2, "carry": "summary"}
    env = Stuck(None, config)
    fine, stuck = env.run_trial(
        [{"rewards": [2.0, 0.0]}, {"rewards": [1.0, 0.0]}], RandomAgent(env)
    ).rollouts
    assert not fine.failed and fine.episodes[0].steps[-1].action == "Nothing to note."
    assert "nothing is admissible" in stuck.error
