"""Commands on a run directory that another version of the package wrote."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from agentsgym.runs import load_run, train_run
from agentsgym.runs.files import RunDirectory, read_lines, read_metrics, read_summary

OLD = Path(__file__).parents[1] / "report" / "data" / "run-0.1"


@pytest.fixture
def old_run(workplace) -> RunDirectory:
    """The files of a run that agentsgym 0.1 left behind."""
    shutil.copytree(OLD, "runs/toy")
    return RunDirectory(Path("runs/toy"))


def one_line(result) -> str:
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def test_credit_reads_a_run_of_0_1(old_run, invoke):
    result = invoke("credit", "runs/toy", "-e", "grpo", "-e", "reward", "--json")
    assert result.exit_code == 0, result.output
    assert {line["group"] for line in json.loads(result.stdout)} == {0}


def test_eval_evaluates_a_run_of_0_1(old_run, invoke):
    shutil.copytree("model", old_run.model)
    result = invoke("eval", "runs/toy", "--allow-imports", "digit", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["episodes"] == 4


def test_a_run_of_0_1_goes_on_from_its_checkpoint(old_run, invoke):
    """The checkpoint, which transformers writes, is that of a run of today."""
    old_summary, old_lines = read_summary(old_run.summary), list(read_lines(old_run.root))
    config = load_run(old_run.root)
    train_run(config.model_copy(update={"output_dir": Path("today")}))
    shutil.copytree("today/checkpoints/checkpoint-1", old_run.checkpoints / "checkpoint-1")
    result = invoke("train", "--resume", "runs/toy", "--allow-imports", "digit")
    assert result.exit_code == 0, result.output
    summary = read_summary(old_run.summary)
    assert (summary.status, summary.steps) == ("finished", 2)
    assert summary.before == old_summary.before and summary.before.clusters == 4
    assert [line["step"] for line in read_metrics(old_run.metrics)] == [1, 1, 2, 2]
    lines = list(read_lines(old_run.root))
    assert [(line.phase, line.step) for line in lines] == [(m.phase, m.step) for m in old_lines]
    assert lines[:8] == old_lines[:8]


@pytest.mark.parametrize(
    "command", [["credit"], ["eval"], ["train", "--resume"]], ids=lambda command: command[0]
)
def test_a_run_of_a_newer_version_is_refused_in_one_line(old_run, invoke, command):
    text = json.dumps({"schema": 99, "evaluations": []})
    old_run.summary.write_text(text)
    old_run.shard("train", 1).write_bytes(gzip.compress(text.encode() + b"\n"))
    before = {path: path.read_bytes() for path in old_run.root.rglob("*") if path.is_file()}
    result = invoke(*command, "runs/toy")
    assert result.exit_code != 0
    assert "written by a newer agentsgym (schema 99" in one_line(result)
    after = {path: path.read_bytes() for path in old_run.root.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.name != ".lock"} == before
