"""MultistepEnv and RolloutBatch with numbers worked out by hand."""

from unittest.mock import patch

import pytest

from agentsgym import EnvPool, ScriptedAgent
from agentsgym.envs import UnknownEnvironment, make, register
from agentsgym.rollout import run
from agentsgym.types.reward_placement import per_token_rewards
from helpers import CountdownEnv, DigitEnv

TASK = {"rewards": [0.5, 1.0]}
PROMPT, FIRST, OBSERVATION, SECOND = "Is it an animal?", "Can it fly?", "The number is 1", "[apple]"


def ids(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False)


@pytest.fixture
def parts(plain_tokenizer):
    return [ids(plain_tokenizer, text) for text in (PROMPT, FIRST, OBSERVATION, SECOND)]


def play(tokenizer, config=None, task=TASK, **options):
    env = CountdownEnv(tokenizer, config or {})
    return env.run_trial([task], ScriptedAgent([FIRST, SECOND]), **options)


def test_two_steps_give_prompt_action_observation_action(plain_tokenizer, parts):
    prompt, first, observation, second = parts
    batch = play(plain_tokenizer)
    assert batch["full_token_ids"] == [prompt + first + observation + second]
    assert batch["agent_token_mask"] == [
        [0] * len(prompt) + [1] * len(first) + [0] * len(observation) + [1] * len(second)
    ]
    assert batch["full_attention_mask"] == [[1] * sum(map(len, parts))]
    assert batch["final_rewards"] == [1.5]
    assert batch["prompt_ids"] == [prompt]
    assert batch["completion_ids"] == [first + observation + second]
    assert batch["action_mask"] == [[1] * len(first) + [0] * len(observation) + [1] * len(second)]
    assert batch["step_rewards"] == [[0.5, 1.0]]
    assert batch["logprobs"] == [[0.0] * len(first + observation + second)]
    assert batch["final_completion_messages"] == [
        [
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": FIRST},
            {"role": "user", "content": OBSERVATION},
            {"role": "assistant", "content": SECOND},
        ]
    ]


def test_nested_view_holds_each_step(plain_tokenizer, parts):
    batch = play(plain_tokenizer, return_all_steps=True)
    assert batch["ids"] == [[parts[1], parts[3]]]
    assert batch["mask"] == [[[1] * len(parts[1]), [1] * len(parts[3])]]
    assert batch["rewards"] == [[0.5, 1.0]]
    assert [[m["content"] for m in step] for step in batch["messages"][0]] == [
        [PROMPT, FIRST],
        [PROMPT, FIRST, OBSERVATION, SECOND],
    ]
    assert "ids" not in play(plain_tokenizer)


@pytest.mark.parametrize(
    ("config", "first_tokens", "second_tokens"),
    [
        ({}, lambda n: [0.5 / n] * n, lambda n: [1.0 / n] * n),
        ({"reward_placement": "broadcast"}, lambda n: [0.5] * n, lambda n: [1.0] * n),
        (
            {"reward_placement": "last_token"},
            lambda n: [0.0] * (n - 1) + [0.5],
            lambda n: [0.0] * (n - 1) + [1.0],
        ),
        ({"final_reward": "repeat"}, lambda n: [1.5 / n] * n, lambda n: [1.5 / n] * n),
    ],
)
def test_reward_placement(plain_tokenizer, parts, config, first_tokens, second_tokens):
    prompt, first, observation, second = parts
    (rewards,) = play(plain_tokenizer, config)["per_token_rewards"]
    expected = (
        [0.0] * len(prompt)
        + first_tokens(len(first))
        + [0.0] * len(observation)
        + second_tokens(len(second))
    )
    assert rewards == pytest.approx(expected)


def test_final_reward_spread_lies_on_all_agent_tokens(plain_tokenizer, parts):
    (rewards,) = play(plain_tokenizer, {"final_reward": "spread"})["per_token_rewards"]
    agent_tokens = len(parts[1]) + len(parts[3])
    assert {round(r, 12) for r in rewards} == {0.0, round(1.5 / agent_tokens, 12)}
    assert sum(rewards) == pytest.approx(1.5)


def test_what_calculate_reward_adds_goes_to_the_last_step(plain_tokenizer):
    batch = play(plain_tokenizer, {"bonus": 2.0})
    assert batch["step_rewards"] == [[0.5, 3.0]]
    assert batch["final_rewards"] == [3.5]
    assert sum(batch["per_token_rewards"][0]) == pytest.approx(3.5)


def test_an_environments_own_token_rewards(plain_tokenizer, parts):
    class Own(CountdownEnv):
        def _step_episode(self, session_id, state, action):
            state, reward, done, info = super()._step_episode(session_id, state, action)
            count = len(self.codec.encode_action(action))
            return state, reward, done, info | {"token_rewards": [0.0] * (count - 1) + [reward]}

    batch = Own(plain_tokenizer, {"bonus": 1.0}).run_trial([TASK], ScriptedAgent([FIRST, SECOND]))
    rewards = [r for r in batch["per_token_rewards"][0] if r]
    assert rewards == [0.5, 2.0]


def test_chat_template_text_is_nobodys_action(chat_tokenizer):
    batch = play(chat_tokenizer)
    (row,) = batch.rows
    text = chat_tokenizer.decode(row.token_ids)
    assert text == (
        f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n{FIRST}<|im_end|>\n"
        f"<|im_start|>user\n{OBSERVATION}<|im_end|>\n<|im_start|>assistant\n{SECOND}"
    )
    spoken = [row.token_ids[s.start : s.stop] for s in row.spans]
    assert [chat_tokenizer.decode(part) for part in spoken] == [FIRST, SECOND]
    assert sum(row.agent_token_mask) == sum(len(part) for part in spoken)


def test_system_prompt_comes_first(plain_tokenizer):
    batch = play(plain_tokenizer, {"system_prompt": "No."})
    assert batch["final_completion_messages"][0][0] == {"role": "system", "content": "No."}
    assert batch["prompt_ids"][0] == ids(plain_tokenizer, "No.") + ids(plain_tokenizer, PROMPT)


def test_padding_reaches_the_longest_row_of_the_same_task(plain_tokenizer):
    lines = iter([FIRST, SECOND, SECOND, SECOND, "No", "No", "No", "No"])
    agent = ScriptedAgent(lambda messages: next(lines))
    env = CountdownEnv(plain_tokenizer)
    batch = env.run_trial([TASK, TASK], agent, num_rollouts=2)
    lengths = [len(row) for row in batch["full_token_ids"]]
    padded = [len(row) for row in batch["padded_full_token_ids"]]
    assert padded == [max(lengths[:2])] * 2 + [max(lengths[2:])] * 2
    assert padded[0] > padded[2]
    fill = padded[1] - lengths[1]
    assert fill > 0
    assert batch["padded_full_token_ids"][1][-fill:] == [plain_tokenizer.pad_token_id] * fill
    for key in ("full_attention_mask", "agent_token_mask", "per_token_rewards"):
        assert batch[f"padded_{key}"][1] == batch[key][1] + [0] * fill


def test_values_are_plain_lists(plain_tokenizer):
    def plain(value):
        if isinstance(value, list):
            return all(map(plain, value))
        if isinstance(value, dict):
            return all(type(v) is str for v in value.values())
        return type(value) in (int, float, str)

    batch = play(plain_tokenizer, return_all_steps=True)
    assert all(plain(batch[key]) for key in batch)
    assert len(batch) == len(list(batch)) == 20


def test_free_shots_are_played_and_not_scored(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer, {"episodes_per_trial": 3, "free_shots": 2})
    batch = env.run_trial([TASK], ScriptedAgent(["No"]))
    (rollout,) = batch.rollouts
    assert [e.reward for e in rollout.episodes] == [1.5, 1.5, 1.5]
    assert [e.score_weight for e in rollout.episodes] == [0.0, 0.0, 1.0]
    assert batch["final_rewards"] == [1.5]
    sums = [rewards.sum() for rewards in per_token_rewards(rollout)]
    assert sums == pytest.approx([0.0, 0.0, 1.5])
    assert [row.episodes for row in batch.rows] == [(0, 0), (1, 1), (2, 2)]
    assert batch["full_token_ids"] == [list(batch.rows[-1].token_ids)]


@pytest.mark.parametrize(
    ("config", "lines", "reason", "steps"),
    [
        ({"max_steps_per_episode": 1}, ["a"], "max_steps", 1),
        ({}, ["bad"], "malformed", 2),
        ({"error_allowance": 0}, ["bad"], "malformed", 1),
        ({"error_allowance": 2}, ["bad", "bad", "ok", "bad", "bad", "bad"], "malformed", 6),
    ],
)
def test_limits_end_an_episode_with_a_reason(config, lines, reason, steps):
    env = CountdownEnv(None, config)
    batch = env.run_trial([{"rewards": [0.0] * 9}], ScriptedAgent(lines))
    (episode,) = batch.rollouts[0].episodes
    assert (episode.stop_reason, len(episode.steps)) == (reason, steps)


@pytest.mark.parametrize("answer", ["text", ("text",), (1, None), None])
def test_a_bad_answer_of_the_agent_is_an_error_of_its_session(answer):
    class Bad:
        def get_action(self, messages, agent_state):
            return answer

    (rollout,) = CountdownEnv(None).run_trial([TASK], Bad()).rollouts
    assert "get_action must return" in rollout.error


def test_agent_state_lives_across_episodes():
    seen = []

    class Counter:
        def get_action(self, messages, agent_state):
            seen.append(agent_state)
            return "a", (agent_state or 0) + 1

    env = CountdownEnv(None, {"episodes_per_trial": 2})
    env.run_trial([TASK], Counter(), num_rollouts=2)
    assert seen == [None, 1, 2, 3] * 2


def test_run_complete_episode_is_called_once_per_task_rollout_and_episode(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer, {"episodes_per_trial": 2})
    record = {
        "full_token_ids": [5, 6, 7, 8, 9],
        "full_attention_mask": [1] * 5,
        "agent_token_mask": [0, 1, 1, 0, 1],
        "per_token_rewards": [0.0, 0.5, 0.5, 0.0, 1.0],
        "final_reward": 2.0,
    }
    with patch.object(env, "_run_complete_episode", return_value=record) as mocked:
        batch = env.run_trial([TASK, TASK], ScriptedAgent(["a"]), num_rollouts=3)
    assert mocked.call_count == 2 * 3 * 2
    assert batch["padded_full_token_ids"] == [[5, 6, 7, 8, 9]] * 6
    assert batch["final_rewards"] == [2.0] * 6
    assert [(s.start, s.stop) for s in batch.rows[0].spans] == [(1, 3), (4, 5)]


def test_rows_of_different_environments_meet_their_own(plain_tokenizer):
    register("Countdown", CountdownEnv)
    register("Digit", DigitEnv)
    rows = [
        *DigitEnv(None).get_train_dataset().select(range(2)),
        *CountdownEnv(None, {"bonus": 1.0}).get_train_dataset().select(range(2)),
        *CountdownEnv(None).get_train_dataset().select(range(2)),
    ]
    pool = EnvPool(plain_tokenizer)
    batch = run(rows, ScriptedAgent(["5"]), 2, envs=pool)
    assert [r.env_class_path for r in batch.rollouts] == ["Digit"] * 4 + ["Countdown"] * 8
    assert batch["final_rewards"] == [1.0] * 4 + [1.0, 1.0, 2.0, 2.0] + [0.0, 0.0, 1.0, 1.0]
    assert pool.get(rows[2]) is pool.get(rows[3]) is not pool.get(rows[4])


def test_a_dataset_cannot_import_code():
    with pytest.raises(UnknownEnvironment, match="trust"):
        make("this.NoSuchThing")
    with pytest.raises(UnknownEnvironment, match="cannot load"):
        make("no_such_module.Env", trust=True)
    with pytest.raises(UnknownEnvironment, match="trust"):
        make("json.JSONDecoder", trust=["os"])
    with pytest.raises(UnknownEnvironment, match="not a subclass"):
        make("json.JSONDecoder", trust=["json"])
    with pytest.raises(UnknownEnvironment, match="TwentyQuestions"):
        make("TwentyQuestion")


def test_names_and_aliases():
    register("Countdown", CountdownEnv)
    assert type(make("Countdown")) is CountdownEnv
    assert type(make("helpers.CountdownEnv")) is CountdownEnv
    for name in (
        "TwentyQuestions",
        "agentsgym.envs.TwentyQuestions",
        "agentsgym.envs.TwentyQuestions.TwentyQuestionsEnv",
        "agentsgym.envs.twenty_questions.TwentyQuestionsEnv",
        "agentsgym.envs.twenty_questions.env.TwentyQuestionsEnv",
        "agentsgym.TwentyQuestionsEnv",
    ):
        assert type(make(name)).__name__ == "TwentyQuestionsEnv"
    with pytest.raises(TypeError, match="MultistepEnv"):
        register("Int", int)
    with pytest.raises(ValueError, match="not a valid environment name"):
        register("a b", CountdownEnv)


def test_mixed_rows_survive_arrow():
    from datasets import concatenate_datasets

    register("Countdown", CountdownEnv)
    register("Digit", DigitEnv)
    mixed = concatenate_datasets(
        [CountdownEnv(None, {"bonus": 1.0}).get_train_dataset(), DigitEnv(None).get_train_dataset()]
    )
    assert mixed[0]["env_config"] == {"bonus": 1.0} and mixed[8]["env_config"] == {}
    assert mixed[8]["task_data"] == {"seed": 0}
