"""Files that were cut off, damaged, or never written whole; values that JSON cannot say."""

import gzip
import json
import math
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from agentsgym import ScriptedAgent
from agentsgym.runs.files import MetricsFile, RolloutWriter, Summary, read_metrics, read_rollouts
from agentsgym.runs.files.atomic import DamagedFile, replacing, write_text
from agentsgym.runs.files.encoding import plain
from agentsgym.runs.files.rollouts import read_shard
from agentsgym.runs.files.summary import read_summary
from helpers import CountdownEnv

SUMMARY = Summary(name="x", seed=0, env="E", env_config={}, model="tiny")


@pytest.fixture
def rollout(plain_tokenizer):
    env = CountdownEnv(plain_tokenizer)
    return env.run_trial([{"rewards": [0.5, 1.0]}], ScriptedAgent(["one", "two"])).rollouts[0]


def write(directory, *rollouts):
    RolloutWriter(directory)(rollouts, {"phase": "train", "step": 0, "advantages": None})
    return directory / "rollouts" / "train-000000.jsonl.gz"


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


def test_nothing_is_lost_where_a_process_may_not_write(tmp_path):
    """RLIMIT_FSIZE=0 stands for a full disk: files can be opened and cut, but not filled."""
    SUMMARY.write(tmp_path / "summary.json")
    metrics = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (1, 2):
        metrics.append("train", step, {"loss": 0.5})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from agentsgym.runs.files import MetricsFile, read_summary\n"
        "from agentsgym.runs.files.atomic import write_text\n"
        "at = Path(sys.argv[1])\n"
        "summary = read_summary(at / 'summary.json')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "for act in (\n"
        "    lambda: summary.write(at / 'summary.json'),\n"
        "    lambda: MetricsFile(at / 'metrics.jsonl').drop_after(1),\n"
        "    lambda: write_text(at / 'config.yaml', 'x'),\n"
        "):\n"
        "    try:\n"
        "        act()\n"
        "    except OSError:\n"
        "        continue\n"
        "    sys.exit('written')\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "phase": "train"}\n[1]\n{"phase": 3}\n{"step": 2, "ph\xff')
    MetricsFile(path).append("train", 2, {"loss": 0.5})
    assert [line["step"] for line in read_metrics(path)] == [1, 2]
    MetricsFile(path).drop_after(1)
    assert path.read_text() == '{"schema": 1, "step": 1, "phase": "train"}\n'


def cyclic():
    value = {"inner": []}
    value["inner"].append(value)
    return value


def deep():
    value = []
    for _ in range(5000):
        value = [value]
    return value


class Hostile:
    def __repr__(self):
        raise RuntimeError("no repr")

    def tolist(self):
        return self


@pytest.mark.parametrize(
    "info",
    [
        {"text": "\ud800 and ü"},
        {"\udfff": 1},
        cyclic(),
        {"deep": deep()},
        {"n": 10**5000, "m": -(10**5000)},
        {"x": math.nan, "y": [math.inf]},
        {"o": Hostile()},
    ],
    ids=["surrogate", "surrogate key", "cycle", "depth", "huge", "not finite", "hostile"],
)
def test_no_info_keeps_a_rollout_from_being_written(tmp_path, rollout, info):
    odd = with_info(rollout, info)
    path = write(tmp_path, odd, rollout)
    first, second = (line.rollout for line in read_shard(path))
    assert first.episodes[0].steps[0].info == plain(info)
    assert replace(first, episodes=()) == replace(odd, episodes=()) and second == rollout


def test_what_was_said_with_half_a_surrogate_pair_comes_back_equal(tmp_path, rollout):
    episode = rollout.episodes[0]
    steps = (replace(episode.steps[0], action="\ud800", observation="é"), *episode.steps[1:])
    odd = replace(rollout, episodes=(replace(episode, steps=steps),), task_data={"q": "\udc00"})
    write(tmp_path, odd)
    assert list(read_rollouts(tmp_path)) == [replace(odd, task_data={"q": "\ufffd"})]


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path, rollout):
    row = replace(rollout.rows[0], logprobs=(math.nan,) * len(rollout.rows[0].logprobs))
    episode = replace(rollout.episodes[0], reward=math.inf)
    path = write(tmp_path, replace(rollout, rows=(row,), episodes=(episode,)))
    assert "NaN" not in gzip.decompress(path.read_bytes()).decode()
    back = next(read_rollouts(tmp_path))
    assert all(map(math.isnan, back.rows[0].logprobs)) and math.isnan(back.episodes[0].reward)


def set_in(line, path, value):
    *way, last = path
    for key in way:
        line = line[key]
    if value is KeyError:
        del line[last]
    else:
        line[last] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (["rows"], KeyError, "'rows' is missing"),
        (["rows"], 3, "not a rollout"),
        (["rows"], [3], "not a rollout"),
        (["rows", 0, "logprobs"], None, "not a rollout"),
        (["rows", 0, "spans"], [[0, 0, 5, 9999]], "outside its row"),
        (["rows", 0, "spans"], [[0, 0]], "not a rollout"),
        (["episodes", 0, "steps", 0, "reward"], "much", "steps: reward is 'much'"),
        (["episodes", 0, "steps", 0, "info"], [], r"steps: info is \[\]"),
        (["episodes", 0, "steps", 0, "anchor"], KeyError, "'anchor' is missing"),
        (["group"], 1e400, "group is"),
        (["group"], 10**30, "group is 1000"),
        (["error"], 3, "error is 3"),
        (["advantages"], [[0.5]], "advantages do not fit"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, rollout, path, value, words):
    shard = write(tmp_path, rollout, rollout)
    lines = [json.loads(line) for line in gzip.decompress(shard.read_bytes()).splitlines()]
    set_in(lines[1], path, value)
    with gzip.open(shard, "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    with pytest.raises(DamagedFile, match=f"is damaged: line 2: .*{words}"):
        list(read_shard(shard))


@pytest.mark.parametrize("damage", ["text", "cut", "flipped", "brackets", "empty line"])
def test_a_damaged_shard_is_named(tmp_path, rollout, damage):
    shard = write(tmp_path, rollout)
    data = shard.read_bytes()
    flipped = data[:40] + bytes(255 - byte for byte in data[40:60]) + data[60:]
    shard.write_bytes(
        {
            "text": b"hello",
            "cut": data[: len(data) // 2],
            "flipped": flipped,
            "brackets": gzip.compress(b"[" * 100_000),
            "empty line": gzip.compress(b"\n"),
        }[damage]
    )
    with pytest.raises(DamagedFile, match=r"train-000000.jsonl.gz is damaged"):
        list(read_shard(shard))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": 3}', "\udcff"])
def test_a_damaged_summary_is_named(tmp_path, text):
    path = tmp_path / "summary.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DamagedFile, match=r"summary.json is not a summary"):
        read_summary(path)
