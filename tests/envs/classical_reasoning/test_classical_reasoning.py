"""The environment: episodes, rewards, datasets."""

import json

import pytest

from agentsgym import ScriptedAgent
from agentsgym.envs import ConfigError, make

ROWS = [{"question": f"What is {k} + {k}?", "answer": 2 * k} for k in range(40)]
TWO = {"questions": [{"question": "1 + 1?", "answer": 2}, {"question": "Day?", "answer": "Monday"}]}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    return str(path)


def play(config, actions, task=TWO):
    env = make("ClassicalReasoning", None, config)
    batch = env.run_trial([{**task, "seed": 0}], ScriptedAgent(actions))
    assert batch.rollouts[0].error is None, batch.rollouts[0].error
    return batch["final_rewards"][0], batch.rollouts[0].episodes[0]


def test_every_shipped_answer_is_right_in_its_own_words():
    env = make("ClassicalReasoning")
    for row in [*env.get_train_dataset(), *env.get_eval_dataset()]:
        answer = row["task_data"]["questions"][0]["answer"][0]
        batch = env.run_trial([row["task_data"]], ScriptedAgent([f"So \\boxed{{{answer}}}."]))
        assert batch["final_rewards"] == [1.0]


def test_several_questions_share_the_reward():
    reward, episode = play({"questions_per_episode": 2}, ["2", "monday"])
    assert reward == 1.0 and episode.win and [s.reward for s in episode.steps] == [0.5, 0.5]
    reward, episode = play({"questions_per_episode": 2}, ["3", "monday"])
    assert reward == 0.5 and not episode.win and episode.stop_reason == "answered"
    texts = [m["content"] for m in episode.messages if m["role"] == "user"]
    assert texts[0].startswith("Question 1 of 2:\n1 + 1?")
    assert texts[1] == "That is wrong.\n\nQuestion 2 of 2:\nDay?"


def test_retries_with_feedback_pay_less():
    config = {"questions_per_episode": 2, "attempts": 3, "retry_discount": 0.5}
    reward, episode = play(config, ["3", "4", "2", "sunday", "monday"])
    assert reward == pytest.approx(0.5 * 0.25 + 0.5 * 0.5) and episode.win
    texts = [m["content"] for m in episode.messages if m["role"] == "user"]
    assert texts[1] == "That is wrong. You have 2 more attempts."
    assert texts[2] == "That is wrong. You have 1 more attempt."
    assert texts[3].startswith("That is right.\n\nQuestion 2 of 2")


def test_no_answer_is_malformed():
    _, episode = play({"error_allowance": 2}, [""])
    assert episode.stop_reason == "malformed" and len(episode.steps) == 3
    assert "I found no answer" in episode.messages[2]["content"]


def test_a_file_is_split_by_its_questions(file):
    env = make("ClassicalReasoning", None, {"questions_file": file, "eval_share": 0.25})
    train, held_out = (
        {q["question"] for task in dataset["task_data"] for q in task["questions"]}
        for dataset in (env.get_train_dataset(), env.get_eval_dataset())
    )
    assert not train & held_out and len(train | held_out) == 40
    assert 3 <= len(held_out) <= 18
    bigger = make("ClassicalReasoning", None, {"questions_file": file, "questions_per_episode": 3})
    assert len(bigger.get_train_dataset()[0]["task_data"]["questions"]) == 3


def test_an_evaluation_file_is_taken_out_of_the_training_questions(file, tmp_path):
    held_out = tmp_path / "eval.jsonl"
    held_out.write_text("\n".join(map(json.dumps, ROWS[:5])))
    config = {"questions_file": file, "eval_file": str(held_out)}
    env = make("ClassicalReasoning", None, config)
    assert len(env.get_train_dataset()) == 35 and len(env.get_eval_dataset()) == 5


def test_bad_settings_are_refused():
    for config in ({"eval_share": 1.5}, {"retry_discount": 2}, {"grading": "taste"}):
        with pytest.raises(ConfigError, match=next(iter(config))):
            make("ClassicalReasoning", None, config)
    with pytest.raises(ValueError, match="'questions'"):
        make("ClassicalReasoning")._initialize_episode("s", {"seed": 1})


def test_reasoning_gym_tasks():
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    config = {"source": "reasoning_gym", "gym_tasks": ["chain_sum"], "gym_questions": 12}
    env = make("ClassicalReasoning", None, config)
    rows = [*env.get_train_dataset(), *env.get_eval_dataset()]
    assert len(rows) == 12
    task = rows[0]["task_data"]
    answer = task["questions"][0]["answer"][0]
    for text, reward in ((answer, 1.0), ("nothing", 0.0), ("1 2 3 4", 0.0)):
        batch = env.run_trial([task], ScriptedAgent([text]))
        assert batch["final_rewards"] == [reward], batch.rollouts[0].error
    with pytest.raises(ConfigError, match="does not know"):
        make("ClassicalReasoning", None, {**config, "gym_tasks": ["x"]}).get_train_dataset()
