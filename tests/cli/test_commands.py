"""The command line as a user runs it: processes, their output and their exit status."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import agentsgym as package
from agentsgym.cli.app import COMMANDS, loaded
from agentsgym.envs.builtin import KNOWN


def test_help_loads_nothing_heavy():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from agentsgym.cli.app import app\n"
        "result = CliRunner().invoke(app, ['train', '--help'])\n"
        "assert result.exit_code == 0 and 'KEY=VALUE' in result.output, result.output\n"
        "heavy = {'torch', 'transformers', 'trl', 'datasets', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_the_docstring_and_the_list_has_its_first_line(invoke, name):
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    first, *rest = loaded(name).help.split("\n\n")
    assert " ".join(first.split()) == COMMANDS[name]
    assert f"agentsgym {name}" in " ".join(rest) and f"agentsgym {name}" in result.stdout


def test_the_help_and_the_version_of_the_program(invoke):
    text = invoke("--help").stdout
    assert "agentsgym train quickstart" in text and all(name in text for name in COMMANDS)
    assert invoke("--version").stdout.strip() == package.__version__


def test_lists(invoke):
    envs = invoke("envs").stdout
    assert "TwentyQuestions" in envs and "Guess a secret word" in envs
    assert "quickstart" in invoke("presets").stdout
    shown = invoke("presets", "quickstart").stdout
    assert shown == (Path(package.__file__).parent / "presets" / "quickstart.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "name a preset (eight-gpus, explore, explore-many, one-gpu, quickstart"),
        (["train", "nothing.yaml"], "neither a file nor a preset"),
        (["train", "my_game.MyEnv"], "to train on an environment, name it in a file"),
        (["train", "quickstart", "tran.x=1"], "unknown key 'tran'; did you mean 'train'?"),
        (["train", "quickstart", "env_config.hint=1"], "unknown key 'env_config.hint'"),
        (["train", "quickstart", "train.lerning_rate=1"], "did you mean 'train.learning_rate'"),
        (["train", "quickstart", "seed"], "'seed' is not KEY=VALUE"),
        (["train", "--resume"], "say which run to resume"),
        (["train", "--resume", "runs/none"], "holds no run to resume"),
        (["eval", "model"], "name the environment with --env"),
        (["eval", "model", "--env", "Nope"], "no environment is registered as 'Nope' (a class of"),
        (["eval", "agent:best", "--env", "TwentyQuestions"], "no agent is called 'best'"),
        (["eval", "agent:optimal", "--env", "digit.DigitEnv"], "DigitEnv has no optimal agent"),
        (["eval", "builtin:none", "--env", "TwentyQuestions"], "there is no model 'builtin:none'"),
        (["eval", "no/where", "--env", "TwentyQuestions"], "'no/where' cannot be loaded"),
        (["play", "TwentyQuestions", "env_config.hint=1"], "unknown key 'env_config.hint'"),
        (["play", "os.path"], "os.path"),
        (["play", "digit.DigitEnv", "--task", "99"], "has the tasks 0 to 7"),
        (["presets", "nothing"], "no preset is called 'nothing'"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(invoke, workplace, arguments, message):
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert result.stderr.startswith("error: ") and len(result.stderr.splitlines()) == 1


def test_play_to_the_end(invoke, workplace):
    result = invoke("play", "digit.DigitEnv", "--task", "1", input="no idea\nit is 7\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("guess the number 3") == 2  # 101 % 7, asked twice
    assert "You won after 2 actions (done); reward 1." in result.stdout
    ended = invoke("play", "digit.DigitEnv", input="no idea\n")
    assert ended.exit_code == 130 and "The game is over" in ended.stdout


def test_train_evaluate_and_train_again(invoke, workplace):
    result = invoke("train", "toy.yaml", "train.max_steps=2", "seed=3")
    assert result.exit_code == 0, result.stderr
    for text in ("win rate", "95 % interval", "runs/toy", "after 2 of 2 steps"):
        assert text in result.stdout
    summary = json.loads(Path("runs/toy/summary.json").read_text())
    assert summary["seed"] == 3 and summary["steps"] == 2

    text = invoke("eval", "runs/toy", "--rollouts", "8").stdout
    assert "win rate" in text and "digit.DigitEnv" in text
    model = json.loads(
        invoke(
            "eval", "runs/toy/model", "--env", "digit.DigitEnv", "--rollouts", "32", "--json",
            "--max-action-tokens", "6", "env_config.max_steps_per_episode=2",
        ).stdout
    )  # fmt: skip
    # The run's own evaluation: the same tasks with the same noise.
    assert model["win_rate"] == summary["after"]["win_rate"]

    again = invoke("train", "toy.yaml", "train.max_steps=1")
    assert "The earlier run is now runs/toy.1." in again.stdout
    assert json.loads(Path("runs/toy.1/summary.json").read_text()) == summary


def test_ctrl_c_and_resume(invoke, workplace):
    metrics = Path("runs/toy/metrics.jsonl")
    ended = threading.Event()

    def press():
        while not metrics.exists() and not ended.wait(0.02):
            pass
        if metrics.exists():
            os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    result = invoke("train", "toy.yaml", "train.max_steps=5000", "train.min_signal_share=0.0")
    ended.set()
    presser.join()
    assert result.exit_code == 130, result.output
    assert "stopping after this step" in result.stdout
    assert "agentsgym train --resume runs/toy\n" in result.stdout.replace(" \n", "\n")
    done = json.loads(Path("runs/toy/summary.json").read_text())
    assert done["status"] == "interrupted" and done["steps"] >= 1 and done["after"] is None

    goal = done["steps"] + 1
    result = invoke("train", "--resume", "runs/toy", f"train.max_steps={goal}")
    assert result.exit_code == 0, result.output
    summary = json.loads(Path("runs/toy/summary.json").read_text())
    assert summary["status"] == "finished" and summary["steps"] == goal
    assert summary["before"] == done["before"]
    steps = [json.loads(line)["step"] for line in metrics.read_text().splitlines()]
    assert steps == list(range(1, goal + 1))


@pytest.mark.parametrize(
    "command",
    [
        ("play", "Bandit", "--temperature", "0"),
        ("play", "Bandit", "--trust"),
        ("play", "Bandit", "--agent", "agent:optimal", "--temperature", "0"),
        ("eval", "agent:optimal", "--env", "Bandit", "--temperature", "0"),
        ("eval", "agent:optimal", "--env", "Bandit", "--plan", "--output", "there"),
        ("eval", "agent:optimal", "--env", "Bandit", "--tasks", "3"),
        ("eval", "agent:optimal", "--env", "Bandit", "--suite", "explore"),
        ("eval", "agent:optimal", "--env", "Bandit", "--vs", "a", "--vs", "b"),
        ("train", "quickstart", "--restart"),
        ("train", "quickstart", "--machines", "2"),
    ],
    ids=" ".join,
)
def test_an_option_without_effect_is_refused(invoke, workplace, command):
    result = invoke(*command, input="1\n" * 9)
    assert result.exit_code == 2 and "error:" in result.output, result.output


def test_the_settings_of_every_environment_are_listed_with_what_is_allowed(invoke):
    for name in KNOWN:
        result = invoke("envs", name)
        assert result.exit_code == 0, result.output
        rows = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
        assert {"max_steps_per_episode", "carry", "free_shots"} <= rows.keys()
        assert "none, full, summary" in rows["carry"] and "whole number ≥ 0" in rows["free_shots"]
