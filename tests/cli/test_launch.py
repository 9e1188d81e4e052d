"""Runs that start their servers themselves: `serve-model`, or tests/fake_vllm.py, which fails."""

import json

import psutil
import pytest

from agentsgym.runs.files import RunDirectory, read_summary
from vllm_program import assert_gone, pids, write_program


@pytest.fixture
def vllm(workplace, monkeypatch):
    """The path of a program that behaves as tests/fake_vllm.py says."""
    monkeypatch.setenv("FAKE_VLLM_PIDS", str(workplace / "pids"))
    return write_program(workplace)


SERVED = ("engine.launch=1", "engine.command=serve-model")


def servers():
    """The servers' processes that run."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if "serve-model" in line and "--key-env" in line]


def test_a_training_starts_its_servers_plays_ahead_and_ends_them(invoke, workplace):
    """A launched server plays ahead of learning, and its arguments get through."""
    before = servers()
    more = ("engine.launch_args=[--max-model-len, '300']", "train.max_staleness=1")
    options = ("train.max_steps=3", "model.dtype=float32", *SERVED, *more)
    result = invoke("train", "toy.yaml", *options)
    assert result.exit_code == 0, result.output
    assert "starting a server of" in result.stdout and "ready after" in result.stdout
    run = RunDirectory(workplace / "runs" / "toy")
    assert "requests at once" in (run.checkpoints / "servers" / "server-0.log").read_text()
    summary = read_summary(run.summary)
    assert (summary.before.failures, summary.after.failures) == (0, 0)
    steps = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    aged = [step["staleness/max"] for step in steps if step["phase"] == "train"]
    assert aged[0] == 0 and max(aged) == 1
    assert servers() == before


def died(result):
    assert result.exit_code == 1, result.output
    assert "ended with status 3" in result.stderr and "no room for the KV cache" in result.stderr
    assert "unexpected" not in result.stderr
    return True


def test_a_server_that_dies_ends_the_run_with_a_sentence(invoke, workplace, vllm, monkeypatch):
    monkeypatch.setenv("FAKE_VLLM", "dies")
    launch = ("engine.launch=1", f"engine.command={vllm}")
    trained = invoke("train", "toy.yaml", *launch)
    assert died(trained) and len(trained.stderr.strip().splitlines()) == 1
    assert read_summary(RunDirectory(workplace / "runs" / "toy").summary).status == "failed"
    assert died(invoke("eval", "model", "--env", "digit.DigitEnv", *launch))
    assert_gone(pids(workplace))


def test_what_cannot_be_launched_is_refused_before_anything_is_loaded(invoke, workplace):
    settings = ("engine.launch=1", "engine.command=/nowhere/vllm")
    result = invoke("train", "toy.yaml", "model=nowhere", *settings)
    assert result.exit_code == 2, result.output
    assert "no program '/nowhere/vllm'" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (workplace / "runs").exists()


def test_a_strangers_run_starts_no_program(invoke, workplace, vllm):
    toy = (workplace / "toy.yaml").read_text()
    section = f"engine: {{launch: 1, command: {vllm}}}\n"
    (workplace / "theirs").mkdir()
    (workplace / "theirs" / "config.yaml").write_text(toy + section)
    (workplace / "model").rename(workplace / "theirs" / "model")
    given = ("env=digit.DigitEnv", "model=theirs/model")
    for command in (("train", "--resume", "theirs"), ("eval", "theirs", "--rollouts", "4")):
        invoke(*command, *given)
        assert not (workplace / "pids").exists()
