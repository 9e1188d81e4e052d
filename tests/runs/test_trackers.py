"""A run with `train.report_to`: its tracker's own store is read back."""

import os
import re

import pytest

import tracker_stores as stores
from agentsgym.envs import extras
from agentsgym.runs import trackers
from agentsgym.runs.files import RunDirectory, read_metrics
from agentsgym.runs.trackers import stores_in

RUN = """\
env: digit.DigitEnv
model: model
threads: 1
train:
  max_steps: 4
  per_device_train_batch_size: 8
  num_generations: 4
  max_action_tokens: 4
  learning_rate: 1e-2
  eval_strategy: steps
  eval_steps: 2
  use_cpu: true
eval: {episodes: 8}
"""


@pytest.fixture(
    params=[
        "tensorboard",
        *(
            pytest.param(name, marks=pytest.mark.trackers)
            for name in ("wandb", "trackio", "mlflow")
        ),
    ]
)
def tracked(request, workplace, invoke, agentsgym):
    """A run that reports to one tracker: (its name, its directory)."""
    (workplace / "run.yaml").write_text(RUN)
    command = ["train", "run.yaml", f"train.report_to={request.param}"]
    before = set(os.listdir())
    if request.param == "tensorboard":
        assert invoke(*command).exit_code == 0
    else:  # they keep a state for the whole process
        done = agentsgym(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert set(os.listdir()) == before | {"runs"}
    assert "TENSORBOARD_LOGGING_DIR" not in os.environ
    return request.param, workplace / "runs" / "run"


# What Hugging Face's callbacks and TRL add: the summary of a run, and the time of a method.
OTHERS = ("train/global_step", "train/epoch", "train/train_", "train/total_flos", "train_", "epoch")
OTHERS += ("total_flos", "profiling/Time taken", "Time taken")


def in_tracker(name, tracker):
    """A name of metrics.jsonl in a tracker; docs/trackers.md has the rule."""
    if tracker == "mlflow":
        return name
    return f"eval/{name[5:]}" if name.startswith("eval_") else f"train/{name}"


def test_the_store_has_the_values_of_metrics_jsonl(tracked):
    tracker, run = tracked
    stored = getattr(stores, tracker)(run)
    written = {}
    for line in read_metrics(RunDirectory(run).metrics):
        step, phase = line.pop("step"), line.pop("phase")
        if phase == "eval":
            del line["seconds"]
        written |= {(in_tracker(name, tracker), step): value for name, value in line.items()}
    names = {in_tracker(name, tracker) for name in ("reward", "win_rate")}
    assert {name: [s for n, s in written if n == name] for name in names} == {
        name: [1, 2, 3, 4] for name in names
    }
    assert [s for n, s in written if n == in_tracker("eval_reward", tracker)] == [2, 4]
    assert {key: stored.values.get(key) for key in written} == {
        key: pytest.approx(value, rel=1e-6) for key, value in written.items()
    }
    more = {name for name, _ in set(stored.values) - set(written)}
    assert not [name for name in more if not name.startswith(OTHERS)]


@pytest.mark.parametrize(
    ("named", "message"),
    [("tensorbord", "'tensorbord' is no tracker; there are .*tensorboard"), ("wandb", "wandb")],
)
def test_a_tracker_that_cannot_be_used_is_refused_before_a_file_is_written(
    workplace, invoke, monkeypatch, named, message
):
    monkeypatch.setattr(extras, "installed", lambda module: module != "wandb")
    (workplace / "run.yaml").write_text(RUN)
    result = invoke("train", "run.yaml", f"train.report_to={named}")
    assert result.exit_code != 0 and re.search(message, " ".join(result.output.split()))
    assert not (workplace / "runs").exists()


def test_the_users_environment_variables_decide(monkeypatch, tmp_path):
    monkeypatch.setattr(trackers, "installed", lambda module: True)
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_DIR", raising=False)
    with stores_in(tmp_path, {"report_to": ["wandb"], "project": "mine"}):
        assert os.environ["WANDB_MODE"] == "online" and os.environ["WANDB_DIR"] == str(tmp_path)
        assert os.environ["WANDB_PROJECT"] == "mine" and "TRACKIO_DIR" not in os.environ
    assert os.environ["WANDB_MODE"] == "online" and "WANDB_DIR" not in os.environ
