"""Rollouts on disk come back as they were played."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import duckdb
import pandas
import pytest
from datasets import load_dataset

from agentsgym import DirectOutputAgent, SamplingParams, ScriptedAgent
from agentsgym.credit import advantages
from agentsgym.generation.embedded.engine import EmbeddedEngine
from agentsgym.runs.files import (
    RolloutWriter,
    RunDirectory,
    drop_rollouts_from,
    read_rollouts,
    read_stored,
    rollouts,
)
from agentsgym.runs.files.rollouts import KeepRollouts
from agentsgym.types import RolloutBatch
from agentsgym.types import text as texts
from agentsgym.types.text import MASK
from agentsgym.types.tool_actions import calling
from agentsgym.warm_start.games import rerendered
from chat_tokenizers import template, tokenizer_for
from helpers import DROPS_THOUGHT, CountdownEnv, DigitEnv, build_tokenizer
from of_rows import retold
from rollout.doubles import SumEnv


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


def test_columns_do_not_depend_on_how_numpy_spells_an_array():
    """numpy 2.5 has a TypeAliasType in the place of an alias of `ndarray`."""
    changed = (
        "import numpy as np, numpy.typing; from typing_extensions import *; T = TypeVar('T'); "
        "array = TypeAliasType('NDArray', np.ndarray[Any, np.dtype[T]], type_params=(T,)); "
        "numpy.typing.NDArray = array; "
    )
    shown = "from agentsgym.runs.files.columns import SCHEMA; print(SCHEMA)"
    codes = ("", changed)
    schemas = [
        subprocess.run(
            [sys.executable, "-c", code + shown], check=True, capture_output=True, text=True
        ).stdout
        for code in codes
    ]
    assert schemas[0] == schemas[1]
    assert "token_ids: list<element: int32 not null>" in schemas[0]


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


def test_calls_of_tools_and_their_results_come_back_equal_and_are_rendered_anew(tmp_path):
    tokenizer = tokenizer_for(template("qwen2_5"), "<|im_end|>")
    env = SumEnv(tokenizer)
    calls = "\n".join([calling("price", item="tea"), calling("price", item="ä")])
    texts.remember_secret("no-such-secret")
    rollouts = env.run_trial([{}], ScriptedAgent([calls, "4"])).rollouts
    write(tmp_path, rollouts)
    (back,) = read_rollouts(tmp_path)
    assert (back,) == rollouts
    assert "tool_calls" in back.episodes[0].messages[1]
    assert rerendered(back, env.codec) == back


def test_what_a_template_rewrote_comes_back(tmp_path):
    env = CountdownEnv(build_tokenizer(DROPS_THOUGHT))
    played = env.run_trial(
        [{"rewards": [0.0, 1.0]}], ScriptedAgent(["<think>a long one</think>b", "c"])
    )
    write(tmp_path, played.rollouts)
    back = tuple(read_rollouts(tmp_path))
    assert back == played.rollouts
    assert [row.rewrites for row in back[0].rows] == ["", "thoughts"]


def test_advantages_stand_with_their_rollout(tmp_path, sampled):
    given = advantages(RolloutBatch(sampled))
    write(tmp_path, sampled, advantages=given)
    lines = list(read_stored(tmp_path))
    read = [row for line in lines for row in line.advantages]
    assert [list(row) for row in read] == [row.tolist() for row in given]
    for line in lines:
        assert [len(a) for a in line.advantages] == [len(r.token_ids) for r in line.rollout.rows]


def test_every_library_reads_the_file(tmp_path, sampled):
    """Also the documented columns, and no others."""
    write(tmp_path, sampled, step=7, advantages=advantages(RolloutBatch(sampled)))
    path = str(RunDirectory(tmp_path).rollout_file("train", 7))
    cache = str(tmp_path / "cache")
    rows = load_dataset("parquet", data_files=path, split="train", cache_dir=cache).to_list()
    assert [row["session_id"] for row in rows] == [one.session_id for one in sampled]
    for row, rollout in zip(rows, sampled, strict=True):
        assert json.loads(row["task_data"]) == rollout.task_data
        assert row["token_ids"] == rollout.token_ids.tolist()
        steps = [step for episode in row["episodes"] for step in episode["steps"]]
        assert [step["answer"]["content"] for step in steps] == [s.action for s in rollout.steps]
        assert [[step[name] for name in ("start", "acts", "stop")] for step in steps] == (
            rollout.at.tolist()
        )
    frame = pandas.read_parquet(path)
    assert frame["final_reward"].tolist() == [rollout.final_reward for rollout in sampled]
    assert set(frame.columns) == set(rows[0])


def test_the_queries_of_the_page_find_rewards_tokens_and_conversations(tmp_path, sampled):
    write(tmp_path, sampled)
    page = (Path(__file__).parents[2] / "docs" / "run-directory.md").read_text()
    queries = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    rewards, tokens, said = (
        duckdb.sql(query.replace("runs/quickstart", str(tmp_path))).fetchall() for query in queries
    )
    steps = [(one, step) for one in sampled for step in one.steps]
    assert sorted(rewards) == sorted(
        (one.session_id, episode.index, step.index, step.reward)
        for one in sampled
        for episode in one.episodes
        for step in episode.steps
    )
    places = [place for one in sampled for place in one.at.tolist()]
    expected = [
        (one.session_id, step.index, one.token_ids[a:c].tolist(), [0] * (b - a) + [1] * (c - b))
        for (one, step), (a, b, c) in zip(steps, places, strict=True)
    ]
    assert sorted(tokens) == sorted(expected)
    talks = [[f"{m.role}: {m.content}" for m in step.turn] for _, step in steps]
    assert sorted(row[2] for row in said) == sorted(talks)


def test_a_file_of_several_row_groups_is_read_whole(tmp_path, sampled, monkeypatch):
    monkeypatch.setattr(rollouts, "_ROW_GROUP", 1)
    write(tmp_path, sampled)
    assert tuple(read_rollouts(tmp_path)) == sampled


def test_a_writer_deletes_old_generations_only(tmp_path, sampled):
    for phase in ("before", "eval", "warmstart"):
        write(tmp_path, sampled[:1], phase)
    writer = RolloutWriter(tmp_path, KeepRollouts(last=1))
    for step, rank in ((0, 0), (0, 1), (1, 0)):
        info = {"phase": "train", "step": step, "rank": rank, "advantages": None}
        writer(sampled[:1], info)
    assert [path.name for _, _, path in RunDirectory(tmp_path).rollout_files()] == [
        "before-000000.parquet", "warmstart-000000.parquet", "eval-000000.parquet",
        "train-000001.parquet",
    ]  # fmt: skip


def test_phases_are_read_in_order_and_one_by_one(tmp_path, sampled):
    one = sampled[:1]
    for phase, step in (("after", 2), ("train", 1), ("eval", 1), ("before", 0), ("train", 0)):
        write(tmp_path, one, phase, step)
    phases = [(line.phase, line.step) for line in read_stored(tmp_path)]
    assert phases == [("before", 0), ("train", 0), ("train", 1), ("eval", 1), ("after", 2)]
    assert [line.step for line in read_stored(tmp_path, "train")] == [0, 1]


def test_a_resume_drops_what_it_plays_again(tmp_path, sampled):
    one = sampled[:1]
    for phase, step in (("before", 0), ("after", 3)):
        write(tmp_path, one, phase, step)
    for step in range(4):
        write(tmp_path, one, "train", step)
        write(tmp_path, one, "eval", step)
    drop_rollouts_from(tmp_path, 2)
    # Steps 0 and 1 were played before the checkpoint of step 2, and so was its evaluation.
    assert [line.step for line in read_stored(tmp_path, "train")] == [0, 1]
    assert [line.step for line in read_stored(tmp_path, "eval")] == [0, 1, 2]
    assert not list(read_stored(tmp_path, "after")) and list(read_stored(tmp_path, "before"))


def test_each_process_has_shards_of_its_own(tmp_path, sampled):
    """Two processes write the same generation; a later resume plays both parts again."""
    write(tmp_path, sampled[2:], "train", 3, rank=1)
    write(tmp_path, sampled[:2], "train", 3, rank=0)
    write(tmp_path, sampled[:1], "eval", 3, rank=1, dataset="easy")
    write(tmp_path, sampled[1:2], "eval", 3, rank=10, dataset="r1.easy")
    assert tuple(read_rollouts(tmp_path, "train")) == sampled
    assert [line.dataset for line in read_stored(tmp_path, "eval")] == ["easy", "r1.easy"]
    drop_rollouts_from(tmp_path, 2)
    assert not list(read_stored(tmp_path))


@pytest.mark.parametrize("secret", ['quo"ted\\se\ncret-ö', "nhunter2", "333333", "token_ids"])
def test_secrets_are_masked_in_what_is_stored(tmp_path, sampled, monkeypatch, secret):
    """Also those that JSON writes in another way, and those of which an escape, a number or a key
    may be a part."""
    monkeypatch.setattr(texts, "_KNOWN", {secret})
    task = {"rewards": [], "key": f"a {secret} b", secret: 1, "line": "\nhunter2", "beside": {7}}
    episode = sampled[0].episodes[0]
    steps = (retold(replace(episode.steps[0], reward=1 / 3), action=secret), *episode.steps[1:])
    episodes = (replace(episode, steps=steps), *sampled[0].episodes[1:])
    write(tmp_path, [replace(sampled[0], task_data=task, episodes=episodes)])
    (stored,) = read_rollouts(tmp_path)
    assert stored.task_data["key"] == f"a {MASK} b" and MASK in stored.task_data
    assert stored.task_data["line"] == "\nhunter2"
    step = stored.episodes[0].steps[0]
    assert (step.reward, step.action) == (1 / 3, MASK) and stored.rows == sampled[0].rows
