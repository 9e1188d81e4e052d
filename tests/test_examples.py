"""The examples run, shortened."""

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
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("name", "argument", "printed"),
    [
        slow("twenty_questions.py", "--quick", r"held-out win rate: 0\.\d+"),
        ("tool_env.py", "2", r"held-out win rate: 0\.\d+ before, 0\.\d+ after 2 steps"),
        slow("own_environment.py", "3", r"held-out win rate: 0\.\d+ before, 0\.\d+ after 3 steps"),
        slow("plain_trl.py", "1", r"held-out win rate: 0\.\d+ before, 0\.\d+ after 1 steps"),
        slow("grpo_from_scratch.py", "1", r"held-out reward after 0 steps: 0\.\d+"),
    ],
)
def test_a_script_prints_how_good_the_agent_is(name, argument, printed):
    assert re.search(printed, run(name, argument))


@pytest.mark.slow
def test_calls_of_tools_are_learned():
    before, after = re.findall(r"0\.\d+", run("tool_env.py", "60").splitlines()[-1])
    assert float(before) < 0.7 < 0.85 < float(after)


@pytest.mark.slow
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
