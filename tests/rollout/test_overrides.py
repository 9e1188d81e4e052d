"""Hooks that a user overrides are called, and what they return counts."""

import pytest

from agentsgym import DirectOutputAgent, EnvPool, SamplingParams, ScriptedAgent, credit, register
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.rollout import run
from helpers import CountdownEnv

TASK = {"rewards": [0.5, 1.0]}


def last_on(mask):
    return len(mask) - 1 - mask[::-1].index(1)


class Doubling(CountdownEnv):
    """Doubles the final reward and pays the last agent token."""

    calls = 0

    def _run_complete_episode(self, session_id, agent):
        type(self).calls += 1
        record = super()._run_complete_episode(session_id, agent)
        rewards = [0.0] * len(record["full_token_ids"])
        rewards[last_on(record["agent_token_mask"])] = 7.0
        record["final_completion_messages"][0]["content"] = "edited"
        return record | {"final_reward": 2 * record["final_reward"], "per_token_rewards": rewards}


@pytest.fixture(autouse=True)
def fresh():
    register("Doubling", Doubling)
    register("Countdown", CountdownEnv)
    Doubling.calls = 0


@pytest.fixture
def agent(tiny_llama, chat_tokenizer):
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=4)
    return DirectOutputAgent(engine, SamplingParams(max_tokens=2))


def assert_doubled(batch):
    assert batch["final_rewards"] == [3.0] * len(batch.rollouts)
    assert batch["step_rewards"] == [[0.5, 2.5]] * len(batch.rollouts)
    for rewards, mask in zip(batch["per_token_rewards"], batch["agent_token_mask"], strict=True):
        assert rewards[last_on(mask)] == sum(rewards) == 7.0
    assert sum(credit.advantages(batch, "reward")[0]) == 7.0
    first = batch.rollouts[0].episodes[0].messages[0]["content"]
    assert first == "Is it an animal?"


def test_rewards_of_an_episode_override_land_in_the_batch(plain_tokenizer):
    batch = Doubling(plain_tokenizer).run_trial([TASK], ScriptedAgent(["a", "b"]), 2)
    assert Doubling.calls == 2
    assert_doubled(batch)
    one_step = Doubling(plain_tokenizer).run_trial([{"rewards": [1.0]}], ScriptedAgent(["a"]))
    assert one_step["per_token_rewards"][0][-1] == sum(one_step["per_token_rewards"][0]) == 7.0


def test_an_episode_override_is_called_for_an_engine_too(agent, chat_tokenizer):
    batch = Doubling(chat_tokenizer).run_trial([TASK], agent, 3)
    assert Doubling.calls == 3
    assert_doubled(batch)
    assert all(row.sampled and any(row.logprobs) for row in batch.rows)
    assert not agent.engine._caches.sessions


def test_episode_overrides_and_others_keep_their_places_in_one_batch(agent):
    names = ["Countdown", "Doubling", "Countdown", "Doubling"]
    rows = [{"env_class_path": name, "env_config": {}, "task_data": TASK} for name in names]
    batch = run(rows, agent, 2)
    assert [r.env_class_path for r in batch.rollouts] == [name for name in names for _ in range(2)]
    assert batch["final_rewards"] == [1.5, 1.5, 3.0, 3.0] * 2
    plain = run(rows[:1], agent, 2)
    assert batch["full_token_ids"][:2] == plain["full_token_ids"]


def test_an_override_counts_in_each_episode_of_one_conversation(plain_tokenizer):
    config = {"episodes_per_trial": 3, "free_shots": 1, "carry": "full"}
    batch = Doubling(plain_tokenizer, config).run_trial([TASK], ScriptedAgent(["a"]))
    (row,) = batch.rows
    assert batch["final_rewards"] == [3.0]
    # Both scored episodes pay their last agent token, as the override says.
    (rewards,) = batch["per_token_rewards"]
    ends = {span.episode: span.stop - 1 for span in row.spans}
    assert {k: r for k, r in enumerate(rewards) if r} == {ends[1]: 7.0, ends[2]: 7.0}


def test_an_override_pays_for_no_earlier_episode(plain_tokenizer):
    class PaysTheFirst(CountdownEnv):
        def _run_complete_episode(self, session_id, agent):
            record = super()._run_complete_episode(session_id, agent)
            record["per_token_rewards"][record["agent_token_mask"].index(1)] = 1.0
            return record

    env = PaysTheFirst(plain_tokenizer, {"episodes_per_trial": 2, "carry": "full"})
    (rollout,) = env.run_trial([TASK], ScriptedAgent(["a"])).rollouts
    assert rollout.failed and "tokens of an earlier episode" in rollout.error


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"per_token_rewards": [1.0]}, "different lengths"),
        ({"full_token_ids": [1], "agent_token_mask": [1], "per_token_rewards": [0.0]}, "'episode'"),
        ({"final_reward": float("nan")}, "final_reward"),
        ({"agent_token_mask": None}, "NoneType"),
    ],
)
def test_a_bad_record_of_an_override_fails_its_session(plain_tokenizer, change, words):
    class Bad(CountdownEnv):
        def _run_complete_episode(self, session_id, agent):
            return super()._run_complete_episode(session_id, agent) | change

    batch = Bad(plain_tokenizer).run_trial([TASK], ScriptedAgent(["a"]), return_all_steps=True)
    assert batch.rollouts[0].failed and words in batch.rollouts[0].error
    assert len({len(batch[key]) for key in batch}) == 1


class Shouting(DirectOutputAgent):
    """Says what the model says, in capitals."""

    calls = 0

    def get_action(self, messages, agent_state):
        type(self).calls += 1
        text, state = super().get_action(messages, agent_state)
        return text.upper() + "!", state


def test_get_action_of_a_model_backed_agent_is_called_where_it_is_overridden(agent):
    shouting = Shouting(agent.engine, agent.sampling)
    rows = [{"env_class_path": "Countdown", "env_config": {}, "task_data": TASK}]
    Shouting.calls = 0
    batch = run(rows, shouting, 2)
    assert Shouting.calls == 4
    for rollout in batch.rollouts:
        actions = [step.action for step in rollout.episodes[0].steps]
        assert all(action.endswith("!") and action == action.upper() for action in actions)
        assert not any(row.sampled for row in rollout.rows)
    assert all(row.sampled for row in run(rows, agent, 2).rows)
    pool = EnvPool(agent.engine.tokenizer)
    assert run(rows, shouting, envs=pool)["full_token_ids"] == batch["full_token_ids"][:1]
