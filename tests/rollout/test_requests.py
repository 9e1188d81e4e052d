"""Requests for rollouts, what sessions exchange with engines, and names that these had in 0.1."""

from typing import get_args

import pytest

from agentsgym import EnvPool, ScriptedAgent, register
from agentsgym.rollout import RolloutRequest, play, run
from agentsgym.types import GenerationResult, Row, session_seed
from agentsgym.types.reward_placement import FINAL_REWARDS, REWARD_PLACEMENTS, place_rewards
from helpers import CountdownEnv
from of_rows import episode_of, span_of, step_of

ROW = {"env_class_path": "Countdown", "env_config": {}, "task_data": {"rewards": [0.0, 1.0]}}


@pytest.fixture(autouse=True)
def names():
    register("Countdown", CountdownEnv)


def test_a_request_names_its_session_by_group_number_and_seed():
    request = RolloutRequest.of(ROW, 3, 1, 255, max_rollout_tokens=9)
    assert request.session_id == "00003-001-00000000000000ff"
    assert (request.task_data, request.max_rollout_tokens) == (ROW["task_data"], 9)
    assert session_seed(0, 3, 1) == session_seed(0, 3, 1) != session_seed(0, 1, 3)


def test_play_gives_the_rollouts_of_its_requests_in_order(plain_tokenizer):
    requests = [RolloutRequest.of(ROW, group, 0, session_seed(7, group, 0)) for group in (1, 0)]
    rollouts = play(requests, ScriptedAgent(["a"]), EnvPool(plain_tokenizer))
    assert [r.session_id for r in rollouts] == [r.session_id for r in requests]
    batch = run([ROW] * 2, ScriptedAgent(["a"]), seed=7, envs=EnvPool(plain_tokenizer))
    assert rollouts == list(batch.rollouts)[::-1]


def test_a_bad_row_is_named_by_its_number_before_anything_is_played():
    with pytest.raises(ValueError, match="row 1: 'task_data' is missing"):
        run([ROW, {"env_class_path": "Countdown", "env_config": {}}], ScriptedAgent(["a"]), 3)


@pytest.mark.parametrize("logprobs", [None, (), (-1.0,)])
def test_sampled_tokens_need_as_many_logprobs(logprobs):
    with pytest.raises(ValueError, match="2 sampled tokens need as many logprobs"):
        GenerationResult("s", (1, 2), logprobs)
    assert GenerationResult.of_text("two words").token_ids is None


def test_values_of_the_reward_keys_are_those_of_the_tables():
    fields = CountdownEnv.Settings.model_fields
    for name, entries in (
        ("reward_placement", REWARD_PLACEMENTS),
        ("final_reward", FINAL_REWARDS),
    ):
        assert get_args(fields[name].annotation) == tuple(entries)
        assert all(help in fields[name].description for help in entries.values())


@pytest.mark.parametrize("final_reward", FINAL_REWARDS)
@pytest.mark.parametrize("placement", REWARD_PLACEMENTS)
def test_an_action_without_tokens_has_no_rewards(placement, final_reward):
    game = episode_of(step_of(reward=1.0, done=True))
    row = Row("s", 0, 0, [1, 2, 3], [0.0] * 3, (span_of(0, 0, 2, 2),))
    rewards = place_rewards(row, game, placement, final_reward)
    assert rewards.tolist() == [0.0] * 3
