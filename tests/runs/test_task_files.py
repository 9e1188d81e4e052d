"""A run whose tasks are in files."""

import json
from pathlib import Path

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


WORDS = """
from agentsgym import MultistepEnv


class WordsEnv(MultistepEnv):
    "Say the word; its tasks are in files alone."

    def check_task(self, task_data):
        return None if "word" in task_data else "a task needs a word"

    def _initialize_episode(self, session_id, task_data):
        return dict(task_data)

    def _format_prompt(self, state, step):
        return f"Say {state['word']}."

    def _step_episode(self, session_id, state, action):
        win = action == state["word"]
        return state, float(win), True, {"malformed": action not in "abc", "win": win}

    def admissible_actions(self, state):
        return ["a", "b", "c"]
"""


@pytest.fixture
def words(workplace):
    """The command line of a run of one update on bare tasks."""
    Path("words.py").write_text(WORDS)
    tasks = [json.dumps({"word": "abc"[k % 3], "k": k}) for k in range(40)]
    Path("train.jsonl").write_text("\n".join(tasks[:24]))
    Path("eval.jsonl").write_text("\n".join(tasks[24:]))
    Path("words.yaml").write_text(
        "env: words.WordsEnv\nmodel: tiny\ndata: {train: train.jsonl, eval: eval.jsonl}\n"
    )
    steps = ("train.preset=auto", "train.max_steps=1", "warm_start.steps=3", "eval.rollouts=8")
    return ("train", "words.yaml", *steps, "threads=1", "train.use_cpu=true", "signal_check=false")


def test_bare_tasks_train_an_environment_without_tasks_of_its_own(words, invoke):
    ended = invoke(*words)
    assert ended.exit_code == 0, ended.output
    played = {rollout.task_data["k"] for rollout in read_rollouts("runs/words", "train")}
    assert played and played <= set(range(24))
    checked = invoke("check", "words.WordsEnv", "--tasks", "train.jsonl", "--seconds", "2")
    assert checked.exit_code == 0 and "24 given" in checked.output, checked.output


def test_a_bad_task_is_named_by_its_line_before_anything_is_played(words, invoke):
    with Path("train.jsonl").open("a") as file:
        file.write('\n{"wort": "a"}\n')
    ended = invoke(*words)
    assert ended.exit_code == 2 and not Path("runs").exists()
    assert "train.jsonl: line 25: WordsEnv: a task needs a word" in " ".join(ended.stderr.split())
    assert "train." not in ended.stderr.replace("train.jsonl", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"word": "a"}\n{', "tasks.jsonl: line 2: a row is a dict"),
        ('{"wort": "a"}', "line 1: WordsEnv: a task needs a word"),
        (None, "cannot be read"),
    ],
)
def test_a_check_names_what_is_no_file_of_tasks(words, invoke, text, message):
    if text is not None:
        Path("tasks.jsonl").write_text(text)
    ended = invoke("check", "words.WordsEnv", "--tasks", "tasks.jsonl")
    assert ended.exit_code == 2 and message in " ".join(ended.stderr.split())
