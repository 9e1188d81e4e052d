"""A run whose tasks are in files."""

import json

import pytest
from datasets import Dataset, DatasetDict, Features, Image, List

from agentsgym.envs import ConfigError, task_dataset
from agentsgym.runs import load_config, train_run
from agentsgym.runs.files import read_rollouts
from agentsgym.runs.from_config import open_tasks
from helpers import DigitEnv


def lines(path, seeds):
    rows = (
        {"env_class_path": "digit.DigitEnv", "env_config": {}, "task_data": {"seed": seed}}
        for seed in seeds
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def config(workplace):
    data = {
        "data.train": lines(workplace / "train.jsonl", range(100, 120)),
        "data.eval": lines(workplace / "eval.jsonl", range(7)),
    }
    return load_config(
        "toy.yaml",
        data | {"train.max_steps": 1, "eval.episodes": 14, "train.eval_strategy": "steps"},
    )


def test_a_run_plays_the_tasks_of_its_files(config, invoke):
    train_run(config)
    seeds = {
        phase: {r.task_data["seed"] for r in read_rollouts(config.directory, phase)}
        for phase in ("train", "before", "eval", "after")
    }
    assert seeds["train"] < set(range(100, 120)) and len(seeds["train"]) == 2
    assert seeds["before"] == seeds["eval"] == seeds["after"] == set(range(7))
    again = ("eval", str(config.directory), "--episodes", "7", "--output", "again")
    done = invoke(*again)
    assert done.exit_code == 0, done.output
    assert {r.task_data["seed"] for r in read_rollouts("again")} == set(range(7))


def test_every_kind_of_file_gives_its_rows(tmp_path):
    env = DigitEnv()
    tasks = [{"seed": seed} for seed in range(3)]
    saved = task_dataset(env, tasks)
    saved.save_to_disk(tmp_path / "table")
    (arrow,) = (tmp_path / "table").glob("*.arrow")
    text = lines(tmp_path / "a.jsonl", range(3))
    saved.to_parquet(tmp_path / "a.parquet")
    for path in (tmp_path / "table", arrow, text, tmp_path / "a.parquet"):
        rows = open_tasks("data.train", str(path))
        assert [row["task_data"] for row in rows] == tasks and rows[2]["env_config"] == {}
    DatasetDict(a=saved, b=saved).save_to_disk(tmp_path / "both")
    (tmp_path / "a.csv").write_text("1")
    for name in ("b.arrow", "b.parquet"):
        (tmp_path / name).write_text("1")
    wrong = {
        "nowhere.jsonl": "there is no file", "both": "name one of .*both/a, .*both/b",
        "a.csv": "neither a file of JSON lines", "b.arrow": "cannot be read",
        "b.parquet": "cannot be read",
    }  # fmt: skip
    for name, words in wrong.items():
        with pytest.raises(ConfigError, match=f"data.train: .*{words}"):
            open_tasks("data.train", str(tmp_path / name))


def test_columns_whose_rows_open_other_files_are_refused(tmp_path):
    picture = Features({"task_data": {"x": List(Image())}})
    rows = Dataset.from_dict({"task_data": [{"x": []}]}, features=picture)
    rows.save_to_disk(tmp_path / "table")
    rows.to_parquet(tmp_path / "a.parquet")
    (arrow,) = (tmp_path / "table").glob("*.arrow")
    for path in (tmp_path / "table", arrow, tmp_path / "a.parquet"):
        with pytest.raises(ConfigError, match=r"data.train: .*column 'task_data' holds images"):
            open_tasks("data.train", str(path))
