"""Runs on a disk that takes no more, and runs that somebody else writes."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from agentsgym.runs import load_config, load_run, train_run
from agentsgym.runs.files import RunDirectory, read_metrics, read_summary

RUN = Path("runs/toy")


def train_with_limit(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`agentsgym train` in a process that can write no file beyond `size` bytes."""
    return subprocess.run(
        [sys.executable, "-m", "agentsgym", "train", *arguments],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def one_sentence(result) -> str:
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in result.stderr and len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture
def half_done(workplace):
    """A run of four steps that is to go on to six."""
    summary = train_run(load_config("toy.yaml", {"train.save_steps": 2}))
    summary.status, summary.after = "running", None
    summary.write(RUN / "summary.json")
    return RUN


@pytest.mark.parametrize("size", [300, pytest.param(0, marks=pytest.mark.slow)])
def test_a_resume_that_may_not_write_loses_nothing(half_done, size):
    """300 bytes hold the lock and no configuration; with none, Python has no temporary files."""
    before = contents(half_done)
    arguments = ["--resume", str(half_done), "train.max_steps=6"]
    result = train_with_limit(size, *arguments)
    assert result.returncode == 1, result.stderr
    expected = "temporary directory" if size == 0 else "config.yaml: file too large"
    assert expected in one_sentence(result)
    assert contents(half_done) == before
    again = train_run(load_run(half_done, {"train.max_steps": 6}), resume=True)
    assert (again.status, again.steps) == ("finished", 6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3_000, 60_000])
def test_a_disk_that_fills_up_in_training_leaves_a_run_that_goes_on(workplace, size):
    """3 kB take no shard of rollouts, 60 kB no checkpoint."""
    result = train_with_limit(size, "toy.yaml", "train.save_steps=2", "train.max_steps=6")
    assert result.returncode == 1, result.stderr
    sentence = one_sentence(result)
    assert "train --resume runs/toy" in sentence
    assert read_summary(RUN / "summary.json").status == "failed"
    again = train_run(load_run(RUN), resume=True, restart=True)
    assert (again.status, again.steps) == ("finished", 6)
    assert [line["step"] for line in read_metrics(RUN / "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    assert not list(RunDirectory(RUN).root.rglob("*.part"))


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of a size in kB."""
    mounted = []

    def mount(kilobytes: int) -> Path:
        place = tmp_path / "disk"
        place.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
        if os.geteuid() or subprocess.run(["mount", *options], capture_output=True).returncode:
            pytest.skip("this user may mount nothing")
        mounted.append(place)
        return place

    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("size", [64, 1000])
def test_a_full_disk_is_named(workplace, small_disk, invoke, size):
    """64 kB end it in the rollouts, 1 MB in a checkpoint; the model alone has 0.7 MB."""
    disk = small_disk(size)
    result = invoke("train", "toy.yaml", "train.save_steps=2", "--output", str(disk / "run"))
    assert result.exit_code == 1, result.output
    (sentence,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "no space left" in sentence.lower() and str(disk / "run") in sentence
    assert "enforce" not in sentence and "--resume" in sentence
    summary = read_summary(disk / "run/summary.json")
    assert summary.status == "failed" and "no space left" in summary.error.lower()


def test_an_evaluation_on_a_full_disk_is_interrupted(workplace, small_disk, invoke):
    disk = small_disk(24)
    where = ("--env", "digit.DigitEnv", "--output", str(disk / "eval"))
    result = invoke("eval", "model", *where, "--rollouts", "128")
    assert result.exit_code == 1 and "No space left" in result.stderr, result.output
    assert json.loads((disk / "eval/evaluation.json").read_text())["status"] == "interrupted"
