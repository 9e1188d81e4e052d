"""A run whose tasks are in files."""

import json

import pytest

from agentsgym.envs import ConfigError, make
from agentsgym.runs import load_config, train_run
from agentsgym.runs.files import read_rollouts
from agentsgym.runs.from_config import run_tasks
from agentsgym.runs.settings import DataSettings


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
        data | {"train.max_steps": 1, "eval.rollouts": 14, "train.eval_strategy": "steps"},
    )


def test_a_run_plays_the_tasks_of_its_files(config, invoke):
    train_run(config)
    seeds = {
        phase: {r.task_data["seed"] for r in read_rollouts(config.directory, phase)}
        for phase in ("train", "before", "eval", "after")
    }
    assert seeds["train"] < set(range(100, 120)) and len(seeds["train"]) == 2
    assert seeds["before"] == seeds["eval"] == seeds["after"] == set(range(7))
    again = ("eval", str(config.directory), "--rollouts", "7", "--output", "again")
    assert "data.eval=" in invoke(*again).stderr  # a file outside of the run's directory
    done = invoke(*again, "--trust")
    assert done.exit_code == 0, done.output
    assert {r.task_data["seed"] for r in read_rollouts("again")} == set(range(7))


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_setting(tmp_path):
    for path in (tmp_path / "nowhere.jsonl", tmp_path):
        with pytest.raises(ConfigError, match=r"data\.train: .* cannot be read"):
            run_tasks(make("Bandit"), DataSettings(train=str(path)), "train")
