"""Twenty Questions: T1 to T5 of the specification, and the rules of the game."""

import json
import math

import pytest
from datasets import Dataset

from agentsgym import ScriptedAgent, TwentyQuestionsEnv, make
from agentsgym.envs import ConfigError
from agentsgym.envs.twenty_questions import CallableAnswerer
from helpers import questions_answered_by

QUESTIONS = ["Is it an animal?", "Can you eat it?", "[apple]"]
QUICKSTART = {
    "table": "quickstart",
    "split": "hints",
    "hints": 2,
    "answer_style": "echo",
    "max_steps_per_episode": 8,
}


def play(lines, solution="apple", tokenizer=None, config=None, **options):
    env = TwentyQuestionsEnv(tokenizer, config or {})
    return env.run_trial([{"solution": solution}], ScriptedAgent(lines), **options)


def episode(batch):
    return batch.rollouts[0].episodes[0]


@pytest.mark.parametrize("config", [{}, {"hardcore": True}, QUICKSTART])
def test_t1_datasets_follow_the_row_schema(config):
    env = TwentyQuestionsEnv(None, config)
    for dataset in (env.get_train_dataset(), env.get_eval_dataset()):
        assert isinstance(dataset, Dataset)
        for row in dataset:
            assert set(row) == {"env_class_path", "env_config", "task_data"}
            assert row["env_class_path"] == "TwentyQuestions" and row["env_config"] == config
            assert set(row["task_data"]) == {"solution", "seed"}
            assert row["task_data"]["solution"] in env.table.secrets
    assert type(make(row["env_class_path"], None, row["env_config"])) is TwentyQuestionsEnv


def test_t2_constructor(plain_tokenizer):
    config = {"hardcore": True, "max_steps_per_episode": 7}
    env = TwentyQuestionsEnv(plain_tokenizer, config)
    assert env.tokenizer is plain_tokenizer and env.env_config == config
    assert env.hardcore and env.table.name == "hardcore"
    assert not TwentyQuestionsEnv(None, {}).hardcore
    with pytest.raises(ConfigError, match="solution"):
        TwentyQuestionsEnv(None, {"solution": "apple"})


def test_t3_run_complete_episode(chat_tokenizer):
    env = TwentyQuestionsEnv(chat_tokenizer, {})
    env.active_states["s"] = env._initialize_episode("s", {"solution": "apple"})
    record = env._run_complete_episode("s", ScriptedAgent(QUESTIONS))
    lists = ("full_token_ids", "full_attention_mask", "agent_token_mask", "per_token_rewards")
    assert len({len(record[key]) for key in lists}) == 1
    assert record["final_reward"] == 1.0
    spoken = [i for i, on in zip(record["full_token_ids"], record["agent_token_mask"]) if on]
    assert chat_tokenizer.decode(spoken) == "".join(QUESTIONS)
    paid = [i for i, r in enumerate(record["per_token_rewards"]) if r]
    assert all(record["agent_token_mask"][i] for i in paid)
    guess = chat_tokenizer.encode("[apple]", add_special_tokens=False)
    assert len(paid) == len(guess) and sum(record["per_token_rewards"]) == pytest.approx(1.0)
    assert all(record["full_attention_mask"])


def test_t4_and_t5_run_trial(chat_tokenizer):
    env = TwentyQuestionsEnv(chat_tokenizer, {})
    data = [{"solution": "clock"}, {"solution": "chair"}, {"solution": "banana"}]
    batch = env.run_trial(
        task_data_list=data, agent=ScriptedAgent(["Is it alive?", "[chair]"]), num_rollouts=2
    )
    assert len(batch["padded_full_token_ids"]) == 6
    for start in (0, 2, 4):
        assert len({len(row) for row in batch["padded_full_token_ids"][start : start + 2]}) == 1
    assert batch["final_rewards"] == [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    json.dumps({key: batch[key] for key in batch})


def test_answers_begin_with_yes_no_or_i_dont_know():
    batch = play(["Is it a fruit?", "Is it alive and kicking a ball of doom?", "Can it fly?"])
    observed = [m["content"] for m in episode(batch).messages if m["role"] == "user"][1:4]
    assert observed[0].startswith("Yes") and observed[2].startswith("No")
    assert observed[1].startswith("I don't know")
    unparsed = [s.info["metrics"]["unparsed"] for s in episode(batch).steps[:3]]
    assert unparsed == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("guess", "solution", "wins"),
    [
        ("[apple]", "apple", True),
        ("I think it is [ The APPLE ]!", "apple", True),
        ("<think>[pear]?</think>[apple]", "apple", True),
        ("[pineapple]", "apple", False),
        ("[apple banana chair clock]", "apple", False),
        ("[yo yo]", "yo-yo", True),
        ("[tv presenter]", "TV presenter", True),
    ],
)
def test_only_a_normalized_exact_match_wins(guess, solution, wins):
    last = episode(play([guess], solution))
    assert (last.reward, last.win, len(last.steps)) == (float(wins), wins, 1)
    assert last.stop_reason == ("win" if wins else "wrong_guess")


@pytest.mark.parametrize("action", ["", "  \n", "[]", "[apple] [banana]", "x" * 5000])
def test_malformed_actions_use_up_the_allowance(action):
    last = episode(play([action]))
    assert (last.stop_reason, len(last.steps), last.reward) == ("malformed", 2, 0.0)
    forgiven = episode(play([action, "Is it alive?", action, "[apple]"]))
    assert forgiven.win and len(forgiven.steps) == 4


def test_a_secret_outside_the_table_is_playable():
    batch = play(["Is it an animal?", "Is it electric?", "[flux capacitor]"], "flux capacitor")
    observed = [m["content"] for m in episode(batch).messages if m["role"] == "user"][1:]
    assert all(text.startswith("I don't know") for text in observed)
    assert batch["final_rewards"] == [1.0]


def test_hints_come_from_the_seed():
    env = TwentyQuestionsEnv(None, QUICKSTART | {"explain_actions": False})
    state = env._initialize_episode("s", {"solution": "dog", "seed": 5})
    assert state["hints"] == env.hints("dog", 5) != env.hints("dog", 6)
    first = env._format_prompt(state, 0).splitlines()
    assert len(first) == 2 and all(line.startswith(("Yes, ", "No, not ")) for line in first)


def test_short_rules_come_before_the_hints():
    env = TwentyQuestionsEnv(None, QUICKSTART)
    state = env._initialize_episode("s", {"solution": "dog", "seed": 5})
    assert env._format_prompt(state, 0) == (
        "I am thinking of something. Ask yes/no questions. When you know it, guess it, like "
        "[word].\nYes, found on a farm.\nNo, not white.\n"
        "Answer with one question only. For example:\nIs it alive?"
    )


def test_echo_repeats_the_attribute():
    batch = play(["Is it an animal?"], "dog", config=QUICKSTART | {"hints": 0})
    assert episode(batch).messages[2]["content"] == "Yes, an animal."


def test_any_callable_can_answer():
    calls = []

    def answer(secret, question, history):
        calls.append((secret, question, len(history)))
        return "yes, but the word is apple"

    env = questions_answered_by(CallableAnswerer(answer))
    batch = env.run_trial([{"solution": "apple"}], ScriptedAgent(["Is it red?", "Is it big?"]))
    assert calls[0][:2] == ("apple", "Is it red?")
    answers = [m["content"] for m in episode(batch).messages if m["role"] == "user"][1:]
    assert not any("apple" in text for text in answers)


def test_information_reward_pays_bits():
    config = QUICKSTART | {"hints": 0, "information_reward": 0.5}
    env = TwentyQuestionsEnv(None, config)
    animals = int((env.table.values[:, env.table.attribute_index["animal"]] == 1).sum())
    batch = env.run_trial(
        [{"solution": "dog"}], ScriptedAgent(["Is it an animal?", "Is it an animal?", "[dog]"])
    )
    assert batch["step_rewards"][0] == pytest.approx([0.5 * math.log2(64 / animals), 0.0, 1.0])
    assert TwentyQuestionsEnv(None, {}).config.information_reward == 0.0


def test_hints_split_holds_out_pairs_and_every_secret_occurs_in_both():
    config = QUICKSTART | {"train_tasks_per_secret": 20, "eval_tasks_per_secret": 4}
    env = TwentyQuestionsEnv(None, config)
    pairs = []
    for dataset in (env.get_train_dataset(), env.get_eval_dataset()):
        data = [row["task_data"] for row in dataset]
        assert {task["solution"] for task in data} == set(env.table.secrets)
        pairs.append({(t["solution"], tuple(env.hints(t["solution"], t["seed"]))) for t in data})
        assert len(pairs[-1]) == len(data)
    assert not pairs[0] & pairs[1]
    assert (len(pairs[0]), len(pairs[1])) == (64 * 20, 64 * 4)
