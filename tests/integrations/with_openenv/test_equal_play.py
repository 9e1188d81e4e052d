"""The same tasks through the door and natively: conversations, rewards, token ids and masks."""

import dataclasses

import pytest

pytest.importorskip("openenv")

from agentsgym import DirectOutputAgent, SamplingParams, make
from agentsgym.generation import EmbeddedEngine
from agentsgym.types.reward_placement import per_token_rewards
from helpers import CHATML, build_tokenizer, wait_until
from integrations.with_openenv.served_env import served
from rollout.test_stepping import Wanderer

pytestmark = pytest.mark.doors
TOKENIZER = build_tokenizer(CHATML)
TASKS = 3


def through_the_door(url, tokenizer=None, **given):
    config = {"base_url": url, "eval_split": "eval", "eval_tasks": TASKS, "sessions": 8, **given}
    return make("OpenEnv", tokenizer, config)


def plain(rollout):
    """What a rollout holds of its conversations, steps and tokens, without its environment's name,
    anchors, and the metrics of `info`."""
    episodes = [
        (
            episode.messages,
            episode.reward,
            episode.stop_reason,
            episode.win,
            [(s.observation, s.action, s.reward, s.malformed, s.kind) for s in episode.steps],
        )
        for episode in rollout.episodes
    ]
    rows = [dataclasses.replace(row, session_id="") for row in rollout.rows]
    return rollout.error, rollout.final_reward, episodes, rows


def assert_equal(native, door):
    assert len(native) == len(door) > 0
    for one, other in zip(native, door):
        assert plain(one) == plain(other)


def both(name, tokenizer, agent, settings, count=1, **ours):
    """The rollouts of an environment and of the door to it, on the same tasks."""
    env = make(name, tokenizer, {**settings, **ours})
    with served(make(name, None, settings), sessions=8) as url:
        door = through_the_door(url, tokenizer, **ours)
        tasks = env.get_eval_dataset()["task_data"][:TASKS]
        native = env.run_trial(tasks, agent, count).rollouts
        rows = door.get_eval_dataset()["task_data"][: len(tasks)]
        return native, door.run_trial(rows, agent, count).rollouts


@pytest.mark.parametrize("name", ["Bandit", "Mastermind", "Explore", "TwentyQuestions"])
def test_each_environment_plays_alike_and_has_the_same_tokens(name):
    config = {"max_steps_per_episode": 6, "episodes_per_trial": 1, "free_shots": 0}
    native, door = both(name, TOKENIZER, Wanderer(name), config)
    assert all(rollout.rows for rollout in native)
    assert_equal(native, door)


def test_a_sampling_model_says_the_same(tiny_llama, chat_tokenizer):
    agent = DirectOutputAgent(
        EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8), SamplingParams(max_tokens=5)
    )
    config = {"max_steps_per_episode": 4, "error_allowance": 9}
    native, door = both("TwentyQuestions", chat_tokenizer, agent, config, count=3)
    for one, other in zip(native, door):
        for rewards, expected in zip(per_token_rewards(one), per_token_rewards(other), strict=True):
            assert rewards.tolist() == expected.tolist()
        for row, twin in zip(one.rows, other.rows, strict=True):
            assert row.token_ids.tolist() == twin.token_ids.tolist() and row.sampled
            assert row.agent_token_mask.tolist() == twin.agent_token_mask.tolist()
            assert row.logprobs == pytest.approx(twin.logprobs, abs=1e-5)


def test_a_served_trial_of_several_episodes_is_refused():
    env = make("Bandit", None, {"episodes_per_trial": 2, "max_steps_per_episode": 2})
    with served(env) as url:
        door = through_the_door(url)
        (rollout,) = door.run_trial([{"seed": 1}], Wanderer(1)).rollouts
        assert "let it serve single episodes" in rollout.error
        wait_until(lambda: not env.active_states)
