"""Files that were cut off, damaged, or never written whole; values that JSON cannot say."""

import math
import os
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentsgym import ScriptedAgent
from agentsgym.runs.files import (
    MetricsFile,
    OtherFormat,
    RolloutWriter,
    read_file,
    read_metrics,
    read_rollouts,
)
from agentsgym.runs.files.directory import DamagedFile, replacing, write_text
from agentsgym.runs.files.records import read_summary
from agentsgym.types.text import plain
from helpers import CountdownEnv
from of_rows import with_logprobs


@pytest.fixture
def rollout(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer)
    return env.run_trial([{"rewards": [0.5, 1.0]}], ScriptedAgent(["one", "two"])).rollouts[0]


def write(directory, *rollouts):
    RolloutWriter(directory)(rollouts, {"phase": "train", "step": 0, "advantages": None})
    return directory / "rollouts" / "train-000000.parquet"


def with_info(rollout, info):
    episode = rollout.episodes[0]
    steps = (replace(episode.steps[0], info=info), *episode.steps[1:])
    return replace(rollout, episodes=(replace(episode, steps=steps),))


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "first")
    with pytest.raises(OSError, match="no room"), replacing(path) as part:
        part.write_text("sec")
        raise OSError("no room")
    assert path.read_text() == "first" and os.listdir(tmp_path) == ["a.txt"]
    write_text(path, "second")
    assert path.read_text() == "second" and os.listdir(tmp_path) == ["a.txt"]


def test_a_directory_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "model"
    for text in ("first", "second"):
        with replacing(path) as part:
            part.mkdir()
            (part / f"{text}.txt").write_text(text)
    with pytest.raises(OSError, match="no room"), replacing(path) as part:
        part.mkdir()
        raise OSError("no room")
    assert os.listdir(tmp_path) == ["model"] and os.listdir(path) == ["second.txt"]


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "phase": "train"}\n[1]\n{"phase": 3}\n{"step": 2, "ph\xff')
    MetricsFile(path).append("train", 2, {"loss": 0.5})
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    MetricsFile(path).drop_after(1)
    assert path.read_text() == '{"schema": 2, "step": 1, "phase": "train"}\n'


def test_no_info_keeps_a_rollout_from_being_written(tmp_path, rollout):
    info = {"text": "\ud800 and ü", "\udfff": 1, "n": 10**5000, "x": math.nan, "o": object()}
    odd = with_info(rollout, info)
    path = write(tmp_path, odd, rollout)
    first, second = (line.rollout for line in read_file(path))
    assert first.episodes[0].steps[0].info == plain(info)
    assert replace(first, episodes=odd.episodes) == odd and second == rollout


def test_numbers_that_are_not_finite_come_back(tmp_path, rollout):
    unknown = [np.where(row.agent_token_mask, math.nan, 0.0) for row in rollout.rows]
    episode = replace(rollout.episodes[0], reward=math.inf)
    odd = replace(with_logprobs(rollout, unknown), episodes=(episode,))
    write(tmp_path, odd)
    assert list(read_rollouts(tmp_path)) == [odd]


def set_in(row, path, value):
    *way, last = path
    for key in way:
        row = row[key]
    row[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["logprobs"], [0.5], "1 log-probabilities"),
        (["episodes", 0, "steps", 0, "stop"], 9999, "do not follow each other"),
        (["episodes", 0, "steps", 0, "acts"], -1, "does not lie within"),
        (["episodes", 0, "steps", 0, "parent"], 0, "has the parent 0"),
        (["episodes", 0, "steps", 0, "whole"], False, "not its whole context"),
        (["episodes", 0, "steps", 0, "given_rewards"], [0.5], "1 given_rewards of node 0"),
        (["episodes", 0, "steps", 0, "tools"], "{}", "tools is not a list of objects"),
        (["advantages"], [0.5], "advantages do not fit"),
        (["episodes", 0, "steps", 0, "info"], "[]", "info is not a JSON object"),
        (["episodes", 0, "steps", 0, "info"], "[" * 100_000, "info is not a JSON object"),
        (["episodes", 0, "index"], 3, "not numbered"),
        (["task_data"], "{", "task_data is not a JSON object"),
        (["reward_placement"], "evil", "reward_placement is 'evil'"),
    ],
)
def test_a_row_that_is_no_rollout_is_named(tmp_path, rollout, path, value, words):
    file = write(tmp_path, rollout, rollout)
    table = pq.read_table(file)
    rows = table.to_pylist()
    set_in(rows[1], path, value)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), file)
    with pytest.raises(DamagedFile) as caught:
        list(read_file(file))
    assert str(caught.value).startswith(f"{file} is damaged: ") and words in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "flipped", "no column", "a null"])
def test_a_damaged_file_is_named(tmp_path, rollout, damage):
    file = write(tmp_path, rollout)
    data, table = file.read_bytes(), pq.read_table(file)
    if damage == "no column":
        pq.write_table(table.drop_columns(["group"]), file)
    elif damage == "a null":
        fields = [field.with_nullable(True) for field in table.schema]
        pq.write_table(table.cast(pa.schema(fields)), file)
    elif damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    else:
        file.write_bytes(data[:40] + bytes(255 - byte for byte in data[40:600]) + data[600:])
    with pytest.raises(DamagedFile) as caught:
        list(read_file(file))
    assert str(caught.value).startswith(f"{file} is damaged: ")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_of_a_newer_version_says_so(tmp_path, rollout):
    file = write(tmp_path, rollout)
    table = pq.read_table(file)
    pq.write_table(table.replace_schema_metadata({b"agentsgym.schema": b"99"}), file)
    with pytest.raises(OtherFormat, match="schema 99"):
        list(read_file(file))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 3}', "\udcff"])
def test_a_damaged_summary_is_named(tmp_path, text):
    path = tmp_path / "summary.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DamagedFile, match=r"summary.json is damaged"):
        read_summary(path)
