"""Every command and every piece of Python in the README runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHORT = "train.max_steps=2 eval.episodes=64 threads=1"
EXPLORE = f"{SHORT} warm_start.steps=2 warm_start.games_per_round=64 signal_check=false"
# What a test adds to a command so that it ends in seconds, and what it types.
ADDED = {
    "agentsgym train quickstart seed=1": (f"{SHORT} --output runs/other", ""),
    "agentsgym train explore": (EXPLORE, ""),
    "agentsgym train explore train.advantage_estimator=step_return": (EXPLORE, ""),
    "agentsgym train quickstart --resume": ("", ""),
    "agentsgym eval runs/quickstart": ("--episodes 64 --threads 1", ""),
    "agentsgym eval agent:optimal --env TwentyQuestions --episodes 64": ("", ""),
    "agentsgym eval runs/quickstart --vs agent:optimal": ("--episodes 32 --threads 1", ""),
    "agentsgym eval agent:optimal --vs runs/quickstart": ("--episodes 32 --threads 1", ""),
    "agentsgym eval agent:optimal --suite explore": ("--episodes 2", ""),
    "agentsgym play TwentyQuestions": ("", "Is it an animal?\n[apple]\n"),
    "agentsgym view runs/quickstart": ("", ""),
    "agentsgym credit runs/quickstart": ("", ""),
    "agentsgym export runs/quickstart --to tokens --out data/rollouts": ("", ""),
    "agentsgym envs": ("", ""),
    "agentsgym check TwentyQuestions": ("", ""),
    "agentsgym tokens builtin:quickstart": ("", ""),
}


def blocks(language):
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
    return [body for named, body in fences if named == language]


def commands():
    lines = [line.split("#")[0].strip() for block in blocks("") for line in block.splitlines()]
    return [line for line in lines if line.startswith("agentsgym ")]


def agentsgym(arguments, cwd, typed=""):
    """Run the command line as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "agentsgym", *shlex.split(arguments)],
        cwd=cwd,
        input=typed,
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A directory in which the quickstart ran for two steps."""
    folder = tmp_path_factory.mktemp("readme")
    done = agentsgym(f"train quickstart {SHORT}", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("command", commands())
def test_commands(command, workplace):
    extra, typed = ADDED[command]
    arguments = f"{command.removeprefix('agentsgym ')} {extra}"
    done = agentsgym(arguments, workplace, typed)
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_commands_are_known():
    assert set(commands()) == set(ADDED)


def test_python(workplace, monkeypatch):
    own, session = blocks("python")
    example = (ROOT / "examples/own_environment.py").read_text(encoding="utf-8")
    assert own.strip() in example
    monkeypatch.chdir(workplace)
    names = {}
    exec(session, names)
    assert len(names["batch"]["full_token_ids"]) == 4


def test_make_targets():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in README and re.search(rf"^{target}:", makefile, re.MULTILINE)
    assert "agentsgym train quickstart" in makefile


def test_links():
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link
