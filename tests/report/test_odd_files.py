"""Files of a run that are pipes, links to themselves or devices, and numbers no float can hold."""

import os
import shutil
import signal

import pytest
from typer.testing import CliRunner

from agentsgym.cli.app import app
from agentsgym.report.stored import Source
from fuzz.areas.files import _finished


@pytest.fixture
def run(tmp_path, monkeypatch):
    shutil.copytree(_finished(), tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home/runs/run"


@pytest.fixture(autouse=True)
def alarm():
    def late(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pipe(path):
    os.mkfifo(path)


def loop(path):
    path.symlink_to(path.name)


def endless(path):
    path.symlink_to("/dev/zero")


FILES = [
    "rollouts/train-000001.parquet",
    "token-records/000001.parquet",
    "metrics.jsonl",
    "summary.json",
    "config.yaml",
    "model/tokenizer.json",
]


@pytest.mark.parametrize(
    ("name", "kind"), [*((name, pipe) for name in FILES), (FILES[2], loop), (FILES[3], endless)]
)
def test_what_is_no_file_is_named_and_the_rest_is_read(run, name, kind):
    (run / name).unlink()
    kind(run / name)
    for command in ("view", "doctor", "credit"):
        result = CliRunner().invoke(app, [command, "runs/run", "--trust"])
        assert isinstance(result.exception, SystemExit | None), result.exception
        assert "unexpected" not in result.output and result.exit_code in (0, 1, 2)
    source = Source(run, trust=True)
    problems = [*source.overview()["problems"], *(one.read().problem for one in source.sets())]
    if "model" not in name and "config" not in name:
        assert [text for text in problems if text and name in text]


@pytest.mark.parametrize("name", ["config.json", "chat_template.jinja", "model.safetensors"])
def test_a_model_with_a_pipe_is_refused_before_anything_waits_for_it(run, name):
    path = run / "model" / name
    path.unlink()
    pipe(path)
    result = CliRunner().invoke(app, ["eval", "runs/run", "--rollouts", "2", "--trust"])
    assert isinstance(result.exception, SystemExit | None) and "unexpected" not in result.output
    assert result.exit_code and name in result.output


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_that_no_float_holds_is_none(run, digits):
    lines = (run / "metrics.jsonl").read_text().splitlines()
    more = lines[0].replace('"phase"', f'"huge": {"9" * digits}, "phase"', 1)
    (run / "metrics.jsonl").write_text("\n".join([*lines, more]) + "\n")
    for command in ("view", "doctor", "credit"):
        result = CliRunner().invoke(app, [command, "runs/run", "--trust"])
        assert "unexpected" not in result.output and result.exit_code in (0, 1)
    assert Source(run, trust=True).overview()["metrics"]["step"]
