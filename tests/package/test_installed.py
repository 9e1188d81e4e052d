"""The wheel as users install it, outside the clone: without our constraints, with the oldest and
the newest versions that its ranges allow. Run with `make test-install`."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
PYTHONS = ("3.11", "3.12", "3.13")
UV = [sys.executable, "-m", "uv", "--quiet", "pip"]
# Of the oldest versions a newer Python has no wheels: then it gets the oldest that has some.
UNPINNED = [*UV, "install", "--only-binary", ":all:", "--resolution"]
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
# Axolotl and verifiers want older ones of what constraints.txt has.
PINNED = [
    *((extra, "constraints.txt") for extra in EXTRAS if extra not in ("axolotl", "verifiers")),
    ("axolotl,http", "constraints-axolotl.txt"),
]
STORED = """
from pathlib import Path
from agentsgym import ScriptedAgent, make
from agentsgym.checks.tokens import byte_tokenizer
from agentsgym.runs.files import StoredRollout, read_rollouts
from agentsgym.runs.files.rollouts import write_rollouts
env = make("TwentyQuestions", byte_tokenizer(chat=True))
played = env.run_trial([{"solution": "apple"}], ScriptedAgent(["[apple]"]), num_rollouts=2)
assert all(row.token_ids.size for row in played.rows)
file = Path("run/rollouts/train-000000.parquet")
write_rollouts(file, [StoredRollout(rollout, "train", 0) for rollout in played.rollouts])
assert list(read_rollouts("run")) == list(played.rollouts)
"""
# Commands in their order, and what each prints.
WITHOUT_TORCH = [
    ("agentsgym envs", "TwentyQuestions"),
    ("agentsgym play TwentyQuestions --agent agent:optimal", "The agent won"),
    ("agentsgym check TwentyQuestions", "TwentyQuestions: passed"),
    ("agentsgym tokens builtin:quickstart", "quickstart"),
    ("agentsgym eval agent:optimal --env TwentyQuestions --rollouts 32 --output played", "32"),
    ("agentsgym view played --out page.html", "32 rollouts"),
    ("agentsgym doctor played", ""),
    ("agentsgym export played --phase eval --to messages --out played.jsonl", "32"),
    ("agentsgym export played --phase eval --to messages --out played.parquet", "32"),
    ("python -c STORED", ""),
]
WITH_TORCH = [
    ("agentsgym train quickstart train.max_steps=3 eval.rollouts=64 threads=1", "3 of 3 steps"),
    ("agentsgym eval runs/quickstart --vs agent:optimal --rollouts 32", "32 pairs of rollouts"),
    ("agentsgym view runs/quickstart --out page.html", "896 rollouts"),
    ("agentsgym check TwentyQuestions", "TwentyQuestions: passed"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True)
    (file,) = folder.iterdir()
    return file


def interpreter(version):
    """A Python of this version that starts: on the path, or one of pyenv's, whose shims may not."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = shutil.which(f"python{version}")
    for path in [*([named] if named else []), *pyenv.glob(f"{version}.*/bin/python")]:
        if not subprocess.run([path, "-c", ""], capture_output=True).returncode:
            return str(path)
    pytest.skip(f"there is no Python {version} on this machine")


@pytest.fixture
def python(tmp_path):
    """Makes an empty environment of a version's; its interpreter."""

    def make(version):
        venv = [sys.executable, "-m", "uv", "--quiet", "venv", "--python", interpreter(version)]
        subprocess.run([*venv, tmp_path / "venv"], check=True)
        return tmp_path / "venv/bin/python"

    yield make
    shutil.rmtree(tmp_path / "venv", ignore_errors=True)


def install(python, *arguments):
    done = subprocess.run([*arguments, "--python", python], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run_all(commands, python, folder):
    """Run commands in a folder of their own; each prints what stands beside it."""
    folder.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"XDG_STATE_HOME": f"{folder}/.state", "XDG_CACHE_HOME": f"{folder}/.cache"}
    for command, words in commands:
        name, *arguments = [STORED if word == "STORED" else word for word in command.split()]
        done = subprocess.run(
            [python.with_name(name), *arguments],
            cwd=folder, env=env, capture_output=True, text=True,
        )  # fmt: skip
        printed = " ".join((done.stdout + done.stderr).split())
        assert done.returncode == 0 and words in printed, f"{command}: {printed}"


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_without_torch(resolution, version, wheel, python, tmp_path):
    python = python(version)
    install(python, *UNPINNED, RESOLUTIONS[resolution], wheel)
    run_all(WITHOUT_TORCH, python, tmp_path / "work")


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_with_torch(resolution, version, wheel, python, tmp_path):
    python = python(version)
    torch = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "torch"]
    torch += ["--constraint", str(ROOT / "constraints.txt")]
    report = subprocess.run(
        [*torch, "--dry-run", "--no-deps", "--report", "-"], check=True, stdout=subprocess.PIPE
    )
    (found,) = json.loads(report.stdout)["install"]
    if sys.platform == "linux" and not found["metadata"]["version"].endswith("+cpu"):
        pytest.skip(f"only a CUDA build of torch for Python {version}, which brings gigabytes")
    subprocess.run(torch, check=True)
    install(python, *UNPINNED, RESOLUTIONS[resolution], f"agentsgym[train] @ {wheel.as_uri()}")
    run_all(WITH_TORCH, python, tmp_path / "work")


@pytest.mark.parametrize(("extras", "constraints"), PINNED, ids=[extra for extra, _ in PINNED])
def test_extras_resolve_beside_the_pinned_versions(extras, constraints, wheel, python):
    wanted = [f"agentsgym[{extras}] @ {wheel.as_uri()}", "-c", str(ROOT / constraints)]
    install(python("3.11"), *UV, "install", "--dry-run", *wanted)


@pytest.mark.parametrize("version", PYTHONS)
@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_resolve_without_pins(extra, version, wheel, python):
    wanted = f"agentsgym[{extra}] @ {wheel.as_uri()}"
    install(python(version), *UV, "install", "--dry-run", wanted)
