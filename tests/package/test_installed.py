"""The wheel in an empty environment, outside the clone. Run with `make test-package`, which
downloads torch; `PYTHON` names the interpreter."""

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
# Axolotl pins what constraints.txt has newer; the oldest TRL is tried with what trains.
PINNED = [
    *((extra, "constraints.txt") for extra in EXTRAS if extra != "axolotl"),
    ("axolotl", "constraints-axolotl.txt"),
    ("http,train", "constraints-trl-1.9.txt"),
]
SHORT = ["train", "quickstart", "train.max_steps=3", "eval.episodes=64", "threads=1"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True)
    (file,) = folder.iterdir()
    return file


@pytest.fixture(scope="module")
def pip():
    """pip, the newest, of an environment that has nothing else and takes gigabytes while it is."""
    with tempfile.TemporaryDirectory() as folder:
        python = os.environ.get("PYTHON", sys.executable)
        subprocess.run([python, "-m", "venv", folder], check=True)
        pip = [f"{folder}/bin/python", "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
        yield pip


@pytest.fixture(scope="module")
def agentsgym(wheel, pip, tmp_path_factory):
    """Runs a command of the installed wheel in a directory of its own; gives what it printed."""
    pinned = [*pip, "install", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pinned, "torch"], check=True)
    subprocess.run([*pinned, f"agentsgym[train] @ {wheel.as_uri()}"], check=True)
    command = Path(pip[0]).with_name("agentsgym")
    directory = tmp_path_factory.mktemp("directory")
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"XDG_CACHE_HOME": str(directory / "cache")}

    def run(*args):
        done = subprocess.run(
            [command, *args], cwd=directory, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def trained(agentsgym):
    """A run of the quickstart in the directory, and what it printed."""
    return agentsgym(*SHORT)


def test_train(trained):
    assert "Training ended after 3 steps" in trained


def test_envs(agentsgym):
    assert {"TwentyQuestions", "ALFWorld"} <= set(agentsgym("envs").split())


def test_check(agentsgym):
    assert "TwentyQuestions: passed" in agentsgym("check", "TwentyQuestions")


def test_view(agentsgym, trained):
    assert "896 rollouts" in agentsgym("view", "runs/quickstart", "--out", "page.html")


def test_eval(agentsgym, trained):
    printed = agentsgym("eval", "runs/quickstart", "--vs", "agent:optimal", "--episodes", "32")
    assert "32 pairs of rollouts" in printed


@pytest.mark.parametrize(("extras", "constraints"), PINNED, ids=[extra for extra, _ in PINNED])
def test_extras_resolve_beside_the_pinned_versions(extras, constraints, wheel, pip):
    resolve = [*pip, "install", "--dry-run", "--ignore-installed"]
    wanted = f"agentsgym[{extras}] @ {wheel.as_uri()}"
    done = subprocess.run(
        [*resolve, "-c", str(ROOT / constraints), wanted], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
