"""The examples run, shortened."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name, *arguments):
    return execute(sys.executable, str(EXAMPLES / name), *arguments)


def execute(*command, cwd=None):
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_twenty_questions():
    assert re.search(r"held-out win rate: 0\.\d+", run("twenty_questions.py", "--quick"))


@pytest.mark.slow
def test_own_environment():
    printed = run("own_environment.py", "3")
    assert re.search(r"held-out win rate: 0\.\d+ before, 0\.\d+ after 3 steps", printed)


def test_tool_env():
    printed = run("tool_env.py", "2")
    assert re.search(r"held-out win rate: 0\.\d+ before, 0\.\d+ after 2 steps", printed)


@pytest.mark.slow
def test_calls_of_tools_are_learned():
    before, after = re.findall(r"0\.\d+", run("tool_env.py", "60").splitlines()[-1])
    assert float(before) < 0.7 < 0.85 < float(after)


@pytest.mark.slow
def test_plain_trl():
    printed = run("plain_trl.py", "1")
    assert re.search(r"held-out win rate: 0\.\d+ before, 0\.\d+ after 1 steps", printed)


@pytest.mark.slow
def test_grpo_from_scratch():
    printed = run("grpo_from_scratch.py", "1")
    assert re.search(r"held-out reward after 0 steps: 0\.\d+", printed)


def test_a_program_with_the_openai_client(tmp_path):
    folder = tmp_path / "program"
    shutil.copytree(EXAMPLES / "program", folder)
    execute(sys.executable, "tasks.py", cwd=folder)
    printed = execute(
        str(Path(sys.executable).with_name("agentsgym")),
        *("train", "program.yaml", "train.max_steps=1", "eval.rollouts=16"),
        "train.per_device_train_batch_size=32",
        cwd=folder,
    )
    assert "Training ended after 1 of 1 steps" in printed


def test_textarena_blackjack(tmp_path):
    pytest.importorskip("textarena")
    printed = execute(
        str(Path(sys.executable).with_name("agentsgym")),
        "train",
        str(EXAMPLES / "textarena_blackjack.yaml"),
        *("warm_start.steps=3", "train.max_steps=1", "eval.rollouts=16"),
        *("--output", str(tmp_path / "run")),
    )
    assert "Training ended after 1 of 1 steps" in printed
    assert json.loads((tmp_path / "run" / "summary.json").read_text())
