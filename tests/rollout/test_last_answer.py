"""Between two episodes of a trial the agent reads the answer to its last action."""

import pytest
from doubles import CupsEnv

from agentsgym import ScriptedAgent
from helpers import CountdownEnv

TRIAL = {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"}
OVER = "The episode is over. Reward: 0.25."


def second_prompt(env, task, *actions):
    [rollout] = env.run_trial([task], ScriptedAgent(list(actions))).rollouts
    assert not rollout.failed, rollout.error
    return rollout.episodes[1].steps[0].observation


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_free_shot_of_one_step_found_out_is_handed_on(workers):
    env = CupsEnv(None, {**TRIAL, "workers": workers})
    answer = "The ball is under cup 3."
    assert second_prompt(env, {"ball": 3}, "look", "3") == f"{answer}\n{OVER}\n\nWhich cup?"


def test_the_request_for_a_reflection_has_the_answer_and_the_episodes_whole_reward():
    env = CupsEnv(None, {**TRIAL, "carry": "summary"})
    [rollout] = env.run_trial([{"ball": 3}], ScriptedAgent(["look", "cup 3", "3"])).rollouts
    reflection = rollout.episodes[0].steps[1]
    assert reflection.kind == "reflection"
    assert reflection.observation.startswith(f"The ball is under cup 3.\n{OVER} Write down")


def test_an_episode_that_a_limit_ended_has_its_last_answer_too():
    env = CountdownEnv(None, {**TRIAL, "max_steps_per_episode": 2})
    prompt = second_prompt(env, {"rewards": [0.0, 0.0, 1.0]}, "a", "b", "c", "d")
    assert prompt == "The number is 2\nThe episode is over. Reward: 0.\n\nIs it an animal?"


@pytest.mark.parametrize(
    ("at_the_end", "workers"),
    [("raise", 0), ("raise", 1), ("leave", 0), ("nothing", 0), ("empty", 0)],
)
def test_an_environment_need_not_have_a_prompt_for_a_finished_state(at_the_end, workers):
    env = CupsEnv(None, {**TRIAL, "workers": workers})
    task = {"ball": 3, "at_the_end": at_the_end}
    assert second_prompt(env, task, "look", "3") == f"{OVER}\n\nWhich cup?"


def test_an_environment_that_writes_its_own_result_says_it_all_there():
    class Terse(CupsEnv):
        def _format_result(self, state, reward):
            return f"Over: {state['answer']}"

    prompt = second_prompt(Terse(None, TRIAL), {"ball": 3}, "look", "3")
    assert prompt == "Over: The ball is under cup 3.\n\nWhich cup?"


def test_an_answer_without_room_in_the_budget_is_not_shown(plain_tokenizer):
    from agentsgym import EnvPool, register
    from agentsgym.rollout import run

    class Wordy(CupsEnv):
        def _format_prompt(self, state, step):
            return "Is it an animal? " * 60 if step else "Is it?"

        def _step_episode(self, session_id, state, action):
            return state, 0.0, False, {}

    register("tests/Wordy", Wordy)
    row = {"env_class_path": "tests/Wordy", "env_config": TRIAL, "task_data": {"ball": 3}}
    batch = run([row], ScriptedAgent(["No"]), envs=EnvPool(plain_tokenizer), max_rollout_tokens=90)
    [rollout] = batch.rollouts
    assert rollout.episodes[0].stop_reason == "max_rollout_tokens"
    assert rollout.episodes[1].steps[0].observation.startswith("The episode is over.")
