"""A real vLLM that a run starts itself, and one that is found by its address."""

import json
import os
import shutil
from pathlib import Path

import pytest

import helpers
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary
from vllm_servers.conftest import PYTHON

pytestmark = [pytest.mark.doors, pytest.mark.timeout(1800)]

RUN = """\
env: digit.DigitEnv
model: {path: model, dtype: float32}
threads: 1
train:
  max_steps: 2
  per_device_train_batch_size: 16
  num_generations: 8
  max_action_tokens: 6
  learning_rate: 1e-2
eval: {rollouts: 16}
"""


@pytest.fixture
def place(tmp_path, monkeypatch, model_dir):
    """The current directory, with a model, an environment and a run's file."""
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing; run `make test-doors DOOR=vllm`")
    shutil.copytree(model_dir, tmp_path / "model")
    shutil.copy(helpers.__file__, tmp_path / "digit.py")
    (tmp_path / "run.yaml").write_text(RUN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def invoke(*arguments):
    from typer.testing import CliRunner

    from agentsgym.cli.app import app

    return CliRunner().invoke(app, list(arguments))


def processes_with(word):
    """The processes of this machine with `word` in their command line."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line and int(folder.name) != os.getpid():
            pids.append(folder.name)
    return pids


def test_a_training_launches_its_server_and_ends_it(place):
    result = invoke("train", "run.yaml", "engine.launch=1", f"engine.command={PYTHON}")
    assert result.exit_code == 0, result.output
    assert "a server ready after" in result.stdout
    run = RunDirectory(place / "runs" / "run")
    assert [line["step"] for line in read_metrics(run.metrics)] == [1, 2]
    assert all(abs(line["sampler/ratio"] - 1) < 1e-2 for line in read_metrics(run.metrics))
    summary = read_summary(run.summary)
    assert (summary.before.failures, summary.after.failures) == (0, 0)
    assert processes_with(str(place / "model")) == []


def test_a_training_of_an_adapter_launches_a_server_that_takes_it(place):
    """Its server samples from each new version of the adapter, as the log-probabilities show."""
    lora = ("model.lora.r=12", "model.dtype=float32", "train.learning_rate=5e-2")
    given = ("engine.launch=1", f"engine.command={PYTHON}", "train.max_steps=3", *lora)
    result = invoke("train", "run.yaml", *given)
    assert result.exit_code == 0, result.output
    run = RunDirectory(place / "runs" / "run")
    steps = list(read_metrics(run.metrics))
    assert [line["step"] for line in steps] == [1, 2, 3]
    assert all(line["sampler/logp_difference"] < 1e-3 for line in steps)
    summary = read_summary(run.summary)
    assert (summary.before.failures, summary.after.failures) == (0, 0)
    assert (run.model / "adapter_config.json").is_file()
    assert "agentsgym-" in (run.checkpoints / "servers" / "server-0.log").read_text()
    assert processes_with(str(place / "model")) == []


def test_a_server_is_evaluated_by_its_address(place, servers, model_dir):
    command = ("eval", servers[0].url, "--env", "digit.DigitEnv")
    result = invoke(*command, "--rollouts", "8", "--json", "model.path=model")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["failures"] == 0
