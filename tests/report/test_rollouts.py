"""Rollouts on disk come back as they were played."""

import gzip
import json
import math
from dataclasses import replace

import numpy as np
import pytest

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.credit import advantages
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs.files import RolloutWriter, drop_rollouts_from, read_lines, read_rollouts
from agentsgym.runs.files.encoding import plain
from agentsgym.types import RolloutBatch
from helpers import DROPS_THOUGHT, CountdownEnv, DigitEnv, build_tokenizer


@pytest.fixture
def sampled(tiny_llama, chat_tokenizer):
    """Six rollouts of a model in two groups, two episodes each."""
    env = DigitEnv(chat_tokenizer, {"episodes_per_trial": 2, "free_shots": 1})
    engine = EmbeddedEngine(tiny_llama, chat_tokenizer, capacity=8)
    agent = DirectOutputAgent(engine, SamplingParams(max_tokens=5))
    return env.run_trial([{"seed": 1}, {"seed": 2}], agent, num_rollouts=3).rollouts


def write(run_dir, rollouts, phase="train", step=0, **info):
    writer = RolloutWriter(run_dir)
    writer(rollouts, {"phase": phase, "step": step, "advantages": None} | info)
    return writer


def test_sampled_rollouts_come_back_equal(tmp_path, sampled):
    writer = write(tmp_path, sampled)
    back = tuple(read_rollouts(tmp_path))
    assert back == sampled
    assert any(row.logprobs.any() for r in back for row in r.rows)
    assert writer.agent_tokens == sum(r.agent_tokens for r in sampled) > 0


def test_text_agents_and_failures_come_back_equal(tmp_path, chat_tokenizer):
    env = CountdownEnv(chat_tokenizer)
    tasks = [{"rewards": [0.5, 1.0]}, {"broken": True}, {"rewards": [0.0, 0.0]}]
    rollouts = env.run_trial(tasks, ScriptedAgent(["yes", "fail"]), 2).rollouts
    rollouts += env.run_trial(tasks[:1], ScriptedAgent(["one", "two"])).rollouts
    write(tmp_path, rollouts)
    back = tuple(read_rollouts(tmp_path))
    assert back == rollouts
    assert "the environment broke" in back[0].error and math.isnan(back[0].final_reward)
    assert back[-1].final_reward == 1.5 and not back[-1].rows[0].sampled


def test_what_a_template_rewrote_comes_back(tmp_path):
    env = CountdownEnv(build_tokenizer(DROPS_THOUGHT))
    played = env.run_trial(
        [{"rewards": [0.0, 1.0]}], ScriptedAgent(["<think>a long one</think>b", "c"])
    )
    write(tmp_path, played.rollouts)
    back = tuple(read_rollouts(tmp_path))
    assert back == played.rollouts
    assert [row.rewrites for row in back[0].rows] == ["", "thoughts"]


def test_credit_works_on_what_was_read(tmp_path, sampled):
    write(tmp_path, sampled)
    expected = advantages(RolloutBatch(sampled))
    for mine, theirs in zip(
        advantages(RolloutBatch(read_rollouts(tmp_path))), expected, strict=True
    ):
        assert np.array_equal(mine, theirs)


def test_advantages_stand_with_their_rollout(tmp_path, sampled):
    given = advantages(RolloutBatch(sampled))
    write(tmp_path, sampled, advantages=given)
    lines = list(read_lines(tmp_path))
    read = [row for line in lines for row in line.advantages]
    assert [list(row) for row in read] == [row.tolist() for row in given]
    for line in lines:
        assert [len(a) for a in line.advantages] == [len(r.token_ids) for r in line.rollout.rows]


def test_lines_are_strict_json_with_the_documented_keys(tmp_path, chat_tokenizer):
    env = CountdownEnv(chat_tokenizer)
    write(tmp_path, env.run_trial([{"broken": True}], ScriptedAgent(["a"])).rollouts, step=7)
    with gzip.open(tmp_path / "rollouts" / "train-000007.jsonl.gz", "rt") as file:
        text = file.read()
    assert "NaN" not in text
    line = json.loads(text)
    assert line["final_reward"] is None and line["step"] == 7 and line["phase"] == "train"
    assert set(line) == {
        "schema", "phase", "step", "dataset", "session_id", "group", "index", "seed",
        "policy_version", "env_class_path", "env_config", "task_data", "final_reward", "error",
        "episodes", "rows", "advantages", "reward_placement", "final_reward_placement",
    }  # fmt: skip


def test_phases_are_read_in_order_and_one_by_one(tmp_path, sampled):
    one = sampled[:1]
    for phase, step in (("after", 2), ("train", 1), ("eval", 1), ("before", 0), ("train", 0)):
        write(tmp_path, one, phase, step)
    found = [(line.phase, line.step) for line in read_lines(tmp_path)]
    assert found == [("before", 0), ("train", 0), ("train", 1), ("eval", 1), ("after", 2)]
    assert [line.step for line in read_lines(tmp_path, "train")] == [0, 1]


def test_a_resume_drops_what_it_plays_again(tmp_path, sampled):
    one = sampled[:1]
    for phase, step in (("before", 0), ("after", 3)):
        write(tmp_path, one, phase, step)
    for step in range(4):
        write(tmp_path, one, "train", step)
        write(tmp_path, one, "eval", step)
    drop_rollouts_from(tmp_path, 2)
    # Steps 0 and 1 were played before the checkpoint of step 2, and so was its evaluation.
    assert [line.step for line in read_lines(tmp_path, "train")] == [0, 1]
    assert [line.step for line in read_lines(tmp_path, "eval")] == [0, 1, 2]
    assert not list(read_lines(tmp_path, "after")) and list(read_lines(tmp_path, "before"))


def test_free_form_info_becomes_what_json_can_say(tmp_path, sampled):
    odd = {"n": np.float32(0.5), "a": np.arange(2), "t": (1, {2}), 3: math.inf, "o": object}
    assert plain(odd) == {
        "n": 0.5, "a": [0, 1], "t": [1, [2]], "3": None, "o": "<class 'object'>"
    }  # fmt: skip
    rollout = sampled[0]
    step = replace(rollout.episodes[0].steps[0], info=odd)
    episode = replace(rollout.episodes[0], steps=(step,))
    write(tmp_path, [replace(rollout, episodes=(episode,))])
    assert next(read_rollouts(tmp_path)).episodes[0].steps[0].info == plain(odd)


def test_evaluation_sets_of_one_step_have_shards_of_their_own(tmp_path, sampled):
    write(tmp_path, sampled[:1], "eval", 3, dataset="easy")
    write(tmp_path, sampled[1:3], "eval", 3, dataset="very/hard.")
    write(tmp_path, sampled[3:], "eval", 3)
    found = [(line.dataset, line.step) for line in read_lines(tmp_path, "eval")]
    assert sorted(found, key=str) == [("easy", 3), *[("very/hard.", 3)] * 2, *[(None, 3)] * 3]
    drop_rollouts_from(tmp_path, 2)
    assert not list(read_lines(tmp_path))


def test_each_process_has_shards_of_its_own(tmp_path, sampled):
    """Two processes write the same generation; a later resume plays both parts again."""
    write(tmp_path, sampled[2:], "train", 3, rank=1)
    write(tmp_path, sampled[:2], "train", 3, rank=0)
    write(tmp_path, sampled[:1], "eval", 3, rank=1, dataset="easy")
    write(tmp_path, sampled[1:2], "eval", 3, rank=10, dataset="r1.easy")
    assert tuple(read_rollouts(tmp_path, "train")) == sampled
    assert [line.dataset for line in read_lines(tmp_path, "eval")] == ["easy", "r1.easy"]
    drop_rollouts_from(tmp_path, 2)
    assert not list(read_lines(tmp_path))
