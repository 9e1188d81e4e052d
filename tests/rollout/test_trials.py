"""Trials: what an episode sees of the earlier ones, and what the rows look like."""

import numpy as np
import pytest

from agentsgym import ScriptedAgent, credit, register
from agentsgym.types.reward_placement import per_token_rewards
from helpers import CountdownEnv

TASK = {"rewards": [0.5, 1.0]}


def contents(messages):
    return [message["content"] for message in messages]


def placed(batch):
    """The rewards on the tokens of each action."""
    rows = [pair for r in batch.rollouts for pair in zip(r.rows, per_token_rewards(r), strict=True)]
    return [rewards[s.start : s.stop].sum() for row, rewards in rows for s in row.spans]


def test_full_carry_is_one_conversation_in_one_row(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer, {"episodes_per_trial": 2, "free_shots": 1, "carry": "full"})
    batch = env.run_trial([TASK], ScriptedAgent(["a", "b", "c", "d"]), return_all_steps=True)
    (row,) = batch.rows
    assert [(s.episode, s.step) for s in row.spans] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    first, second = batch.rollouts[0].episodes
    assert contents(first.messages) == ["Is it an animal?", "a", "The number is 1", "b"]
    assert second.continues and contents(second.messages) == [
        "The number is 2\nThe episode is over. Reward: 1.5.\n\nIs it an animal?",
        "c",
        "The number is 1",
        "d",
    ]
    text = plain_tokenizer.decode(row.token_ids)
    assert text == "".join(contents([*first.messages, *second.messages]))
    assert batch["final_completion_messages"] == [[*first.messages, *second.messages]]
    # The free shot shows no reward; its steps keep theirs.
    assert placed(batch) == pytest.approx([0.0, 0.0, 0.5, 1.0])
    assert batch["step_rewards"] == [[0.5, 1.0, 0.5, 1.0]]
    assert [contents(m)[-1] for m in batch["messages"][0]] == ["a", "b", "c", "d"]


def test_summary_carry_lets_the_agent_write_its_own_context(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer, {"episodes_per_trial": 2, "carry": "summary"})
    lines = ["a", "b", "Can it fly?", "c", "d"]
    batch = env.run_trial([TASK], ScriptedAgent(lines))
    first, second = batch.rollouts[0].episodes
    assert [s.kind for s in first.steps] == ["action", "action", "reflection"]
    assert first.reward == 1.5 and first.steps[2].reward == 0.0
    assert first.win and len(first.actions) == 2
    assert "Write down briefly" in first.steps[2].observation
    assert contents(second.messages)[0] == ("Your notes: Can it fly?\n\nIs it an animal?")
    assert [[(s.episode, s.step) for s in row.spans] for row in batch.rows] == [
        [(0, 0), (0, 1), (0, 2)],
        [(1, 0), (1, 1)],
    ]
    reflection = batch.rows[0].spans[2]
    tokens = batch.rows[0].token_ids[reflection.start : reflection.stop]
    assert plain_tokenizer.decode(tokens) == "Can it fly?"
    assert all(batch.rows[0].agent_token_mask[reflection.start : reflection.stop])
    assert placed(batch)[2] == 0.0


def test_a_reflection_earns_what_later_episodes_earn(plain_tokenizer):
    class Second(CountdownEnv):
        """The second episode earns 1 where the notes say "fly"."""

        def _format_memory(self, reflection):
            return reflection

        def _step_episode(self, session_id, state, action):
            good = action == "fly"
            return state, float(good), True, {"win": good}

    config = {"episodes_per_trial": 2, "carry": "summary", "free_shots": 1}
    env = Second(plain_tokenizer, config)
    lines = iter(["a", "note", "fly", "a", "note", "no"])
    batch = env.run_trial([TASK], ScriptedAgent(lambda messages: next(lines)), num_rollouts=2)
    values = [
        [float(a[s.start]) for s in row.spans]
        for row, a in zip(batch.rows, credit.advantages(batch, "trial"), strict=True)
    ]
    # Rollout 0 scores 1, rollout 1 scores 0: leave-one-out gives +1 and -1 on every step.
    assert values == [[1.0, 1.0], [1.0], [-1.0, -1.0], [-1.0]]
    own = credit.advantages(batch, "trial", trial_gamma=0.0)
    assert not own[0].any() and not own[2].any() and own[1].any()


def test_rollout_without_any_step_is_defined(plain_tokenizer):
    """The budget is used up by the prompt: no action, reward 0, advantages all zero."""
    from agentsgym import EnvPool
    from agentsgym.rollout import run

    register("Countdown", CountdownEnv)
    rows = [{"env_class_path": "Countdown", "env_config": {}, "task_data": TASK}]
    batch = run(rows, ScriptedAgent(["a"]), 2, envs=EnvPool(plain_tokenizer), max_rollout_tokens=3)
    assert [len(r.episodes[0].steps) for r in batch.rollouts] == [0, 0]
    assert batch["final_rewards"] == [0.0, 0.0]
    for name in ("grpo", "rloo", "step_return", "gigpo", "trial", "reward"):
        assert all(not np.any(a) for a in credit.advantages(batch, name))


@pytest.mark.parametrize("carry", ["none", "full"])
def test_a_malformed_penalty_holds_in_a_free_shot_and_is_no_part_of_the_score(
    plain_tokenizer, carry
):
    trial = {"episodes_per_trial": 3, "free_shots": 1, "carry": carry}
    env = CountdownEnv(plain_tokenizer, {**trial, "malformed_penalty": 0.25})
    batch = env.run_trial([{"rewards": [1.0]}], ScriptedAgent(["bad", "ok", "bad"]))
    [rollout] = batch.rollouts
    assert [episode.reward for episode in rollout.episodes] == [0.75, 1.0, 0.75]
    assert batch["final_rewards"] == [0.875]
    assert placed(batch) == [-0.25, 1.0, 0.75]
    table = credit.table_of([rollout])
    assert table.final_reward.tolist() == [0.75]
    assert table.counted.tolist() == [-0.125, 0.5, 0.375]
