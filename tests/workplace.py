"""A working directory as a user has it: a model, an environment in a module, a run's YAML."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import helpers
from agentsgym.runs import Progress, StepReport
from chat_server import ChatServer

RUN_YAML = """\
description: a toy
env: digit.DigitEnv
model: model
threads: 1
train:
  max_steps: 4
  per_device_train_batch_size: 16
  num_generations: 8
  max_action_tokens: 6
  learning_rate: 1e-2
  save_steps: 100
  use_cpu: true
eval: {rollouts: 32}
"""


class Notes(Progress):
    """Keeps the notes and the reports of a run."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.reports: list[StepReport] = []

    def step(self, report: StepReport) -> None:
        self.reports.append(report)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def workplace(tmp_path, monkeypatch, tiny_llama, chat_tokenizer) -> Path:
    """The current directory: `model/`, `digit.py` with DigitEnv, `toy.yaml`."""
    tiny_llama.save_pretrained(tmp_path / "model")
    chat_tokenizer.save_pretrained(tmp_path / "model")
    shutil.copy(helpers.__file__, tmp_path / "digit.py")
    (tmp_path / "toy.yaml").write_text(RUN_YAML)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "digit", raising=False)
    return tmp_path


@pytest.fixture
def invoke(monkeypatch):
    """Run a command within this process, which saves loading torch again."""
    from typer.testing import CliRunner

    from agentsgym.cli.app import app

    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str, input: str | None = None):
        return CliRunner().invoke(app, list(arguments), input=input)

    return call


@pytest.fixture
def serve():
    """Returns a function that starts a chat server; options are ChatServer's."""
    started = []

    def start(**options):
        started.append(ChatServer(**({"say": lambda _: "[1]"} | options)))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def agentsgym():
    """Run the command line as a process of its own."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "HF_HUB_OFFLINE": "1"}
        return subprocess.run(
            [sys.executable, "-m", "agentsgym", *arguments],
            capture_output=True,
            text=True,
            env=env,
            timeout=280,
        )

    return call
